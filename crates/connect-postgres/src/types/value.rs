//! One decoded value, borrowed from the bytes of the wire. The same value comes out of the text and of the
//! binary form.

use bytes::{BufMut, BytesMut};

use super::array::Array;
use super::bits::Bits;
use super::bytea::Bytea;
use super::error::Malformed;
use super::hstore::Hstore;
use super::interval::Interval;
use super::money::Money;
use super::numeric::Numeric;
use super::range::RangeText;
use super::time::{Time, TimeTz};
use super::timestamp::{Date, Timestamp};
use super::{float, geometric, text, uuid, write};

/// A value that is not null.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Value<'a> {
    /// boolean
    Bool(bool),
    /// int2
    Int16(i16),
    /// int4
    Int32(i32),
    /// int8
    Int64(i64),
    /// oid
    Oid(u32),
    /// float4
    Float32(f32),
    /// float8
    Float64(f64),
    /// numeric
    Numeric(Numeric<'a>),
    /// money
    Money(Money),
    /// text, varchar, char(n), name, citext and enum labels
    Text(&'a str),
    /// "char"
    Char(u8),
    /// bytea
    Bytea(Bytea<'a>),
    /// json and jsonb
    Json(&'a str),
    /// xml
    Xml(&'a str),
    /// uuid
    Uuid([u8; 16]),
    /// date
    Date(Date),
    /// time
    Time(Time),
    /// timetz
    TimeTz(TimeTz),
    /// timestamp
    Timestamp(Timestamp),
    /// timestamptz
    TimestampTz(Timestamp),
    /// interval
    Interval(Interval),
    /// bit and varbit
    Bits(Bits<'a>),
    /// point
    Point {
        /// x
        x: f64,
        /// y
        y: f64,
    },
    /// hstore
    Hstore(Hstore<'a>),
    /// Any array.
    Array(Array<'a>),
    /// A type without a form of its own: what the server prints.
    ServerText(ServerText<'a>),
}

/// Turns the binary form of a type into the server's text.
pub(crate) type Render = fn(&[u8], &mut BytesMut) -> Result<(), Malformed>;

/// What the server prints for a value, or the bytes it can be made from.
#[derive(Debug, Clone, Copy)]
pub struct ServerText<'a>(Source<'a>);

#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    Text(&'a str),
    Binary { bytes: &'a [u8], render: Render },
    Range(RangeText<'a>),
}

impl<'a> ServerText<'a> {
    pub(crate) const fn text(text: &'a str) -> Self {
        Self(Source::Text(text))
    }

    pub(crate) const fn binary(bytes: &'a [u8], render: Render) -> Self {
        Self(Source::Binary { bytes, render })
    }

    pub(crate) const fn range(range: RangeText<'a>) -> Self {
        Self(Source::Range(range))
    }

    /// The text, when it came as text.
    pub const fn as_str(&self) -> Option<&'a str> {
        match self.0 {
            Source::Text(text) => Some(text),
            Source::Binary { .. } | Source::Range(_) => None,
        }
    }

    pub(crate) fn write(&self, out: &mut BytesMut) -> Result<(), Malformed> {
        match self.0 {
            Source::Text(text) => {
                out.put_slice(text.as_bytes());
                Ok(())
            }
            Source::Binary { bytes, render } => render(bytes, out),
            Source::Range(range) => range.write(out),
        }
    }
}

impl Value<'_> {
    /// Appends what the server prints for the value, under the settings of our sessions (UTC, ISO dates,
    /// `lc_monetary` C).
    pub(crate) fn write_server_text(&self, out: &mut BytesMut) -> Result<(), Malformed> {
        match *self {
            Self::Bool(value) => out.put_u8(if value { b't' } else { b'f' }),
            Self::Int16(value) => write::integer(out, value),
            Self::Int32(value) => write::integer(out, value),
            Self::Int64(value) => write::integer(out, value),
            Self::Oid(value) => write::integer(out, value),
            Self::Float32(value) => float::write_float4(out, value),
            Self::Float64(value) => float::write_float8(out, value),
            Self::Numeric(value) => value.write_server_text(out),
            Self::Money(value) => value.write_server_text(out),
            Self::Text(value) | Self::Json(value) | Self::Xml(value) => out.put_slice(value.as_bytes()),
            Self::Char(value) => text::write_char(out, value),
            Self::Bytea(value) => value.write_server_text(out),
            Self::Uuid(value) => uuid::write(out, &value),
            Self::Date(value) => value.write_server_text(out),
            Self::Time(value) => value.write_server_text(out),
            Self::TimeTz(value) => value.write_server_text(out),
            Self::Timestamp(value) => value.write_server_text(out, ""),
            Self::TimestampTz(value) => value.write_server_text(out, "+00"),
            Self::Interval(value) => value.write_server_text(out),
            Self::Bits(value) => value.write_digits(out),
            Self::Point { x, y } => geometric::write_point(out, x, y),
            Self::Hstore(value) => value.write_server_text(out)?,
            Self::Array(value) => value.write_server_text(out)?,
            Self::ServerText(value) => value.write(out)?,
        }
        Ok(())
    }
}
