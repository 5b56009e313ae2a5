//! Standard output: what a verb answers.

use std::io::{ErrorKind, Write};

use crabka_connect::ConnectError;

use crate::exit::Failure;

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// It was taken.
    Taken,
    /// The reader went away, as in `crabka tail ... | head`.
    NobodyReads,
}

/// Writes `text`. A reader that went away is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(text.as_bytes()).map(drop)
}

/// Writes bytes, and says whether somebody still reads them.
pub(crate) fn write(bytes: &[u8]) -> Result<Written, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Written::Taken),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Written::NobodyReads),
        Err(error) => {
            Err(ConnectError::transient("standard output cannot be written").with_source(error).into())
        }
    }
}

/// Lines that are written many at a time.
pub(crate) struct Lines {
    buffer: Vec<u8>,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self { buffer: Vec::new() }
    }

    /// Where lines are put together.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes what was put together.
    pub(crate) fn write(&mut self) -> Result<Written, Failure> {
        if self.buffer.is_empty() {
            return Ok(Written::Taken);
        }
        let written = write(&self.buffer)?;
        self.buffer.clear();
        Ok(written)
    }
}

/// Rows in columns as wide as they need to be, the first row over the others.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A size as people read it, in powers of 1024.
pub(crate) fn bytes_in_words(bytes: i64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes.unsigned_abs() < 1024 {
        return format!("{bytes} B");
    }
    // Tenths, so that no float is needed for what may not fit one.
    let (mut tenths, mut unit) = (i128::from(bytes) * 10 / 1024, 0);
    while tenths.unsigned_abs() >= 10_240 && unit + 1 < UNITS.len() {
        (tenths, unit) = (tenths / 1024, unit + 1);
    }
    format!("{}.{} {}", tenths / 10, tenths.unsigned_abs() % 10, UNITS[unit])
}

/// A time as people read it, in its two largest units.
pub(crate) fn duration_in_words(ms: i64) -> String {
    let seconds = ms / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) if seconds < 10 => format!("{seconds}.{} s", (ms % 1000) / 100),
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_their_two_largest_units() {
        let told =
            [0, 950, 3_200, 59_999, 61_000, 3 * 3_600_000 + 720_000, 90_000_000].map(duration_in_words);
        assert_eq!(told, ["0.0 s", "0.9 s", "3.2 s", "59 s", "1 min 1 s", "3 h 12 min", "1 d 1 h"]);
    }

    #[test]
    fn sizes_are_told_in_the_unit_that_fits() {
        let told = [0, 1023, 1024, 1536, 1 << 20, 16_990_000, -2048, i64::MAX].map(bytes_in_words);
        let expected =
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "16.2 MiB", "-2.0 KiB", "8191.9 PiB"];
        assert_eq!(told, expected);
    }

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text = table(&[row(["", "slot", "é"]), row(["*", "orders_2", ""]), row(["", "b", "x"])]);
        assert_eq!(text, "   slot      é\n*  orders_2\n   b         x\n");
    }
}
