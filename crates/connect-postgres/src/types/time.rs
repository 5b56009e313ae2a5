//! time and timetz.
//!
//! <https://www.postgresql.org/docs/17/datatype-datetime.html>

use bytes::{BufMut, BytesMut};

use super::calendar::{DAY_US, FractionDigits, SECOND_US, parse_clock, parse_offset, write_clock};
use super::error::Malformed;
use super::read::{Reader, exact};
use super::value::Value;
use super::write;

/// Microseconds of the day; 24:00:00 is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub i64);

/// A time with its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeTz {
    /// Microseconds of the local day; 24:00:00 is possible.
    pub time_us: i64,
    /// Seconds east of UTC.
    pub offset_s: i32,
}

fn time_of_day(us: i64) -> Result<i64, Malformed> {
    if (0..=DAY_US).contains(&us) { Ok(us) } else { Err(Malformed("not a time of day")) }
}

pub(super) fn time_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    match parse_clock(bytes)? {
        (us, []) => Ok(Value::Time(Time(us))),
        _ => Err(Malformed("too long")),
    }
}

pub(super) fn time_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Time(Time(time_of_day(i64::from_be_bytes(exact(bytes)?))?)))
}

pub(super) fn timetz_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let (time_us, rest) = parse_clock(bytes)?;
    let (offset_s, rest) = parse_offset(rest)?;
    if rest.is_empty() { Ok(Value::TimeTz(TimeTz { time_us, offset_s })) } else { Err(Malformed("too long")) }
}

pub(super) fn timetz_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let time_us = time_of_day(reader.i64()?)?;
    let west_s = reader.i32()?;
    reader.finish()?;
    // The server allows less than sixteen hours.
    if west_s.unsigned_abs() >= 100 * 3600 {
        return Err(Malformed("offset out of range"));
    }
    Ok(Value::TimeTz(TimeTz { time_us, offset_s: -west_s }))
}

impl Time {
    pub(crate) fn write_server_text(self, out: &mut BytesMut) {
        write_clock(out, self.0, FractionDigits::Needed);
    }
}

impl TimeTz {
    /// Microseconds of the day in UTC. Only 24:00:00 at offset zero stays 24:00:00.
    pub(crate) fn utc_us(self) -> i64 {
        if self.offset_s == 0 {
            self.time_us
        } else {
            (self.time_us - i64::from(self.offset_s) * SECOND_US).rem_euclid(DAY_US)
        }
    }

    pub(crate) fn write_server_text(self, out: &mut BytesMut) {
        write_clock(out, self.time_us, FractionDigits::Needed);
        write_offset(out, self.offset_s);
    }
}

fn write_offset(out: &mut BytesMut, offset_s: i32) {
    out.put_u8(if offset_s < 0 { b'-' } else { b'+' });
    let seconds = offset_s.unsigned_abs();
    out.put_slice(&write::two(seconds / 3600));
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    if minutes != 0 || seconds != 0 {
        out.put_u8(b':');
        out.put_slice(&write::two(minutes));
    }
    if seconds != 0 {
        out.put_u8(b':');
        out.put_slice(&write::two(seconds));
    }
}
