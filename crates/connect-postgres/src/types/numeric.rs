//! numeric: exact decimals of any size.
//!
//! Text: digits with a point. Binary: digits of base 10000, the weight of the first, sign and display scale.
//!
//! <https://www.postgresql.org/docs/17/datatype-numeric.html#DATATYPE-NUMERIC-DECIMAL>

use bytes::{BufMut, BytesMut};

use super::error::Malformed;
use super::read::Reader;
use super::value::Value;
use super::write;

/// A numeric.
#[derive(Debug, Clone, Copy)]
pub enum Numeric<'a> {
    /// Not a number.
    NaN,
    /// Infinity (PostgreSQL 14+).
    Infinity,
    /// -Infinity (PostgreSQL 14+).
    NegativeInfinity,
    /// A number.
    Finite(Decimal<'a>),
}

/// A finite numeric.
#[derive(Debug, Clone, Copy)]
pub struct Decimal<'a> {
    negative: bool,
    /// Digits after the point that the server prints.
    scale: u32,
    digits: Digits<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Digits<'a> {
    /// Checked: decimal digits only; `fraction` has `scale` of them.
    Text { integer: &'a [u8], fraction: &'a [u8] },
    /// Checked: two bytes each, below 10000; the first counts 10000 to the power of `weight`.
    Binary { weight: i32, digits: &'a [u8] },
}

/// The unscaled integer of a decimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unscaled {
    /// Up to 38 digits.
    Small(i128),
    /// Big-endian two's complement, fewest bytes.
    Big(Vec<u8>),
}

/// Precision and scale of a type modifier: numeric(p,s). Scales from -1000 to 1000.
pub(crate) fn declared_scale(typmod: i32) -> Option<i32> {
    // Four is the size of a varlena header, which the server adds. The scale is a signed 11-bit number.
    (typmod >= 4).then(|| (((typmod - 4) & 0x7FF) ^ 0x400) - 0x400)
}

/// Most digits that fit an i128 whatever they are.
const SMALL_DIGITS: usize = 38;

const DIGIT_BASE: u16 = 10_000;

/// Highest display scale the server knows.
const SCALE_MAX: u16 = 0x3FFF;

pub(super) fn from_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let numeric = match bytes {
        b"NaN" => Numeric::NaN,
        b"Infinity" => Numeric::Infinity,
        b"-Infinity" => Numeric::NegativeInfinity,
        _ => {
            let (negative, magnitude) = match bytes.split_first() {
                Some((b'-', rest)) => (true, rest),
                _ => (false, bytes),
            };
            let point = magnitude.iter().position(|&byte| byte == b'.');
            let (integer, fraction) = match point {
                Some(point) => (&magnitude[..point], &magnitude[point + 1..]),
                None => (magnitude, &magnitude[..0]),
            };
            let decimal = |digits: &[u8]| digits.iter().all(u8::is_ascii_digit);
            if integer.is_empty()
                || point.is_some() && fraction.is_empty()
                || !decimal(integer)
                || !decimal(fraction)
            {
                return Err(Malformed("not a decimal number"));
            }
            let scale = u32::try_from(fraction.len()).map_err(|_| Malformed("too many digits"))?;
            Numeric::Finite(Decimal { negative, scale, digits: Digits::Text { integer, fraction } })
        }
    };
    Ok(Value::Numeric(numeric))
}

pub(super) fn from_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let count = usize::from(reader.u16()?);
    let weight = i32::from(reader.i16()?);
    let sign = reader.u16()?;
    let scale = reader.u16()?;
    let digits = reader.take(count * 2)?;
    reader.finish()?;
    let numeric = match sign {
        0 | 0x4000 => {
            if scale > SCALE_MAX {
                return Err(Malformed("scale out of range"));
            }
            if digits.chunks_exact(2).any(|pair| u16::from_be_bytes([pair[0], pair[1]]) >= DIGIT_BASE) {
                return Err(Malformed("digit out of range"));
            }
            let digits = Digits::Binary { weight, digits };
            let decimal = Decimal { negative: sign == 0x4000, scale: u32::from(scale), digits };
            if !decimal.fits_scale() {
                return Err(Malformed("digits beyond the scale"));
            }
            Numeric::Finite(decimal)
        }
        0xC000 => Numeric::NaN,
        0xD000 => Numeric::Infinity,
        0xF000 => Numeric::NegativeInfinity,
        _ => return Err(Malformed("unknown sign")),
    };
    Ok(Value::Numeric(numeric))
}

