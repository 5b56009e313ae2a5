//! point, and the server's text of line, lseg, box, path, polygon and circle.
//!
//! <https://www.postgresql.org/docs/17/datatype-geometric.html>

use bytes::{BufMut, BytesMut};

use super::error::Malformed;
use super::float::{parse_float8, write_float8};
use super::read::Reader;
use super::value::Value;

/// Two float8.
const POINT_LEN: usize = 16;

pub(super) fn point_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let malformed = Malformed("not of the form (x,y)");
    let [b'(', inner @ .., b')'] = bytes else { return Err(malformed) };
    let comma = inner.iter().position(|&byte| byte == b',').ok_or(malformed)?;
    Ok(Value::Point { x: parse_float8(&inner[..comma])?, y: parse_float8(&inner[comma + 1..])? })
}

pub(super) fn point_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let (x, y) = (reader.f64()?, reader.f64()?);
    reader.finish()?;
    Ok(Value::Point { x, y })
}

pub(crate) fn write_point(out: &mut BytesMut, x: f64, y: f64) {
    out.put_u8(b'(');
    write_float8(out, x);
    out.put_u8(b',');
    write_float8(out, y);
    out.put_u8(b')');
}

fn render_points(reader: &mut Reader<'_>, count: usize, out: &mut BytesMut) -> Result<(), Malformed> {
    for index in 0..count {
        if index > 0 {
            out.put_u8(b',');
        }
        write_point(out, reader.f64()?, reader.f64()?);
    }
    Ok(())
}

pub(super) fn render_line(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    for open in [b'{', b',', b','] {
        out.put_u8(open);
        write_float8(out, reader.f64()?);
    }
    out.put_u8(b'}');
    reader.finish()
}

pub(super) fn render_lseg(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    out.put_u8(b'[');
    render_points(&mut reader, 2, out)?;
    out.put_u8(b']');
    reader.finish()
}

pub(super) fn render_box(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    render_points(&mut reader, 2, out)?;
    reader.finish()
}

pub(super) fn render_path(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    let (open, close) = if reader.u8()? == 0 { (b'[', b']') } else { (b'(', b')') };
    let count = reader.count(POINT_LEN)?;
    out.put_u8(open);
    render_points(&mut reader, count, out)?;
    out.put_u8(close);
    reader.finish()
}

pub(super) fn render_polygon(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    let count = reader.count(POINT_LEN)?;
    out.put_u8(b'(');
    render_points(&mut reader, count, out)?;
    out.put_u8(b')');
    reader.finish()
}

pub(super) fn render_circle(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    out.put_u8(b'<');
    render_points(&mut reader, 1, out)?;
    out.put_u8(b',');
    write_float8(out, reader.f64()?);
    out.put_u8(b'>');
    reader.finish()
}
