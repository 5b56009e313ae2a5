//! Server text of the server's own types from their binary forms: tid, `pg_lsn`, snapshots, int2vector and
//! oidvector.
//!
//! <https://www.postgresql.org/docs/17/datatype-oid.html>

use bytes::{BufMut, BytesMut};

use super::error::Malformed;
use super::read::{Reader, exact};
use super::write;

pub(super) fn render_tid(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    let (block, offset) = (reader.u32()?, reader.u16()?);
    reader.finish()?;
    out.put_u8(b'(');
    write::integer(out, block);
    out.put_u8(b',');
    write::integer(out, offset);
    out.put_u8(b')');
    Ok(())
}

pub(super) fn render_pg_lsn(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    let lsn = crabka_pgrepl::Lsn::new(u64::from_be_bytes(exact(bytes)?));
    out.put_slice(lsn.to_string().as_bytes());
    Ok(())
}

/// `xmin:xmax:xip,xip`
pub(super) fn render_snapshot(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    let running = reader.count(8)?;
    write::integer(out, reader.u64()?);
    out.put_u8(b':');
    write::integer(out, reader.u64()?);
    out.put_u8(b':');
    for index in 0..running {
        if index > 0 {
            out.put_u8(b',');
        }
        write::integer(out, reader.u64()?);
    }
    reader.finish()
}

pub(super) fn render_int2vector(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    render_vector(bytes, out, |element, out| {
        write::integer(out, i16::from_be_bytes(exact(element)?));
        Ok(())
    })
}

pub(super) fn render_oidvector(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    render_vector(bytes, out, |element, out| {
        write::integer(out, u32::from_be_bytes(exact(element)?));
        Ok(())
    })
}

/// Sent as an array of one dimension, printed with blanks in between.
fn render_vector(
    bytes: &[u8],
    out: &mut BytesMut,
    render: fn(&[u8], &mut BytesMut) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    let dimensions = reader.i32()?;
    let (_has_nulls, _element) = (reader.i32()?, reader.u32()?);
    if dimensions == 0 {
        return reader.finish();
    }
    if dimensions != 1 {
        return Err(Malformed("more than one dimension"));
    }
    let length = reader.i32()?;
    let _lower_bound = reader.i32()?;
    for index in 0..length {
        if index > 0 {
            out.put_u8(b' ');
        }
        render(reader.sized()?.ok_or(Malformed("null element"))?, out)?;
    }
    reader.finish()
}