impl Numeric<'_> {
    pub(crate) fn write_server_text(&self, out: &mut BytesMut) {
        match self {
            Self::NaN => out.put_slice(b"NaN"),
            Self::Infinity => out.put_slice(b"Infinity"),
            Self::NegativeInfinity => out.put_slice(b"-Infinity"),
            Self::Finite(decimal) => decimal.write_server_text(out),
        }
    }
}

impl Decimal<'_> {
    /// Digits after the point that the server prints.
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// Digits after the point when trailing zeros are left out.
    pub(crate) fn significant_scale(&self) -> u32 {
        match self.digits {
            Digits::Text { fraction, .. } => {
                let zeros = fraction.iter().rev().take_while(|&&digit| digit == b'0').count();
                // Lossless: the fraction has `scale` digits.
                (fraction.len() - zeros) as u32
            }
            Digits::Binary { weight, digits } => {
                let zeros = digits.rchunks_exact(2).take_while(|pair| **pair == [0, 0]).count();
                let count = digits.len() / 2 - zeros;
                let Some(last) = count.checked_sub(1) else { return 0 };
                let mut digit = u16::from_be_bytes([digits[last * 2], digits[last * 2 + 1]]);
                // Lossless: at most 65535 digits of base 10000.
                let mut scale = 4 * (count as i32 - 1 - weight);
                while digit.is_multiple_of(10) {
                    digit /= 10;
                    scale -= 1;
                }
                scale.max(0) as u32
            }
        }
    }

    /// Whether every digit but zero has a place within the scale.
    fn fits_scale(&self) -> bool {
        self.significant_scale() <= self.scale
    }

    /// The integer that is this number times ten to the power of `scale`; `None` when that is no integer.
    pub(crate) fn unscaled(&self, scale: i32) -> Option<Unscaled> {
        match self.unscaled_small(scale) {
            Some(exact) => exact.map(|number| Unscaled::Small(if self.negative { -number } else { number })),
            None => self.unscaled_big(scale).map(|magnitude| magnitude.signed(self.negative)),
        }
    }

    /// `None`: too many digits for this way. `Some(None)`: no integer.
    fn unscaled_small(&self, scale: i32) -> Option<Option<i128>> {
        let mut number = 0i128;
        let (count, exponent) = match self.digits {
            Digits::Text { integer, fraction } => {
                let count = integer.len() + fraction.len();
                if count > SMALL_DIGITS {
                    return None;
                }
                for digit in integer.iter().chain(fraction) {
                    number = number * 10 + i128::from(digit - b'0');
                }
                (count, -i32::try_from(fraction.len()).ok()?)
            }
            Digits::Binary { weight, digits } => {
                let count = digits.len() * 2;
                if count > SMALL_DIGITS {
                    return None;
                }
                for pair in digits.chunks_exact(2) {
                    number =
                        number * i128::from(DIGIT_BASE) + i128::from(u16::from_be_bytes([pair[0], pair[1]]));
                }
                (count, 4 * (weight + 1) - count as i32)
            }
        };
        if number == 0 {
            return Some(Some(0));
        }
        let shift = exponent + scale;
        let power = shift.unsigned_abs();
        if shift >= 0 {
            (count + power as usize <= SMALL_DIGITS).then(|| Some(number * 10i128.pow(power)))
        } else if power as usize > SMALL_DIGITS {
            Some(None)
        } else {
            let divisor = 10i128.pow(power);
            Some((number % divisor == 0).then(|| number / divisor))
        }
    }

    fn unscaled_big(&self, scale: i32) -> Option<Magnitude> {
        let mut digits = BytesMut::new();
        self.write_integer(&mut digits);
        let fraction = digits.len();
        self.write_fraction(&mut digits, self.scale as usize);
        let wanted = i64::try_from(fraction).ok()? + i64::from(scale);
        let wanted = usize::try_from(wanted.max(0)).ok()?;
        if digits.iter().skip(wanted).any(|&digit| digit != b'0') {
            return None;
        }
        digits.resize(wanted, b'0');
        Some(Magnitude::from_decimal(&digits))
    }

    fn write_server_text(&self, out: &mut BytesMut) {
        if self.negative {
            out.put_u8(b'-');
        }
        self.write_integer(out);
        if self.scale > 0 {
            out.put_u8(b'.');
            self.write_fraction(out, self.scale as usize);
        }
    }

    /// The digits before the point, at least one.
    fn write_integer(&self, out: &mut BytesMut) {
        match self.digits {
            Digits::Text { integer, .. } => out.put_slice(integer),
            Digits::Binary { weight, digits } => {
                let mut digits = digits.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
                let mut started = false;
                for _ in 0..=weight {
                    let digit = digits.next().unwrap_or(0);
                    if started {
                        write::padded(out, u64::from(digit), 4);
                    } else if digit != 0 {
                        write::integer(out, digit);
                        started = true;
                    }
                }
                if !started {
                    out.put_u8(b'0');
                }
            }
        }
    }

    /// `count` digits after the point.
    fn write_fraction(&self, out: &mut BytesMut, count: usize) {
        match self.digits {
            Digits::Text { fraction, .. } => out.put_slice(fraction),
            Digits::Binary { weight, digits } => {
                let start = out.len();
                // Digits of base 10000 between the point and the first one of the value.
                let zeros = usize::try_from(-1 - weight).unwrap_or(0);
                out.put_bytes(b'0', (zeros * 4).min(count));
                let skipped = usize::try_from(weight + 1).unwrap_or(0);
                for pair in digits.chunks_exact(2).skip(skipped) {
                    if out.len() - start >= count {
                        break;
                    }
                    write::padded(out, u64::from(u16::from_be_bytes([pair[0], pair[1]])), 4);
                }
                out.resize(start + count, b'0');
            }
        }
    }
}

