//! bit and varbit.
//!
//! <https://www.postgresql.org/docs/17/datatype-bit.html>

use bytes::{BufMut, BytesMut};

use super::error::Malformed;
use super::read::Reader;
use super::value::Value;

/// A bit string.
#[derive(Debug, Clone, Copy)]
pub struct Bits<'a>(Source<'a>);

#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    /// Checked: the digits 0 and 1.
    Text(&'a [u8]),
    /// Checked: as many bytes as needed, the first bit highest.
    Binary { length: usize, bytes: &'a [u8] },
}

pub(super) fn from_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    if bytes.iter().all(|byte| matches!(byte, b'0' | b'1')) {
        Ok(Value::Bits(Bits(Source::Text(bytes))))
    } else {
        Err(Malformed("not the digits 0 and 1"))
    }
}

pub(super) fn from_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let length = usize::try_from(reader.i32()?).map_err(|_| Malformed("negative length"))?;
    let bytes = reader.take(length.div_ceil(8))?;
    reader.finish()?;
    Ok(Value::Bits(Bits(Source::Binary { length, bytes })))
}

impl Bits<'_> {
    /// Number of bits.
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Text(digits) => digits.len(),
            Source::Binary { length, .. } => length,
        }
    }

    /// Whether there are no bits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bit at an index from the left; `None` beyond the end.
    pub fn bit(&self, index: usize) -> Option<bool> {
        match self.0 {
            Source::Text(digits) => digits.get(index).map(|&digit| digit == b'1'),
            Source::Binary { length, bytes } => {
                if index < length {
                    bytes.get(index / 8).map(|byte| byte >> (7 - index % 8) & 1 == 1)
                } else {
                    None
                }
            }
        }
    }

    /// Appends the digits, as the server does.
    pub(crate) fn write_digits(&self, out: &mut BytesMut) {
        match self.0 {
            Source::Text(digits) => out.put_slice(digits),
            Source::Binary { .. } => {
                out.reserve(self.len());
                for index in 0..self.len() {
                    out.put_u8(if self.bit(index) == Some(true) { b'1' } else { b'0' });
                }
            }
        }
    }

    /// Appends the string read as one number, little-endian, without zero bytes at its end.
    pub(crate) fn write_little_endian(&self, out: &mut Vec<u8>) {
        let length = self.len();
        for byte in 0..length.div_ceil(8) {
            let mut value = 0u8;
            for bit in 0..8 {
                let place = byte * 8 + bit;
                if place < length && self.bit(length - 1 - place) == Some(true) {
                    value |= 1 << bit;
                }
            }
            out.push(value);
        }
        while out.last() == Some(&0) {
            out.pop();
        }
    }
}
