//! Rust types that a column can be read as.

use bytes::{Bytes, BytesMut};

use crate::envelope::readable_json;
use crate::types::{Bytea, Date, Interval, Money, Numeric, Time, TimeTz, Timestamp, Value, uuid};

/// A Rust type that values can be read as.
///
/// | Rust type | PostgreSQL types |
/// |---|---|
/// | `bool` | boolean |
/// | `i16`, `i32`, `i64` | int2, int4, int8 where it fits by type; `i64` also oid |
/// | `u32` | oid |
/// | `f32`, `f64` | float4; `f64` also float8 |
/// | `&str` | text, varchar, char(n), name, citext, enums, json, jsonb, xml; any type that has no value of its own, when it came as text. Nothing is copied |
/// | `String` | every type: what the server prints |
/// | `Vec<u8>`, `Bytes` | bytea |
/// | `[u8; 16]` | uuid |
/// | [`Numeric`], [`Date`], [`Time`], [`TimeTz`], [`Timestamp`], [`Interval`], [`Money`], [`Bytea`] | numeric; date; time; timetz; timestamp and timestamptz; interval; money; bytea |
/// | `serde_json::Value` | every type, as in the flat envelope; json and jsonb as what they hold |
/// | [`Value`] | every type |
pub trait FromValue<'a>: Sized {
    /// The value as this type; `None` when it is not of a type that fits.
    fn from_value(value: Value<'a>) -> Option<Self>;
}

/// Implements [`FromValue`] by one pattern per type.
macro_rules! from_value {
    ($($rust:ty { $($pattern:pat => $value:expr),+ $(,)? })+) => {
        $(impl<'a> FromValue<'a> for $rust {
            fn from_value(value: Value<'a>) -> Option<Self> {
                match value {
                    $($pattern => $value,)+
                    _ => None,
                }
            }
        })+
    };
}

from_value! {
    bool { Value::Bool(value) => Some(value) }
    i16 { Value::Int16(value) => Some(value) }
    i32 { Value::Int32(value) => Some(value), Value::Int16(value) => Some(value.into()) }
    i64 {
        Value::Int64(value) => Some(value),
        Value::Int32(value) => Some(value.into()),
        Value::Int16(value) => Some(value.into()),
        Value::Oid(value) => Some(value.into()),
    }
    u32 { Value::Oid(value) => Some(value) }
    f32 { Value::Float32(value) => Some(value) }
    f64 { Value::Float64(value) => Some(value), Value::Float32(value) => Some(value.into()) }
    &'a str {
        Value::Text(value) | Value::Json(value) | Value::Xml(value) => Some(value),
        Value::ServerText(value) => value.as_str(),
    }
    Vec<u8> { Value::Bytea(value) => Some(value.to_vec()) }
    Bytes { Value::Bytea(value) => Some(value.to_vec().into()) }
    Bytea<'a> { Value::Bytea(value) => Some(value) }
    [u8; 16] { Value::Uuid(value) => Some(value) }
    Numeric<'a> { Value::Numeric(value) => Some(value) }
    Money { Value::Money(value) => Some(value) }
    Date { Value::Date(value) => Some(value) }
    Time { Value::Time(value) => Some(value) }
    TimeTz { Value::TimeTz(value) => Some(value) }
    Timestamp { Value::Timestamp(value) | Value::TimestampTz(value) => Some(value) }
    Interval { Value::Interval(value) => Some(value) }
}

impl<'a> FromValue<'a> for Value<'a> {
    fn from_value(value: Value<'a>) -> Option<Self> {
        Some(value)
    }
}

impl<'a> FromValue<'a> for String {
    fn from_value(value: Value<'a>) -> Option<Self> {
        if let Value::Uuid(uuid) = value {
            return Some(uuid::format(&uuid).iter().copied().map(char::from).collect());
        }
        let mut out = BytesMut::new();
        value.write_server_text(&mut out).ok()?;
        Self::from_utf8(out.into()).ok()
    }
}

impl<'a> FromValue<'a> for serde_json::Value {
    fn from_value(value: Value<'a>) -> Option<Self> {
        let json = readable_json(&value)?;
        serde_json::from_slice(&json).ok()
    }
}
