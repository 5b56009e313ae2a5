//! Days and dates of the proleptic Gregorian calendar, and the text of dates and clock times.
//!
//! <https://www.postgresql.org/docs/17/datatype-datetime.html>

use bytes::{BufMut, BytesMut};

use super::error::Malformed;
use super::read::{digits, split_digits};
use super::write;

/// Days from 1970-01-01 to 2000-01-01, where PostgreSQL counts from.
pub(crate) const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
pub(crate) const EPOCH_US: i64 = EPOCH_DAYS as i64 * DAY_US;
pub(crate) const SECOND_US: i64 = 1_000_000;
pub(crate) const MINUTE_US: i64 = 60 * SECOND_US;
pub(crate) const HOUR_US: i64 = 60 * MINUTE_US;
pub(crate) const DAY_US: i64 = 24 * HOUR_US;

/// Days of 400 years.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 2000-01-01.
const MARCH_ZERO_TO_EPOCH: i64 = 730_425;

/// A date. Years are astronomical: 1 BC is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    pub(crate) month: u32,
    pub(crate) day: u32,
}

impl Civil {
    /// Days from 2000-01-01. The year begins in March here, so that the odd day is its last.
    pub(crate) fn to_days(self) -> i64 {
        let year = if self.month <= 2 { self.year - 1 } else { self.year };
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let month = i64::from((self.month + 9) % 12);
        let day_of_year = (153 * month + 2) / 5 + i64::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * ERA_DAYS + day_of_era - MARCH_ZERO_TO_EPOCH
    }

    /// The inverse of [`to_days`](Self::to_days).
    pub(crate) fn from_days(days: i64) -> Self {
        let days = days + MARCH_ZERO_TO_EPOCH;
        let (era, day_of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / (ERA_DAYS - 1)) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        // Lossless: a day of a month and a month.
        let day = (day_of_year - (153 * month + 2) / 5 + 1) as u32;
        let month = if month < 10 { month as u32 + 3 } else { month as u32 - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Self { year, month, day }
    }

    fn is_valid(self) -> bool {
        let leap = self.year.rem_euclid(4) == 0
            && (self.year.rem_euclid(100) != 0 || self.year.rem_euclid(400) == 0);
        let days = match self.month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => return false,
        };
        (1..=days).contains(&self.day)
    }

    /// Takes `YYYY-MM-DD` off the front; the year may have more digits.
    pub(crate) fn parse(bytes: &[u8], before_christ: bool) -> Result<(Self, &[u8]), Malformed> {
        let malformed = Malformed("not a date of the form YYYY-MM-DD");
        let (year, rest) = split_digits(bytes);
        let ([b'-', month @ .., b'-', day_tens, day_ones], rest) =
            rest.split_first_chunk::<6>().ok_or(malformed)?
        else {
            return Err(malformed);
        };
        if year.len() < 4 || year.len() > 7 {
            return Err(malformed);
        }
        let year = i64::try_from(digits(year)?).map_err(|_| malformed)?;
        let year = if before_christ { 1 - year } else { year };
        let civil = Self { year, month: two_digits(month)?, day: two_digits(&[*day_tens, *day_ones])? };
        if civil.is_valid() { Ok((civil, rest)) } else { Err(malformed) }
    }

    /// As the server does, without the mark of years before Christ.
    pub(crate) fn write(self, out: &mut BytesMut) {
        let year = if self.year > 0 { self.year } else { 1 - self.year };
        write::padded(out, year.unsigned_abs(), 4);
        self.write_month_and_day(out);
    }

    /// ISO 8601 with astronomical years: `-0043-03-15`, `+10000-01-01`.
    pub(crate) fn write_iso(self, out: &mut BytesMut) {
        match self.year {
            ..0 => out.put_u8(b'-'),
            10_000.. => out.put_u8(b'+'),
            _ => {}
        }
        write::padded(out, self.year.unsigned_abs(), 4);
        self.write_month_and_day(out);
    }

    fn write_month_and_day(self, out: &mut BytesMut) {
        let [month_tens, month_ones] = write::two(self.month);
        let [day_tens, day_ones] = write::two(self.day);
        out.put_slice(&[b'-', month_tens, month_ones, b'-', day_tens, day_ones]);
    }
}

pub(crate) fn two_digits(bytes: &[u8]) -> Result<u32, Malformed> {
    match bytes {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => Ok(u32::from(tens - b'0') * 10 + u32::from(ones - b'0')),
        _ => Err(Malformed("not two digits")),
    }
}

