//! Ranges and multiranges, which have no form of their own: the server's text from the binary form.
//!
//! <https://www.postgresql.org/docs/17/rangetypes.html>

use bytes::{BufMut, BytesMut};

use super::ColumnType;
use super::error::{Form, Malformed};
use super::read::Reader;
use super::write;

/// A range or multirange in binary.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeText<'a> {
    pub(super) bound: &'a ColumnType,
    pub(super) multi: bool,
    pub(super) bytes: &'a [u8],
}

const EMPTY: u8 = 0x01;
const LOWER_INCLUSIVE: u8 = 0x02;
const UPPER_INCLUSIVE: u8 = 0x04;
const LOWER_INFINITE: u8 = 0x08;
const UPPER_INFINITE: u8 = 0x10;

impl RangeText<'_> {
    pub(super) fn write(&self, out: &mut BytesMut) -> Result<(), Malformed> {
        if !self.multi {
            return write_range(self.bound, self.bytes, out);
        }
        let mut reader = Reader::new(self.bytes);
        out.put_u8(b'{');
        for index in 0..reader.count(4)? {
            if index > 0 {
                out.put_u8(b',');
            }
            write_range(self.bound, reader.sized()?.ok_or(Malformed("null range"))?, out)?;
        }
        out.put_u8(b'}');
        reader.finish()
    }
}

fn write_range(bound: &ColumnType, bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    let flags = reader.u8()?;
    if flags & EMPTY != 0 {
        out.put_slice(b"empty");
        return reader.finish();
    }
    out.put_u8(if flags & LOWER_INCLUSIVE != 0 { b'[' } else { b'(' });
    if flags & LOWER_INFINITE == 0 {
        write_bound(bound, &mut reader, out)?;
    }
    out.put_u8(b',');
    if flags & UPPER_INFINITE == 0 {
        write_bound(bound, &mut reader, out)?;
    }
    out.put_u8(if flags & UPPER_INCLUSIVE != 0 { b']' } else { b')' });
    reader.finish()
}

fn write_bound(bound: &ColumnType, reader: &mut Reader<'_>, out: &mut BytesMut) -> Result<(), Malformed> {
    let bytes = reader.sized()?.ok_or(Malformed("null bound"))?;
    let start = out.len();
    bound.decode(Form::Binary, bytes)?.write_server_text(out)?;
    let special = |byte: &u8| {
        matches!(
            byte,
            b'"' | b'\\' | b'(' | b')' | b'[' | b']' | b',' | b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C
        )
    };
    if out.len() == start || out[start..].iter().any(special) {
        write::insert_before(out, start, |byte| matches!(byte, b'"' | b'\\').then_some(byte));
        write::quote_from(out, start);
    }
    Ok(())
}
