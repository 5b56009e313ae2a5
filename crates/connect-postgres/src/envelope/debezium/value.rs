//! Values in Debezium's JSON, all modes at their defaults: decimals as base64 of the unscaled integer, times as
//! counts since 1970, bytes as base64, JSON as a string.

use bytes::{BufMut, BytesMut};

use super::super::format::{Held, ValueFormat, write_array};
use super::super::json;
use crate::types::calendar::FractionDigits;
use crate::types::{
    ColumnType, Date, Decimal, Hstore, Infinity, Interval, Kind, Malformed, Money, Numeric, Time, TimeTz,
    Timestamp, Value, declared_scale, uuid, write,
};

/// What is configured about values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Values {
    /// Digits after the point of the server's money.
    pub(super) money_server_digits: u32,
    /// Digits after the point in the record.
    pub(super) money_digits: u32,
}

/// What Debezium writes for the infinities of timestamps.
const POSITIVE_INFINITY: i64 = 9_223_372_036_825_200_000;
const NEGATIVE_INFINITY: i64 = -9_223_372_036_832_400_000;

impl ValueFormat for Values {
    #[inline]
    fn write(
        &self,
        out: &mut BytesMut,
        column_type: &ColumnType,
        value: &Value<'_>,
    ) -> Result<Held, Malformed> {
        match value {
            Value::Bool(value) => out.put_slice(if *value { b"true" } else { b"false" }),
            Value::Int16(value) => write::integer(out, *value),
            Value::Int32(value) => write::integer(out, *value),
            Value::Int64(value) => write::integer(out, *value),
            Value::Oid(value) => write::integer(out, *value),
            Value::Float32(value) => json::float32(out, *value),
            Value::Float64(value) => json::float64(out, *value),
            Value::Text(value) | Value::Json(value) | Value::Xml(value) => json::string(out, value),
            Value::Numeric(value) => return Ok(numeric(out, value, column_type.typmod())),
            Value::Money(value) => return Ok(self.money(out, *value)),
            Value::Bytea(value) => json::base64_bytea(out, value),
            Value::Uuid(value) => {
                out.put_u8(b'"');
                uuid::write(out, value);
                out.put_u8(b'"');
            }
            Value::Date(value) => date(out, *value),
            Value::Time(value) => return Ok(time(out, *value, column_type.typmod())),
            Value::TimeTz(value) => timetz(out, *value),
            Value::Timestamp(value) => return Ok(timestamp(out, *value, column_type.typmod())),
            Value::TimestampTz(value) => timestamptz(out, *value, column_type.typmod()),
            Value::Interval(value) => return Ok(interval(out, *value)),
            Value::Bits(value) => {
                if column_type.typmod() == 1 {
                    return Ok(match (value.len(), value.bit(0)) {
                        (1, Some(bit)) => {
                            out.put_slice(if bit { b"true" } else { b"false" });
                            Held::Whole
                        }
                        _ => null(out),
                    });
                }
                let mut bytes = Vec::with_capacity(value.len().div_ceil(8));
                value.write_little_endian(&mut bytes);
                json::base64(out, &bytes);
            }
            Value::Point { x, y } => point(out, *x, *y),
            Value::Hstore(value) => hstore(out, value)?,
            Value::Array(array) => {
                return write_array(out, array, |out, column_type, value| {
                    self.write(out, column_type, value)
                });
            }
            Value::Char(_) | Value::ServerText(_) => {
                json::string_of(out, |out| value.write_server_text(out))?
            }
        }
        Ok(Held::Whole)
    }

    fn fix_for_key(&self) -> &'static str {
        "use envelope.type = \"flat\", which writes such values as text"
    }
}

impl Values {
    fn money(&self, out: &mut BytesMut, money: Money) -> Held {
        match money.rescaled(self.money_server_digits, self.money_digits) {
            Some(unscaled) => {
                crate::types::Unscaled::Small(unscaled).with_bytes(|bytes| json::base64(out, bytes));
                Held::Whole
            }
            None => null(out),
        }
    }
}

fn null(out: &mut BytesMut) -> Held {
    out.put_slice(b"null");
    Held::InPart
}

fn numeric(out: &mut BytesMut, numeric: &Numeric<'_>, typmod: i32) -> Held {
    let Numeric::Finite(decimal) = numeric else { return null(out) };
    match declared_scale(typmod) {
        Some(scale) => unscaled(out, decimal, scale),
        None => {
            let scale = decimal.significant_scale();
            out.put_slice(b"{\"scale\":");
            write::integer(out, scale);
            out.put_slice(b",\"value\":");
            // Lossless: at most 16383 digits after the point.
            let held = unscaled(out, decimal, scale as i32);
            out.put_u8(b'}');
            held
        }
    }
}

