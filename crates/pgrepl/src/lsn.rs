//! Log sequence numbers.

use std::fmt;
use std::str::FromStr;

/// A position in the write-ahead log, printed as PostgreSQL prints it: `16/B374D848`.
///
/// Unsigned 64 bit; ordered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(u64);

impl Lsn {
    /// `0/0`: "no position" to the server.
    pub const ZERO: Self = Self(0);

    /// From the 64-bit number.
    pub const fn new(lsn: u64) -> Self {
        Self(lsn)
    }

    /// The 64-bit number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl From<u64> for Lsn {
    fn from(lsn: u64) -> Self {
        Self(lsn)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not a log sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a log sequence number (expected HEX/HEX, for example 16/B374D848)")]
pub struct ParseLsnError;

impl FromStr for Lsn {
    type Err = ParseLsnError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let part = |digits: &str| -> Result<u32, ParseLsnError> {
            if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(ParseLsnError);
            }
            u32::from_str_radix(digits, 16).map_err(|_| ParseLsnError)
        };
        let (high, low) = text.split_once('/').ok_or(ParseLsnError)?;
        Ok(Self(u64::from(part(high)?) << 32 | u64::from(part(low)?)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Lsn;

    #[test]
    fn only_two_hexadecimal_halves_are_positions() {
        assert_eq!("16/B374D848".parse(), Ok(Lsn::new(0x16_B374_D848)));
        assert_eq!("0/0".parse(), Ok(Lsn::ZERO));
        for text in ["", "/", "0", "0/", "/0", "0/0/0", "+1/0", "0/123456789", "G/0", " 0/0", "0x1/0"] {
            assert!(text.parse::<Lsn>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn positions_survive_their_text(lsn: u64) {
            let lsn = Lsn::new(lsn);
            prop_assert_eq!(lsn.to_string().parse(), Ok(lsn));
        }
    }
}
