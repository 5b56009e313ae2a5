//! uuid.
//!
//! <https://www.postgresql.org/docs/17/datatype-uuid.html>

use bytes::{BufMut, BytesMut};

use super::error::Malformed;
use super::read::exact;
use super::value::Value;

/// Where the hyphens are.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

pub(super) fn from_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let text: [u8; 36] = exact(bytes)?;
    let mut uuid = [0u8; 16];
    let mut digits = 0;
    for (index, &byte) in text.iter().enumerate() {
        if HYPHENS.contains(&index) {
            if byte != b'-' {
                return Err(Malformed("hyphen missing"));
            }
            continue;
        }
        let nibble = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return Err(Malformed("not hexadecimal digits")),
        };
        uuid[digits / 2] = uuid[digits / 2] << 4 | nibble;
        digits += 1;
    }
    Ok(Value::Uuid(uuid))
}

pub(super) fn from_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Uuid(exact(bytes)?))
}

/// Appends the canonical form: lower case, with hyphens.
pub(crate) fn write(out: &mut BytesMut, uuid: &[u8; 16]) {
    out.put_slice(&format(uuid));
}

/// The canonical form.
pub(crate) fn format(uuid: &[u8; 16]) -> [u8; 36] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; 36];
    let mut position = 0;
    for byte in uuid {
        if HYPHENS.contains(&position) {
            position += 1;
        }
        text[position] = DIGITS[usize::from(byte >> 4)];
        text[position + 1] = DIGITS[usize::from(byte & 15)];
        position += 2;
    }
    text
}
