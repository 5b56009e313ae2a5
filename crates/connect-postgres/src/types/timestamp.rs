//! date, timestamp and timestamptz: days and microseconds from 2000-01-01, with infinities.
//!
//! <https://www.postgresql.org/docs/17/datatype-datetime.html>

use bytes::{BufMut, BytesMut};

use super::calendar::{
    Civil, DAY_US, EPOCH_DAYS, EPOCH_US, FractionDigits, SECOND_US, parse_clock, parse_offset, write_clock,
};
use super::error::Malformed;
use super::read::exact;
use super::value::Value;

/// Days from 2000-01-01; the extreme values are the infinities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date(pub i32);

/// Microseconds from 2000-01-01 00:00:00 (of UTC for timestamptz); the extreme values are the infinities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

/// Which infinity a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Infinity {
    /// `infinity`
    Positive,
    /// `-infinity`
    Negative,
}

impl Infinity {
    /// As the server prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Positive => "infinity",
            Self::Negative => "-infinity",
        }
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes {
            b"infinity" => Some(Self::Positive),
            b"-infinity" => Some(Self::Negative),
            _ => None,
        }
    }
}

const RANGE: Malformed = Malformed("date out of range");

pub(super) fn date_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let date = match Infinity::parse(bytes) {
        Some(Infinity::Positive) => Date(i32::MAX),
        Some(Infinity::Negative) => Date(i32::MIN),
        None => {
            let (bytes, before_christ) = strip_era(bytes);
            let (civil, rest) = Civil::parse(bytes, before_christ)?;
            if !rest.is_empty() {
                return Err(Malformed("too long"));
            }
            Date(i32::try_from(civil.to_days()).map_err(|_| RANGE)?)
        }
    };
    Ok(Value::Date(date))
}

pub(super) fn date_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Date(Date(i32::from_be_bytes(exact(bytes)?))))
}

pub(super) fn timestamp_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Timestamp(parse_timestamp(bytes, false)?))
}

pub(super) fn timestamp_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Timestamp(Timestamp(i64::from_be_bytes(exact(bytes)?))))
}

pub(super) fn timestamptz_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::TimestampTz(parse_timestamp(bytes, true)?))
}

pub(super) fn timestamptz_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::TimestampTz(Timestamp(i64::from_be_bytes(exact(bytes)?))))
}

fn strip_era(bytes: &[u8]) -> (&[u8], bool) {
    match bytes.strip_suffix(b" BC") {
        Some(rest) => (rest, true),
        None => (bytes, false),
    }
}

fn parse_timestamp(bytes: &[u8], with_zone: bool) -> Result<Timestamp, Malformed> {
    match Infinity::parse(bytes) {
        Some(Infinity::Positive) => return Ok(Timestamp(i64::MAX)),
        Some(Infinity::Negative) => return Ok(Timestamp(i64::MIN)),
        None => {}
    }
    let (bytes, before_christ) = strip_era(bytes);
    let (civil, rest) = Civil::parse(bytes, before_christ)?;
    let rest = rest.strip_prefix(b" ").ok_or(Malformed("time missing"))?;
    let (clock_us, rest) = parse_clock(rest)?;
    let (offset_s, rest) = if with_zone { parse_offset(rest)? } else { (0, rest) };
    if !rest.is_empty() {
        return Err(Malformed("too long"));
    }
    let us = civil
        .to_days()
        .checked_mul(DAY_US)
        .and_then(|us| us.checked_add(clock_us))
        .and_then(|us| us.checked_sub(i64::from(offset_s) * SECOND_US))
        .ok_or(RANGE)?;
    Ok(Timestamp(us))
}

impl Date {
    /// Which infinity it is, if it is one.
    pub fn infinity(self) -> Option<Infinity> {
        match self.0 {
            i32::MAX => Some(Infinity::Positive),
            i32::MIN => Some(Infinity::Negative),
            _ => None,
        }
    }

    /// Days from 1970-01-01; `None` for the infinities.
    pub fn unix_days(self) -> Option<i64> {
        self.infinity().is_none().then(|| i64::from(self.0) + i64::from(EPOCH_DAYS))
    }

    pub(crate) fn civil(self) -> Civil {
        Civil::from_days(i64::from(self.0))
    }

    pub(crate) fn write_server_text(self, out: &mut BytesMut) {
        if let Some(infinity) = self.infinity() {
            return out.put_slice(infinity.as_str().as_bytes());
        }
        let civil = self.civil();
        civil.write(out);
        write_era(out, civil);
    }
}

impl Timestamp {
    /// Which infinity it is, if it is one.
    pub fn infinity(self) -> Option<Infinity> {
        match self.0 {
            i64::MAX => Some(Infinity::Positive),
            i64::MIN => Some(Infinity::Negative),
            _ => None,
        }
    }

    /// Microseconds from 1970-01-01 00:00:00; `None` for the infinities and for the last years before 294277,
    /// which are beyond 64 bits.
    pub fn unix_us(self) -> Option<i64> {
        if self.infinity().is_some() { None } else { self.0.checked_add(EPOCH_US) }
    }

    /// Milliseconds from 1970-01-01 00:00:00; `None` for the infinities and for what is no whole number of them.
    pub fn unix_ms(self) -> Option<i64> {
        let whole = self.infinity().is_none() && self.0.rem_euclid(1000) == 0;
        whole.then(|| self.0.div_euclid(1000) + EPOCH_US / 1000)
    }

    /// Microseconds since 1970-01-01, as a timestamp.
    pub(crate) fn from_unix_us(us: i64) -> Self {
        Self(us.saturating_sub(EPOCH_US))
    }

    /// Date and microseconds of the day, for a finite value.
    pub(crate) fn split(self) -> (Civil, i64) {
        (Civil::from_days(self.0.div_euclid(DAY_US)), self.0.rem_euclid(DAY_US))
    }

    /// ISO 8601 with a `T`, without an offset; an infinity as the server prints it.
    pub(crate) fn write_iso(self, out: &mut BytesMut, fraction: FractionDigits, zone: &str) {
        if let Some(infinity) = self.infinity() {
            return out.put_slice(infinity.as_str().as_bytes());
        }
        let (civil, clock_us) = self.split();
        civil.write_iso(out);
        out.put_u8(b'T');
        write_clock(out, clock_us, fraction);
        out.put_slice(zone.as_bytes());
    }

    pub(crate) fn write_server_text(self, out: &mut BytesMut, zone: &str) {
        if let Some(infinity) = self.infinity() {
            return out.put_slice(infinity.as_str().as_bytes());
        }
        let (civil, clock_us) = self.split();
        civil.write(out);
        out.put_u8(b' ');
        write_clock(out, clock_us, FractionDigits::Needed);
        out.put_slice(zone.as_bytes());
        write_era(out, civil);
    }
}

fn write_era(out: &mut BytesMut, civil: Civil) {
    if civil.year <= 0 {
        out.put_slice(b" BC");
    }
}
