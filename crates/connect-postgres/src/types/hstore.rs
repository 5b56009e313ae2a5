//! hstore: keys with optional values.
//!
//! <https://www.postgresql.org/docs/17/hstore.html>

use bytes::{BufMut, BytesMut};

use super::array::{quoted_end, unescape_into};
use super::error::{Form, Malformed};
use super::read::{Reader, utf8};
use super::value::Value;
use super::write;

/// Takes a key and its value.
type Pair<'p> = dyn FnMut(&str, Option<&str>) -> Result<(), Malformed> + 'p;

/// An hstore.
#[derive(Debug, Clone, Copy)]
pub struct Hstore<'a> {
    form: Form,
    bytes: &'a [u8],
}

pub(super) fn from_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Hstore(Hstore { form: Form::Text, bytes }))
}

pub(super) fn from_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Hstore(Hstore { form: Form::Binary, bytes }))
}

impl Hstore<'_> {
    /// Hands out the pairs in the server's order; a value may be null.
    pub(crate) fn for_each(&self, pair: &mut Pair<'_>) -> Result<(), Malformed> {
        match self.form {
            Form::Text => self.for_each_text(pair),
            Form::Binary => {
                let mut reader = Reader::new(self.bytes);
                for _ in 0..reader.count(8)? {
                    let key = utf8(reader.sized()?.ok_or(Malformed("null key"))?)?;
                    let value = reader.sized()?.map(utf8).transpose()?;
                    pair(key, value)?;
                }
                reader.finish()
            }
        }
    }

    fn for_each_text(&self, pair: &mut Pair<'_>) -> Result<(), Malformed> {
        let malformed = Malformed("not of the form \"key\"=>\"value\"");
        let (mut key_buffer, mut value_buffer) = (Vec::new(), Vec::new());
        let mut rest = self.bytes;
        while !rest.is_empty() {
            let (key, after) = quoted(rest, &mut key_buffer)?;
            let after = after.strip_prefix(b"=>").ok_or(malformed)?;
            rest = match after.strip_prefix(b"NULL") {
                Some(after) => {
                    pair(utf8(key)?, None)?;
                    after
                }
                None => {
                    let (value, after) = quoted(after, &mut value_buffer)?;
                    pair(utf8(key)?, Some(utf8(value)?))?;
                    after
                }
            };
            if !rest.is_empty() {
                rest = rest.strip_prefix(b", ").filter(|rest| !rest.is_empty()).ok_or(malformed)?;
            }
        }
        Ok(())
    }

    pub(super) fn write_server_text(&self, out: &mut BytesMut) -> Result<(), Malformed> {
        let mut first = true;
        self.for_each(&mut |key, value| {
            if !std::mem::take(&mut first) {
                out.put_slice(b", ");
            }
            write_quoted(out, key);
            out.put_slice(b"=>");
            match value {
                Some(value) => write_quoted(out, value),
                None => out.put_slice(b"NULL"),
            }
            Ok(())
        })
    }
}

fn quoted<'s: 'b, 'b>(bytes: &'s [u8], buffer: &'b mut Vec<u8>) -> Result<(&'b [u8], &'s [u8]), Malformed> {
    let bytes = bytes.strip_prefix(b"\"").ok_or(Malformed("quote missing"))?;
    let (end, escapes) = quoted_end(bytes)?;
    let (text, rest) = (&bytes[..end], &bytes[end + 1..]);
    if escapes {
        unescape_into(buffer, text);
        Ok((buffer, rest))
    } else {
        Ok((text, rest))
    }
}

fn write_quoted(out: &mut BytesMut, text: &str) {
    let start = out.len();
    out.put_slice(text.as_bytes());
    write::insert_before(out, start, |byte| matches!(byte, b'"' | b'\\').then_some(b'\\'));
    write::quote_from(out, start);
}
