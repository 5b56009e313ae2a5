//! Reading of fields: fixed-width integers of the binary forms, digits of the text forms.

use super::error::Malformed;

/// Takes fields off the front of a binary value. Every method fails when too few bytes are left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

const SHORT: Malformed = Malformed("too short");

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(SHORT)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn i16(&mut self) -> Result<i16, Malformed> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(crate) fn f64(&mut self) -> Result<f64, Malformed> {
        Ok(f64::from_be_bytes(self.array()?))
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(SHORT)?;
        self.rest = rest;
        Ok(head)
    }

    /// An i32 count of things of which each takes at least `least` bytes.
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.i32()?).map_err(|_| Malformed("negative count"))?;
        if count > self.rest.len() / least.max(1) {
            return Err(Malformed("count larger than the value"));
        }
        Ok(count)
    }

    /// An i32 length with that many bytes; -1 is null.
    pub(crate) fn sized(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| Malformed("negative length"))?;
                self.take(length).map(Some)
            }
        }
    }

    /// Text that ends with a zero byte.
    pub(crate) fn cstring(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(SHORT)?;
        let text = self.take(end)?;
        self.take(1)?;
        Ok(text)
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed("too long")) }
    }
}

/// A value that has exactly `N` bytes.
#[inline]
pub(crate) fn exact<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Malformed> {
    bytes.try_into().map_err(|_| Malformed("wrong length"))
}

/// Text in `client_encoding`, which is UTF-8.
#[inline]
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed("not UTF-8"))
}

/// An unsigned number of decimal digits only.
#[inline]
pub(crate) fn digits(bytes: &[u8]) -> Result<u64, Malformed> {
    if bytes.is_empty() || bytes.len() > 20 {
        return Err(Malformed("not a number"));
    }
    let mut number = 0u64;
    for &byte in bytes {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Malformed("not a number"));
        }
        number = number
            .checked_mul(10)
            .and_then(|number| number.checked_add(u64::from(digit)))
            .ok_or(Malformed("number out of range"))?;
    }
    Ok(number)
}

/// A number with an optional sign.
#[inline]
pub(crate) fn signed(bytes: &[u8]) -> Result<i64, Malformed> {
    match bytes.split_first() {
        Some((b'-', rest)) => 0i64.checked_sub_unsigned(digits(rest)?),
        _ => i64::try_from(digits(bytes)?).ok(),
    }
    .ok_or(Malformed("number out of range"))
}

/// Splits at the first byte that is not a decimal digit.
#[inline]
pub(crate) fn split_digits(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len());
    bytes.split_at(end)
}
