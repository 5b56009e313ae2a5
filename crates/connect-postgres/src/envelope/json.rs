//! JSON written straight into a buffer.
//!
//! <https://www.rfc-editor.org/rfc/rfc8259>

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, BytesMut};

use crate::types::Bytea;

/// A string.
#[inline]
pub(crate) fn string(out: &mut BytesMut, text: &str) {
    out.reserve(text.len() + 2);
    out.put_u8(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (clean, dirty) = rest.split_at(clean_prefix(rest));
        out.put_slice(clean);
        let Some((&byte, after)) = dirty.split_first() else { break };
        let (escape, length) = escape(byte);
        out.put_slice(&escape[..length]);
        rest = after;
    }
    out.put_u8(b'"');
}

/// A string of what `write` appends, which must be UTF-8. Escaped in place, so it needs no other buffer.
pub(crate) fn string_of<E>(
    out: &mut BytesMut,
    write: impl FnOnce(&mut BytesMut) -> Result<(), E>,
) -> Result<(), E> {
    out.put_u8(b'"');
    let start = out.len();
    write(out)?;
    escape_from(out, start);
    out.put_u8(b'"');
    Ok(())
}

/// Escapes what was written from `start` on.
fn escape_from(out: &mut BytesMut, start: usize) {
    let clean = start + clean_prefix(&out[start..]);
    if clean == out.len() {
        return;
    }
    let longer: usize = out[clean..].iter().map(|&byte| escape(byte).1 - 1).sum();
    let mut read = out.len();
    out.resize(read + longer, 0);
    let mut write = out.len();
    while read < write {
        read -= 1;
        let (escape, length) = escape(out[read]);
        write -= length;
        out[write..write + length].copy_from_slice(&escape[..length]);
    }
}

/// The escaped form of a byte and its length; bytes that need none stay as they are.
#[inline]
fn escape(byte: u8) -> ([u8; 6], usize) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0C => b'f',
        0..0x20 => {
            return ([b'\\', b'u', b'0', b'0', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]], 6);
        }
        _ => return ([byte, 0, 0, 0, 0, 0], 1),
    };
    ([b'\\', short, 0, 0, 0, 0], 2)
}

/// How many bytes at the front need no escape. Eight at a time: a byte's high bit is set where the byte is a quote,
/// a backslash or a control character; above the first such byte there may be false marks, which do no harm.
#[inline]
fn clean_prefix(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES * 0x80;
    let equals = |word: u64, byte: u8| {
        let difference = word ^ (ONES * u64::from(byte));
        difference.wrapping_sub(ONES) & !difference
    };
    let mut index = 0;
    while let Some(chunk) = bytes.get(index..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let marks = (control | equals(word, b'"') | equals(word, b'\\')) & HIGHS;
        if marks != 0 {
            return index + (marks.trailing_zeros() / 8) as usize;
        }
        index += 8;
    }
    bytes[index..]
        .iter()
        .position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\')
        .map_or(bytes.len(), |position| index + position)
}

/// A float4: a number, or a string for what JSON has no number for.
pub(crate) fn float32(out: &mut BytesMut, number: f32) {
    if number.is_finite() {
        out.put_slice(ryu::Buffer::new().format_finite(number).as_bytes());
    } else {
        not_finite(out, f64::from(number));
    }
}

/// A float8: a number, or a string for what JSON has no number for.
pub(crate) fn float64(out: &mut BytesMut, number: f64) {
    if number.is_finite() {
        out.put_slice(ryu::Buffer::new().format_finite(number).as_bytes());
    } else {
        not_finite(out, number);
    }
}

fn not_finite(out: &mut BytesMut, number: f64) {
    let word: &[u8] = match number {
        f64::INFINITY => b"\"Infinity\"",
        f64::NEG_INFINITY => b"\"-Infinity\"",
        _ => b"\"NaN\"",
    };
    out.put_slice(word);
}

/// Bytes as a string in standard base64 with padding.
pub(crate) fn base64(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u8(b'"');
    base64_part(out, bytes);
    out.put_u8(b'"');
}

/// A bytea as a string in standard base64 with padding.
pub(crate) fn base64_bytea(out: &mut BytesMut, bytes: &Bytea<'_>) {
    out.reserve(bytes.len().div_ceil(3) * 4 + 2);
    out.put_u8(b'"');
    bytes.for_each_block(|block| base64_part(out, block));
    out.put_u8(b'"');
}

fn base64_part(out: &mut BytesMut, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    // The room is exactly what base64 with padding takes.
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(text: &str) -> BytesMut {
        let mut out = BytesMut::new();
        string(&mut out, text);
        out
    }

    proptest! {
        #[test]
        fn any_text_reads_back(text in any::<String>()) {
            prop_assert_eq!(serde_json::from_slice::<String>(&written(&text)).unwrap(), text);
        }

        #[test]
        fn escaping_in_place_is_the_same(text in "[ -~\"\\\\\\x00-\\x1f\u{e9}]{0,40}") {
            let mut out = BytesMut::from(&b"before"[..]);
            string_of::<()>(&mut out, |out| { out.put_slice(text.as_bytes()); Ok(()) }).unwrap();
            prop_assert_eq!(&out[6..], &written(&text)[..]);
        }
    }

    #[test]
    fn every_byte_in_every_place_is_found() {
        for byte in 0..0x80u8 {
            for place in 0..20 {
                let mut text = "abcdefghijklmnopqrst".as_bytes().to_vec();
                text[place] = byte;
                let text = String::from_utf8(text).unwrap();
                assert_eq!(serde_json::from_slice::<String>(&written(&text)).unwrap(), text);
            }
        }
    }
}
