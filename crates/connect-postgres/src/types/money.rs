//! money: a 64-bit count of the smallest unit. The text form is the one of `lc_monetary` C: `-$1,234.56`.
//!
//! <https://www.postgresql.org/docs/17/datatype-money.html>

use bytes::{BufMut, BytesMut};

use super::error::Malformed;
use super::read::exact;
use super::value::Value;
use super::write;

/// A money value: how many of the smallest unit.
///
/// How many of them make one is the server's setting (`lc_monetary` of the database); two digits in most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Money(pub i64);

pub(super) fn from_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let malformed = Malformed("not in the form of lc_monetary C");
    let (negative, rest) = match bytes.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, bytes),
    };
    let rest = rest.strip_prefix(b"$").ok_or(malformed)?;
    let (integer, fraction) = rest.split_last_chunk::<3>().ok_or(malformed)?;
    if fraction[0] != b'.' || integer.is_empty() {
        return Err(malformed);
    }
    let mut number = 0i64;
    for &byte in integer.iter().chain(&fraction[1..]).filter(|&&byte| byte != b',') {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit <= 9).ok_or(malformed)?;
        let digit = i64::from(digit);
        // Downwards, because the lowest number has no positive counterpart.
        number = number
            .checked_mul(10)
            .and_then(|number| number.checked_sub(digit))
            .ok_or(Malformed("number out of range"))?;
    }
    let number = if negative { Some(number) } else { number.checked_neg() };
    Ok(Value::Money(Money(number.ok_or(Malformed("number out of range"))?)))
}

pub(super) fn from_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Money(Money(i64::from_be_bytes(exact(bytes)?))))
}

impl Money {
    /// The number of smallest units when one has `to` digits instead of `from`; `None` when a part would be lost.
    pub(crate) fn rescaled(self, from: u32, to: u32) -> Option<i128> {
        let number = i128::from(self.0);
        if to >= from {
            number.checked_mul(10i128.checked_pow(to - from)?)
        } else {
            let divisor = 10i128.checked_pow(from - to)?;
            (number % divisor == 0).then(|| number / divisor)
        }
    }

    /// As a plain decimal with `digits` digits after the point.
    pub(crate) fn write_decimal(self, out: &mut BytesMut, digits: u32) {
        if self.0 < 0 {
            out.put_u8(b'-');
        }
        let magnitude = self.0.unsigned_abs();
        match 10u64.checked_pow(digits) {
            Some(unit) if digits > 0 => {
                write::integer(out, magnitude / unit);
                out.put_u8(b'.');
                write::padded(out, magnitude % unit, digits as usize);
            }
            _ => write::integer(out, magnitude),
        }
    }

    pub(super) fn write_server_text(self, out: &mut BytesMut) {
        out.put_slice(if self.0 < 0 { b"-$" } else { b"$" });
        let magnitude = self.0.unsigned_abs();
        let mut buffer = itoa::Buffer::new();
        let integer = buffer.format(magnitude / 100).as_bytes();
        for (index, digit) in integer.iter().enumerate() {
            if index > 0 && (integer.len() - index).is_multiple_of(3) {
                out.put_u8(b',');
            }
            out.put_u8(*digit);
        }
        out.put_u8(b'.');
        write::padded(out, magnitude % 100, 2);
    }
}