fn unscaled(out: &mut BytesMut, decimal: &Decimal<'_>, scale: i32) -> Held {
    match decimal.unscaled(scale) {
        Some(unscaled) => {
            unscaled.with_bytes(|bytes| json::base64(out, bytes));
            Held::Whole
        }
        None => null(out),
    }
}

fn date(out: &mut BytesMut, date: Date) {
    match (date.infinity(), date.unix_days()) {
        (Some(Infinity::Negative), _) => write::integer(out, i32::MIN),
        (Some(Infinity::Positive), _) | (None, None) => write::integer(out, i32::MAX),
        (None, Some(days)) => write::integer(out, days),
    }
}

/// Precisions up to three digits are milliseconds.
fn is_milliseconds(typmod: i32) -> bool {
    (0..=3).contains(&typmod)
}

fn time(out: &mut BytesMut, Time(us): Time, typmod: i32) -> Held {
    if !is_milliseconds(typmod) {
        write::integer(out, us);
    } else if us % 1000 == 0 {
        write::integer(out, us / 1000);
    } else {
        return null(out);
    }
    Held::Whole
}

fn timetz(out: &mut BytesMut, time: TimeTz) {
    out.put_u8(b'"');
    Time(time.utc_us()).write_server_text(out);
    out.put_slice(b"Z\"");
}

fn timestamp(out: &mut BytesMut, timestamp: Timestamp, typmod: i32) -> Held {
    match timestamp.infinity() {
        Some(Infinity::Positive) => write::integer(out, POSITIVE_INFINITY),
        Some(Infinity::Negative) => write::integer(out, NEGATIVE_INFINITY),
        None if is_milliseconds(typmod) => match timestamp.unix_ms() {
            Some(ms) => write::integer(out, ms),
            None => return null(out),
        },
        None => match timestamp.unix_us() {
            Some(us) => write::integer(out, us),
            None => return null(out),
        },
    }
    Held::Whole
}

fn timestamptz(out: &mut BytesMut, timestamp: Timestamp, typmod: i32) {
    let fraction = match usize::try_from(typmod) {
        Ok(0) => FractionDigits::Needed,
        Ok(digits) => FractionDigits::Fixed(digits),
        Err(_) => FractionDigits::Fixed(6),
    };
    out.put_u8(b'"');
    timestamp.write_iso(out, fraction, "Z");
    out.put_u8(b'"');
}

fn interval(out: &mut BytesMut, interval: Interval) -> Held {
    match interval.total_us() {
        Some(us) => {
            write::integer(out, us);
            Held::Whole
        }
        None => null(out),
    }
}

/// A point with its little-endian well-known binary.
fn point(out: &mut BytesMut, x: f64, y: f64) {
    let mut wkb = [0u8; 21];
    wkb[..5].copy_from_slice(&[1, 1, 0, 0, 0]);
    wkb[5..13].copy_from_slice(&x.to_le_bytes());
    wkb[13..].copy_from_slice(&y.to_le_bytes());
    out.put_slice(b"{\"x\":");
    json::float64(out, x);
    out.put_slice(b",\"y\":");
    json::float64(out, y);
    out.put_slice(b",\"wkb\":");
    json::base64(out, &wkb);
    out.put_slice(b",\"srid\":null}");
}

/// A JSON object inside a JSON string.
fn hstore(out: &mut BytesMut, hstore: &Hstore<'_>) -> Result<(), Malformed> {
    json::string_of(out, |out| super::super::hstore_object(out, hstore))
}

/// What Debezium writes for a NOT NULL column of an old row that the server did not send: a zero of the type.
pub(super) fn filler(column_type: &ColumnType) -> &'static [u8] {
    match column_type.kind() {
        Kind::Bool => b"false",
        Kind::Integer | Kind::Date | Kind::Time | Kind::Timestamp | Kind::Interval => b"0",
        Kind::Float => b"0.0",
        Kind::Numeric if declared_scale(column_type.typmod()).is_none() => {
            b"{\"scale\":0,\"value\":\"AA==\"}"
        }
        Kind::Numeric | Kind::Money => b"\"AA==\"",
        Kind::Bits if column_type.typmod() == 1 => b"false",
        Kind::TimestampTz => b"\"1970-01-01T00:00:00Z\"",
        Kind::TimeTz => b"\"00:00:00Z\"",
        Kind::Point => b"{\"x\":0.0,\"y\":0.0,\"wkb\":null,\"srid\":null}",
        Kind::Array => b"[]",
        _ => b"\"\"",
    }
}
