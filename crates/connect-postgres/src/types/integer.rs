//! boolean, int2, int4, int8, oid; and the unsigned numbers that are shown as the server's text: xid, cid, xid8.
//!
//! <https://www.postgresql.org/docs/17/datatype-numeric.html>

use bytes::BytesMut;

use super::error::Malformed;
use super::read::{digits, exact, signed};
use super::value::Value;
use super::write;

const RANGE: Malformed = Malformed("number out of range");

pub(super) fn bool_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    match bytes {
        b"t" => Ok(Value::Bool(true)),
        b"f" => Ok(Value::Bool(false)),
        _ => Err(Malformed("neither t nor f")),
    }
}

pub(super) fn bool_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    match bytes {
        [0] => Ok(Value::Bool(false)),
        [1] => Ok(Value::Bool(true)),
        _ => Err(Malformed("neither 0 nor 1")),
    }
}

pub(super) fn int2_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Int16(i16::try_from(signed(bytes)?).map_err(|_| RANGE)?))
}

pub(super) fn int2_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Int16(i16::from_be_bytes(exact(bytes)?)))
}

pub(super) fn int4_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Int32(i32::try_from(signed(bytes)?).map_err(|_| RANGE)?))
}

pub(super) fn int4_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Int32(i32::from_be_bytes(exact(bytes)?)))
}

pub(super) fn int8_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Int64(signed(bytes)?))
}

pub(super) fn int8_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Int64(i64::from_be_bytes(exact(bytes)?)))
}

pub(super) fn oid_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Oid(u32::try_from(digits(bytes)?).map_err(|_| RANGE)?))
}

pub(super) fn oid_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Oid(u32::from_be_bytes(exact(bytes)?)))
}

/// xid, cid
pub(super) fn render_u32(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    write::integer(out, u32::from_be_bytes(exact(bytes)?));
    Ok(())
}

/// xid8
pub(super) fn render_u64(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    write::integer(out, u64::from_be_bytes(exact(bytes)?));
    Ok(())
}