/// Takes `.ffffff` off the front, if it is there: microseconds.
pub(crate) fn parse_fraction(bytes: &[u8]) -> Result<(i64, &[u8]), Malformed> {
    let Some(rest) = bytes.strip_prefix(b".") else { return Ok((0, bytes)) };
    let (fraction, rest) = split_digits(rest);
    if fraction.is_empty() || fraction.len() > 6 {
        return Err(Malformed("not a fraction of a second"));
    }
    let mut us = 0;
    for index in 0..6 {
        us = us * 10 + fraction.get(index).map_or(0, |digit| i64::from(digit - b'0'));
    }
    Ok((us, rest))
}

/// Takes `HH:MM:SS[.ffffff]` off the front: microseconds of the day, at most 24:00:00.
pub(crate) fn parse_clock(bytes: &[u8]) -> Result<(i64, &[u8]), Malformed> {
    let malformed = Malformed("not a time of the form HH:MM:SS");
    let (clock, rest) = bytes.split_first_chunk::<8>().ok_or(malformed)?;
    if clock[2] != b':' || clock[5] != b':' {
        return Err(malformed);
    }
    let (hour, minute, second) =
        (two_digits(&clock[..2])?, two_digits(&clock[3..5])?, two_digits(&clock[6..])?);
    let (fraction, rest) = parse_fraction(rest)?;
    let us =
        i64::from(hour) * HOUR_US + i64::from(minute) * MINUTE_US + i64::from(second) * SECOND_US + fraction;
    if minute > 59 || second > 59 || us > DAY_US {
        return Err(malformed);
    }
    Ok((us, rest))
}

/// Takes `+HH[:MM[:SS]]` off the front: seconds east of UTC.
pub(crate) fn parse_offset(bytes: &[u8]) -> Result<(i32, &[u8]), Malformed> {
    let malformed = Malformed("not an offset of the form +HH:MM");
    let (&[sign, tens, ones], mut rest) = bytes.split_first_chunk::<3>().ok_or(malformed)?;
    let mut seconds = two_digits(&[tens, ones])? * 3600;
    for unit in [60, 1] {
        let Some((&[b':', tens, ones], after)) = rest.split_first_chunk::<3>() else { break };
        seconds += two_digits(&[tens, ones])? * unit;
        rest = after;
    }
    // Lossless: below 100 hours.
    match sign {
        b'+' => Ok((seconds as i32, rest)),
        b'-' => Ok((-(seconds as i32), rest)),
        _ => Err(malformed),
    }
}

/// How many digits of the second's fraction to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FractionDigits {
    /// As many as needed; no point when there are none.
    Needed,
    /// That many, 0 to 6.
    Fixed(usize),
}

/// Appends `HH:MM:SS` and a fraction. `us` is not negative; hours may be above 24.
pub(crate) fn write_clock(out: &mut BytesMut, us: i64, fraction: FractionDigits) {
    let seconds = us / SECOND_US;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hour < 100 {
        // Lossless: each is below 100.
        let ([h1, h2], [m1, m2]) = (write::two(hour as u32), write::two(minute as u32));
        let [s1, s2] = write::two(second as u32);
        out.put_slice(&[h1, h2, b':', m1, m2, b':', s1, s2]);
    } else {
        write::integer(out, hour);
        let ([m1, m2], [s1, s2]) = (write::two(minute as u32), write::two(second as u32));
        out.put_slice(&[b':', m1, m2, b':', s1, s2]);
    }
    write_fraction(out, (us % SECOND_US) as u32, fraction);
}

/// Appends the fraction of a second with its point.
pub(crate) fn write_fraction(out: &mut BytesMut, us: u32, digits: FractionDigits) {
    let mut text = *b".000000";
    let mut rest = us;
    for digit in text[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let count = match digits {
        FractionDigits::Fixed(count) => count.min(6),
        FractionDigits::Needed => 6 - text[1..].iter().rev().take_while(|&&digit| digit == b'0').count(),
    };
    if count > 0 {
        out.put_slice(&text[..=count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_inverse() {
        for days in (-2_500_000..2_500_000i64).step_by(37).chain([-1, 0, 1, 59, 60, 366, 2_145_031_948]) {
            assert_eq!(Civil::from_days(days).to_days(), days);
        }
        assert_eq!(Civil { year: 2000, month: 1, day: 1 }.to_days(), 0);
        assert_eq!(Civil { year: 1970, month: 1, day: 1 }.to_days(), -i64::from(EPOCH_DAYS));
        assert_eq!(Civil { year: 2000, month: 3, day: 1 }.to_days(), 60);
    }

    #[test]
    fn impossible_dates_are_refused() {
        for text in
            ["2023-02-29", "2024-13-01", "2024-00-10", "2024-04-31", "1900-02-29", "24-01-01", "2024-1-01"]
        {
            assert!(Civil::parse(text.as_bytes(), false).is_err(), "{text}");
        }
    }
}
