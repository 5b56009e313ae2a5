//! Writing of numbers and quoted text into output buffers.

use bytes::{BufMut, BytesMut};

/// An integer in decimal.
#[inline]
pub(crate) fn integer<I: itoa::Integer>(out: &mut BytesMut, number: I) {
    out.put_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// A number of at least `width` digits, filled up with zeros on the left.
pub(crate) fn padded(out: &mut BytesMut, number: u64, width: usize) {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(number);
    for _ in text.len()..width {
        out.put_u8(b'0');
    }
    out.put_slice(text.as_bytes());
}

/// Two digits.
#[inline]
pub(crate) fn two(number: u32) -> [u8; 2] {
    // Both are below ten: callers pass hours, minutes, seconds, months and days.
    [b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8]
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(out: &mut BytesMut, bytes: &[u8]) {
    out.reserve(bytes.len() * 2);
    for byte in bytes {
        out.put_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

/// Grows what was written from `start` on by putting in front of bytes what `prefix` says, in place.
pub(crate) fn insert_before(out: &mut BytesMut, start: usize, prefix: impl Fn(u8) -> Option<u8>) {
    let extra = out[start..].iter().filter(|&&byte| prefix(byte).is_some()).count();
    if extra == 0 {
        return;
    }
    let mut read = out.len();
    out.resize(read + extra, 0);
    let mut write = out.len();
    while read < write {
        read -= 1;
        write -= 1;
        let byte = out[read];
        out[write] = byte;
        if let Some(prefix) = prefix(byte) {
            write -= 1;
            out[write] = prefix;
        }
    }
}

/// Puts double quotes around what was written from `start` on.
pub(crate) fn quote_from(out: &mut BytesMut, start: usize) {
    out.put_slice(b"\"\"");
    let end = out.len() - 1;
    out.copy_within(start..end - 1, start + 1);
    out[start] = b'"';
    out[end] = b'"';
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_inserted_in_place() {
        let mut out = BytesMut::from(&b"keep\"a\"b\\\""[..]);
        insert_before(&mut out, 4, |byte| matches!(byte, b'"' | b'\\').then_some(b'\\'));
        assert_eq!(&out[..], br#"keep\"a\"b\\\""#);
        quote_from(&mut out, 4);
        assert_eq!(&out[..], br#"keep"\"a\"b\\\"""#);
    }
}
