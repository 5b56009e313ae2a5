//! interval: months, days and microseconds, each with its own sign (`intervalstyle = postgres`).
//!
//! <https://www.postgresql.org/docs/17/datatype-datetime.html#DATATYPE-INTERVAL-OUTPUT>

use bytes::{BufMut, BytesMut};

use super::calendar::{
    DAY_US, FractionDigits, HOUR_US, MINUTE_US, SECOND_US, parse_fraction, two_digits, write_clock,
    write_fraction,
};
use super::error::Malformed;
use super::read::{Reader, digits, signed, split_digits};
use super::timestamp::Infinity;
use super::value::Value;
use super::write;

/// An interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub us: i64,
}

/// Microseconds of a month of 365.25/12 days.
const MONTH_US: i128 = 2_629_800_000_000;

const POSITIVE_INFINITY: Interval = Interval { months: i32::MAX, days: i32::MAX, us: i64::MAX };
const NEGATIVE_INFINITY: Interval = Interval { months: i32::MIN, days: i32::MIN, us: i64::MIN };

const RANGE: Malformed = Malformed("interval out of range");

pub(super) fn from_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    match Infinity::parse(bytes) {
        Some(Infinity::Positive) => return Ok(Value::Interval(POSITIVE_INFINITY)),
        Some(Infinity::Negative) => return Ok(Value::Interval(NEGATIVE_INFINITY)),
        None => {}
    }
    let (mut months, mut days, mut us) = (0i64, 0i64, 0i64);
    let mut words = bytes.split(|&byte| byte == b' ');
    let mut any = false;
    while let Some(word) = words.next() {
        any = true;
        if word.contains(&b':') {
            us = parse_clock(word)?;
            if words.next().is_some() {
                return Err(Malformed("text after the time"));
            }
            break;
        }
        let number = signed(word.strip_prefix(b"+").unwrap_or(word))?;
        if number.unsigned_abs() > u64::from(u32::MAX) {
            return Err(RANGE);
        }
        match words.next() {
            Some(b"year" | b"years") => months += number * 12,
            Some(b"mon" | b"mons") => months += number,
            Some(b"day" | b"days") => days += number,
            _ => return Err(Malformed("unknown unit")),
        }
    }
    if !any {
        return Err(Malformed("empty"));
    }
    let part = |part: i64| i32::try_from(part).map_err(|_| RANGE);
    Ok(Value::Interval(Interval { months: part(months)?, days: part(days)?, us }))
}

/// `[+-]H…:MM:SS[.ffffff]`
fn parse_clock(word: &[u8]) -> Result<i64, Malformed> {
    let (negative, word) = match word.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, word),
    };
    let (hours, rest) = split_digits(word);
    let malformed = Malformed("not a time of the form H:MM:SS");
    let (&[b':', minute_tens, minute_ones, b':', second_tens, second_ones], rest) =
        rest.split_first_chunk::<6>().ok_or(malformed)?
    else {
        return Err(malformed);
    };
    let (minutes, seconds) =
        (two_digits(&[minute_tens, minute_ones])?, two_digits(&[second_tens, second_ones])?);
    let (fraction, rest) = parse_fraction(rest)?;
    if !rest.is_empty() || minutes > 59 || seconds > 59 {
        return Err(malformed);
    }
    let magnitude = i128::from(digits(hours)?) * i128::from(HOUR_US)
        + i128::from(i64::from(minutes) * MINUTE_US + i64::from(seconds) * SECOND_US + fraction);
    i64::try_from(if negative { -magnitude } else { magnitude }).map_err(|_| RANGE)
}

pub(super) fn from_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let (us, days, months) = (reader.i64()?, reader.i32()?, reader.i32()?);
    reader.finish()?;
    Ok(Value::Interval(Interval { months, days, us }))
}

impl Interval {
    /// Which infinity it is, if it is one (PostgreSQL 17+).
    pub fn infinity(self) -> Option<Infinity> {
        match self {
            POSITIVE_INFINITY => Some(Infinity::Positive),
            NEGATIVE_INFINITY => Some(Infinity::Negative),
            _ => None,
        }
    }

    /// As microseconds, a month being 365.25/12 days; `None` beyond 64 bits and for the infinities.
    pub(crate) fn total_us(self) -> Option<i64> {
        if self.infinity().is_some() {
            return None;
        }
        let total = i128::from(self.months) * MONTH_US
            + i128::from(self.days) * i128::from(DAY_US)
            + i128::from(self.us);
        i64::try_from(total).ok()
    }

    /// ISO 8601 with every part and a sign for each: `P1Y2M3DT4H5M6.78S`.
    pub(crate) fn write_iso(self, out: &mut BytesMut) {
        if let Some(infinity) = self.infinity() {
            return out.put_slice(infinity.as_str().as_bytes());
        }
        out.put_u8(b'P');
        for (number, unit) in [(self.months / 12, b'Y'), (self.months % 12, b'M'), (self.days, b'D')] {
            write::integer(out, number);
            out.put_u8(unit);
        }
        out.put_u8(b'T');
        write::integer(out, self.us / HOUR_US);
        out.put_u8(b'H');
        write::integer(out, self.us % HOUR_US / MINUTE_US);
        out.put_u8(b'M');
        let seconds_us = self.us % MINUTE_US;
        if seconds_us < 0 {
            out.put_u8(b'-');
        }
        let magnitude = seconds_us.unsigned_abs();
        write::integer(out, magnitude / SECOND_US as u64);
        // Lossless: below a million.
        write_fraction(out, (magnitude % SECOND_US as u64) as u32, FractionDigits::Needed);
        out.put_u8(b'S');
    }

    pub(super) fn write_server_text(self, out: &mut BytesMut) {
        if let Some(infinity) = self.infinity() {
            return out.put_slice(infinity.as_str().as_bytes());
        }
        let start = out.len();
        let mut after_negative = false;
        let parts = [(self.months / 12, "year"), (self.months % 12, "mon"), (self.days, "day")];
        for (number, unit) in parts.into_iter().filter(|(number, _)| *number != 0) {
            if out.len() > start {
                out.put_u8(b' ');
            }
            if after_negative && number > 0 {
                out.put_u8(b'+');
            }
            after_negative = number < 0;
            write::integer(out, number);
            out.put_u8(b' ');
            out.put_slice(unit.as_bytes());
            if number != 1 {
                out.put_u8(b's');
            }
        }
        if self.us == 0 && out.len() > start {
            return;
        }
        if out.len() > start {
            out.put_u8(b' ');
        }
        if self.us < 0 {
            out.put_u8(b'-');
        } else if after_negative {
            out.put_u8(b'+');
        }
        // The lowest value has no positive counterpart, but the server refuses it in an interval.
        write_clock(out, self.us.saturating_abs(), FractionDigits::Needed);
    }
}
