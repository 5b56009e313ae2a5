//! Takes fields off the front of a message body; every shortage is an error that names the field.

use crate::Error;

pub(crate) struct Cursor<'a> {
    message: &'static str,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(message: &'static str, body: &'a [u8]) -> Self {
        Self { message, rest: body }
    }

    fn short(&self, field: &str) -> Error {
        Error::protocol(format!("{} ends inside its field {field}", self.message))
    }

    fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N], Error> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.short(field))?;
        self.rest = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self, field: &str) -> Result<u8, Error> {
        Ok(u8::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn u16(&mut self, field: &str) -> Result<u16, Error> {
        Ok(u16::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn i32(&mut self, field: &str) -> Result<i32, Error> {
        Ok(i32::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn u64(&mut self, field: &str) -> Result<u64, Error> {
        Ok(u64::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn i64(&mut self, field: &str) -> Result<i64, Error> {
        Ok(i64::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn bytes(&mut self, count: usize, field: &str) -> Result<&'a [u8], Error> {
        let (head, tail) = self.rest.split_at_checked(count).ok_or_else(|| self.short(field))?;
        self.rest = tail;
        Ok(head)
    }

    /// A string ended by a zero byte.
    pub(crate) fn cstr(&mut self, field: &str) -> Result<&'a [u8], Error> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or_else(|| self.short(field))?;
        let text = self.bytes(end, field)?;
        self.u8(field)?;
        Ok(text)
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The whole body must have been taken.
    pub(crate) fn end(&self) -> Result<(), Error> {
        match self.rest.len() {
            0 => Ok(()),
            extra => {
                Err(Error::protocol(format!("{} has bytes after its last field: {extra}", self.message)))
            }
        }
    }
}
