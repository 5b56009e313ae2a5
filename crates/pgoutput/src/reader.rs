//! The one place where input bytes are taken.
//!
//! A [`Reader`] knows the message it is in and how far it is, so that an error can name message, field and
//! offset. It hands out slices of the input and never allocates.

use crate::DecodeError;

const ENDS_INSIDE: &str = "the input ends inside the field";

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    message: &'static str,
    /// Length of the whole message, tag included: offsets are counted back from the end.
    length: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) const fn new(payload: &'a [u8]) -> Self {
        Self { message: "message", length: payload.len(), rest: payload }
    }

    /// From here on errors name this message.
    #[inline]
    pub(crate) const fn enter(&mut self, message: &'static str) {
        self.message = message;
    }

    /// What was not taken yet.
    #[inline]
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// What was taken since `earlier`, a former [`rest`](Self::rest) of this reader.
    #[inline]
    pub(crate) fn taken_since(&self, earlier: &'a [u8]) -> &'a [u8] {
        earlier.get(..earlier.len().saturating_sub(self.rest.len())).unwrap_or_default()
    }

    /// An error about a field that begins at the current position.
    #[cold]
    pub(crate) const fn error(&self, field: &'static str, reason: &'static str) -> DecodeError {
        let offset = self.length.saturating_sub(self.rest.len());
        DecodeError { message: self.message, field, offset, reason, found: None }
    }

    /// An error about the byte just taken.
    #[cold]
    pub(crate) const fn wrong_byte(
        &self,
        field: &'static str,
        reason: &'static str,
        found: u8,
    ) -> DecodeError {
        let error = self.error(field, reason);
        DecodeError { offset: error.offset.saturating_sub(1), found: Some(found), ..error }
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Err(self.error(field, ENDS_INSIDE)),
        }
    }

    #[inline]
    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.array(field).map(i32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.array(field).map(u64::from_be_bytes)
    }

    #[inline]
    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.array(field).map(i64::from_be_bytes)
    }

    /// The xid that every relation, type and change carries between Stream Start and Stream Stop.
    #[inline]
    pub(crate) fn xid_in_stream(&mut self, in_stream: bool) -> Result<Option<u32>, DecodeError> {
        if in_stream { self.u32("xid").map(Some) } else { Ok(None) }
    }

    /// `length` bytes: the length is compared with what there is before anything is done with it.
    #[inline]
    pub(crate) fn bytes(&mut self, length: u32, field: &'static str) -> Result<&'a [u8], DecodeError> {
        match usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length)) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(self.error(field, ENDS_INSIDE)),
        }
    }

    /// A text that ends with a zero byte, without that byte.
    pub(crate) fn text(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let Some(end) = self.rest.iter().position(|&byte| byte == 0) else {
            return Err(self.error(field, "the input ends before the text's zero byte"));
        };
        let Some((text, [_, rest @ ..])) = self.rest.split_at_checked(end) else {
            return Err(self.error(field, ENDS_INSIDE));
        };
        let Ok(text) = core::str::from_utf8(text) else {
            return Err(self.error(field, "the text is not UTF-8 (set client_encoding to UTF8)"));
        };
        self.rest = rest;
        Ok(text)
    }

    /// A byte of flags of which only the bits in `known` may be set.
    pub(crate) fn flags(&mut self, known: u8, field: &'static str) -> Result<u8, DecodeError> {
        let flags = self.u8(field)?;
        if flags & !known == 0 { Ok(flags) } else { Err(self.wrong_byte(field, "unknown flags", flags)) }
    }

    /// A byte that must be the given one.
    #[inline]
    pub(crate) fn expect_byte(&mut self, expected: u8, field: &'static str) -> Result<(), DecodeError> {
        let found = self.u8(field)?;
        if found == expected { Ok(()) } else { Err(self.wrong_byte(field, "unexpected byte", found)) }
    }

    /// Nothing may be left.
    #[inline]
    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.error("end", "bytes after the message")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_big_endian_and_signed_where_said() {
        let bytes: Vec<u8> = (1..=14).chain([255; 12]).collect();
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.u16("a"), Ok(0x0102));
        assert_eq!(reader.u32("b"), Ok(0x0304_0506));
        assert_eq!(reader.u64("c"), Ok(0x0708_090a_0b0c_0d0e));
        assert_eq!(reader.i64("d"), Ok(-1));
        assert_eq!(reader.i32("e"), Ok(-1));
        assert_eq!(reader.finish(), Ok(()));
        assert_eq!(reader.u8("f").unwrap_err().offset, 26);
    }

    #[test]
    fn a_failed_read_takes_nothing_and_names_the_place() {
        let mut reader = Reader::new(&[b'B', 0, 0]);
        reader.enter("Begin");
        assert_eq!(reader.u8("tag"), Ok(b'B'));
        let error = reader.u64("final lsn").unwrap_err();
        assert_eq!((error.message, error.field, error.offset), ("Begin", "final lsn", 1));
        assert_eq!(reader.rest(), &[0, 0]);
        assert_eq!(reader.finish().unwrap_err().offset, 1);
    }

    #[test]
    fn text_ends_at_its_zero_byte_and_is_utf8() {
        let mut reader = Reader::new(b"\xc3\xa4\0\0x");
        assert_eq!(reader.text("name"), Ok("ä"));
        assert_eq!(reader.text("name"), Ok(""));
        assert_eq!(reader.text("name").unwrap_err().offset, 4);
        let error = Reader::new(b"\xff\0").text("name").unwrap_err();
        assert!(error.reason.contains("UTF-8"), "{error}");
    }

    #[test]
    fn a_length_beyond_the_input_is_an_error() {
        let mut reader = Reader::new(b"abc");
        assert!(reader.bytes(u32::MAX, "value").is_err());
        assert!(reader.bytes(4, "value").is_err());
        assert_eq!(reader.bytes(3, "value"), Ok(&b"abc"[..]));
    }

    #[test]
    fn unknown_flags_name_the_byte() {
        let error = Reader::new(&[4]).flags(3, "flags").unwrap_err();
        assert_eq!((error.offset, error.found), (0, Some(4)));
        assert_eq!(Reader::new(&[2]).flags(3, "flags"), Ok(2));
    }
}
