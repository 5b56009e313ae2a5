//! bytea: hexadecimal in text (`bytea_output = hex`), the bytes themselves in binary.
//!
//! <https://www.postgresql.org/docs/17/datatype-binary.html>

use bytes::{BufMut, BytesMut};

use super::error::Malformed;
use super::value::Value;
use super::write;

/// A byte string.
#[derive(Debug, Clone, Copy)]
pub struct Bytea<'a>(Source<'a>);

#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    Raw(&'a [u8]),
    /// Checked: pairs of hexadecimal digits.
    Hex(&'a [u8]),
}

/// Bytes decoded at a time: a multiple of three, so that base64 needs no padding in between.
const BLOCK: usize = 384;

impl<'a> Bytea<'a> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Raw(bytes) => bytes.len(),
            Source::Hex(digits) => digits.len() / 2,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, when they came in binary.
    pub fn as_slice(&self) -> Option<&'a [u8]> {
        match self.0 {
            Source::Raw(bytes) => Some(bytes),
            Source::Hex(_) => None,
        }
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.for_each_block(|block| bytes.extend_from_slice(block));
        bytes
    }

    /// Hands out the bytes in blocks; the length of all but the last is a multiple of three.
    pub(crate) fn for_each_block(&self, mut block: impl FnMut(&[u8])) {
        match self.0 {
            Source::Raw(bytes) => block(bytes),
            Source::Hex(digits) => {
                let mut buffer = [0u8; BLOCK];
                for digits in digits.chunks(BLOCK * 2) {
                    let mut length = 0;
                    for (pair, byte) in digits.chunks_exact(2).zip(&mut buffer) {
                        *byte = NIBBLE[usize::from(pair[0])] << 4 | NIBBLE[usize::from(pair[1])];
                        length += 1;
                    }
                    block(&buffer[..length]);
                }
            }
        }
    }

    pub(super) fn write_server_text(&self, out: &mut BytesMut) {
        out.put_slice(b"\\x");
        match self.0 {
            Source::Raw(bytes) => write::hex(out, bytes),
            Source::Hex(digits) => out.put_slice(digits),
        }
    }
}

/// The value of a hexadecimal digit; 16 for any other byte.
static NIBBLE: [u8; 256] = {
    let mut table = [16u8; 256];
    let mut byte = 0;
    while byte < 10 {
        table[b'0' as usize + byte] = byte as u8;
        byte += 1;
    }
    let mut letter = 0;
    while letter < 6 {
        table[b'a' as usize + letter] = 10 + letter as u8;
        table[b'A' as usize + letter] = 10 + letter as u8;
        letter += 1;
    }
    table
};

pub(super) fn from_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let digits = bytes.strip_prefix(b"\\x").ok_or(Malformed("not in hex format"))?;
    let mut seen = 0u8;
    for &digit in digits {
        seen |= NIBBLE[usize::from(digit)];
    }
    if seen & 16 != 0 || !digits.len().is_multiple_of(2) {
        return Err(Malformed("not pairs of hexadecimal digits"));
    }
    Ok(Value::Bytea(Bytea(Source::Hex(digits))))
}

pub(super) fn from_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Bytea(Bytea(Source::Raw(bytes))))
}
