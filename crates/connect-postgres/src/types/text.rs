//! Types whose value is text: text, varchar, char(n), name, citext, enum labels, json, jsonb, xml, "char"; and
//! the ones that send a version byte before their text (jsonb, jsonpath, ltree).
//!
//! <https://www.postgresql.org/docs/17/datatype-character.html>

use bytes::{BufMut, BytesMut};

use super::error::Malformed;
use super::read::utf8;
use super::value::{ServerText, Value};

/// text, varchar, char(n), name, citext, enums: both forms are the text itself.
pub(super) fn text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Text(utf8(bytes)?))
}

/// json: both forms are the text itself. jsonb: text form.
pub(super) fn json(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Json(utf8(bytes)?))
}

/// jsonb: binary form.
pub(super) fn jsonb_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Json(versioned(bytes)?))
}

/// xml: both forms are the text itself; with `client_encoding` UTF8 neither declares an encoding.
pub(super) fn xml(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Xml(utf8(bytes)?))
}

/// "char", text form: one byte, nothing for zero, and `\ooo` above 127 (the bare byte before PostgreSQL 15).
pub(super) fn char_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let octal = |digit: u8, max: u8| digit.checked_sub(b'0').filter(|&value| value <= max);
    match *bytes {
        [] => Ok(Value::Char(0)),
        [byte] => Ok(Value::Char(byte)),
        [b'\\', high, middle, low] => match (octal(high, 3), octal(middle, 7), octal(low, 7)) {
            (Some(high), Some(middle), Some(low)) => Ok(Value::Char(high << 6 | middle << 3 | low)),
            _ => Err(Malformed("not one byte")),
        },
        _ => Err(Malformed("not one byte")),
    }
}

/// "char", binary form.
pub(super) fn char_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    match *bytes {
        [byte] => Ok(Value::Char(byte)),
        _ => Err(Malformed("not one byte")),
    }
}

/// What the server prints for a "char", from PostgreSQL 15 on.
pub(crate) fn write_char(out: &mut BytesMut, byte: u8) {
    match byte {
        0 => {}
        1..=127 => out.put_u8(byte),
        _ => out.put_slice(&[b'\\', b'0' + (byte >> 6), b'0' + (byte >> 3 & 7), b'0' + (byte & 7)]),
    }
}

/// The text form of every type without a value of its own.
pub(super) fn server_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::ServerText(ServerText::text(utf8(bytes)?)))
}

/// A type whose binary form is its text (refcursor).
pub(super) fn render_text(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    out.put_slice(utf8(bytes)?.as_bytes());
    Ok(())
}

/// jsonpath, ltree, lquery, ltxtquery: binary form.
pub(super) fn render_versioned(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    out.put_slice(versioned(bytes)?.as_bytes());
    Ok(())
}

fn versioned(bytes: &[u8]) -> Result<&str, Malformed> {
    match bytes.split_first() {
        Some((1, text)) => utf8(text),
        Some(_) => Err(Malformed("unknown version byte")),
        None => Err(Malformed("too short")),
    }
}