/// A large non-negative integer, least significant limb first.
struct Magnitude(Vec<u64>);

/// Ten to the power of this fits a limb.
const LIMB_DIGITS: usize = 19;

impl Magnitude {
    fn from_decimal(digits: &[u8]) -> Self {
        let mut limbs: Vec<u64> = Vec::with_capacity(digits.len() / LIMB_DIGITS + 1);
        for chunk in digits.chunks(LIMB_DIGITS) {
            let mut carry = chunk.iter().fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
            // Lossless: at most nineteen.
            let factor = 10u64.pow(chunk.len() as u32);
            for limb in &mut limbs {
                let product = u128::from(*limb) * u128::from(factor) + u128::from(carry);
                *limb = product as u64;
                carry = (product >> 64) as u64;
            }
            if carry != 0 {
                limbs.push(carry);
            }
        }
        Self(limbs)
    }

    /// As big-endian two's complement in the fewest bytes.
    fn signed(self, negative: bool) -> Unscaled {
        let mut limbs = self.0;
        // Room for the sign.
        limbs.push(0);
        if negative {
            let mut carry = true;
            for limb in &mut limbs {
                (*limb, carry) = (!*limb).overflowing_add(u64::from(carry));
            }
        }
        let bytes: Vec<u8> = limbs.iter().rev().flat_map(|limb| limb.to_be_bytes()).collect();
        Unscaled::Big(minimal(&bytes).to_vec())
    }
}

impl Unscaled {
    /// Hands out the big-endian two's complement, fewest bytes.
    pub(crate) fn with_bytes<T>(&self, take: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Small(number) => take(minimal(&number.to_be_bytes())),
            Self::Big(bytes) => take(bytes),
        }
    }
}

/// Drops leading bytes that only repeat the sign.
fn minimal(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let [first, second, ..] = rest {
        if (*first == 0 && *second < 0x80) || (*first == 0xFF && *second >= 0x80) {
            rest = &rest[1..];
        } else {
            break;
        }
    }
    rest
}
