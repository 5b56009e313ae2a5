//! Values in readable JSON.

use bytes::{BufMut, BytesMut};

use super::super::format::{Held, write_array};
use super::super::json;
use super::embed;
use crate::types::calendar::FractionDigits;
use crate::types::{Date, Malformed, Numeric, Value, uuid, write};

/// Appends a value; money has `money_digits` after its point.
pub(in crate::envelope) fn write_value(
    out: &mut BytesMut,
    value: &Value<'_>,
    money_digits: u32,
) -> Result<Held, Malformed> {
    match value {
        Value::Bool(value) => out.put_slice(if *value { b"true" } else { b"false" }),
        Value::Int16(value) => write::integer(out, *value),
        Value::Int32(value) => write::integer(out, *value),
        Value::Int64(value) => write::integer(out, *value),
        Value::Oid(value) => write::integer(out, *value),
        Value::Float32(value) => json::float32(out, *value),
        Value::Float64(value) => json::float64(out, *value),
        Value::Text(value) | Value::Xml(value) => json::string(out, value),
        Value::Json(value) => return embed::write(out, value),
        Value::Numeric(value) => numeric(out, value),
        Value::Money(value) => in_quotes(out, |out| value.write_decimal(out, money_digits)),
        Value::Bytea(value) => json::base64_bytea(out, value),
        Value::Uuid(value) => in_quotes(out, |out| uuid::write(out, value)),
        Value::Date(value) => in_quotes(out, |out| date(out, *value)),
        Value::Time(value) => in_quotes(out, |out| value.write_server_text(out)),
        Value::TimeTz(value) => in_quotes(out, |out| value.write_server_text(out)),
        Value::Timestamp(value) => in_quotes(out, |out| value.write_iso(out, FractionDigits::Needed, "")),
        Value::TimestampTz(value) => in_quotes(out, |out| value.write_iso(out, FractionDigits::Needed, "Z")),
        Value::Interval(value) => in_quotes(out, |out| value.write_iso(out)),
        Value::Bits(value) => in_quotes(out, |out| value.write_digits(out)),
        Value::Point { x, y } => {
            out.put_slice(b"{\"x\":");
            json::float64(out, *x);
            out.put_slice(b",\"y\":");
            json::float64(out, *y);
            out.put_u8(b'}');
        }
        Value::Hstore(value) => super::super::hstore_object(out, value)?,
        Value::Array(array) => {
            return write_array(out, array, |out, _, value| write_value(out, value, money_digits));
        }
        Value::Char(_) | Value::ServerText(_) => json::string_of(out, |out| value.write_server_text(out))?,
    }
    Ok(Held::Whole)
}

/// For text that needs no escapes.
fn in_quotes(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    out.put_u8(b'"');
    write(out);
    out.put_u8(b'"');
}

fn numeric(out: &mut BytesMut, numeric: &Numeric<'_>) {
    in_quotes(out, |out| numeric.write_server_text(out));
}

fn date(out: &mut BytesMut, date: Date) {
    match date.infinity() {
        Some(infinity) => out.put_slice(infinity.as_str().as_bytes()),
        None => date.civil().write_iso(out),
    }
}
