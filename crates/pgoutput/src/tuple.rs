//! TupleData: the cells of one row.
//!
//! <https://www.postgresql.org/docs/17/protocol-logicalrep-message-formats.html>
//!
//! A row is walked once when its message is decoded; that walk proves that every length fits the input.
//! Reading the cells walks it again, without an error to handle.

use core::fmt;

use crate::DecodeError;
use crate::reader::Reader;

/// One cell of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell<'a> {
    /// `n`: SQL NULL; in a key-only old tuple also "not part of the key".
    Null,
    /// `u`: an out-of-line (TOAST) value that did not change and was not sent.
    Unchanged,
    /// `t`: the type's text output, in `client_encoding`.
    Text(&'a [u8]),
    /// `b`: the type's binary send format (`binary` option).
    Binary(&'a [u8]),
}

/// The cells of one row: a view of the wire bytes, from the column count on.
///
/// Its `Debug` form tells the width and size only: row values do not belong into logs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tuple<'a> {
    raw: &'a [u8],
}

/// The names of a tuple's fields in errors.
pub(crate) struct TupleFields {
    columns: &'static str,
    cell_kind: &'static str,
    cell_length: &'static str,
    cell_value: &'static str,
}

pub(crate) const NEW_TUPLE: TupleFields = TupleFields {
    columns: "new tuple column count",
    cell_kind: "new tuple cell kind",
    cell_length: "new tuple cell length",
    cell_value: "new tuple cell value",
};

pub(crate) const OLD_TUPLE: TupleFields = TupleFields {
    columns: "old tuple column count",
    cell_kind: "old tuple cell kind",
    cell_length: "old tuple cell length",
    cell_value: "old tuple cell value",
};

impl<'a> Tuple<'a> {
    /// A view of bytes that [`as_bytes`](Self::as_bytes) of a decoded tuple returned.
    ///
    /// Other bytes are not an error and not undefined: iteration ends at the first cell that does not parse.
    pub const fn from_bytes(raw: &'a [u8]) -> Self {
        Self { raw }
    }

    /// Takes one tuple from the input, walking it to its end.
    #[inline]
    pub(crate) fn decode(reader: &mut Reader<'a>, fields: &TupleFields) -> Result<Self, DecodeError> {
        let start = reader.rest();
        let columns = reader.u16(fields.columns)?;
        for _ in 0..columns {
            match reader.u8(fields.cell_kind)? {
                b't' | b'b' => {
                    let length = reader.u32(fields.cell_length)?;
                    reader.bytes(length, fields.cell_value)?;
                }
                b'n' | b'u' => {}
                unknown => return Err(reader.wrong_byte(fields.cell_kind, "unknown cell kind", unknown)),
            }
        }
        Ok(Self { raw: reader.taken_since(start) })
    }

    /// The wire bytes: column count u16, then the cells.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.raw
    }

    /// Number of columns; may be 0.
    #[inline]
    pub fn len(&self) -> usize {
        self.raw.first_chunk::<2>().map_or(0, |count| usize::from(u16::from_be_bytes(*count)))
    }

    /// Whether there are no columns.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cells in column order.
    #[inline]
    pub fn cells(&self) -> Cells<'a> {
        Cells { rest: self.raw.get(2..).unwrap_or_default(), remaining: self.len() }
    }

    /// The cell of one column; walks the row from its start.
    pub fn cell(&self, index: usize) -> Option<Cell<'a>> {
        self.cells().nth(index)
    }
}

impl fmt::Debug for Tuple<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tuple({} columns, {} bytes)", self.len(), self.raw.len())
    }
}

impl<'a> IntoIterator for Tuple<'a> {
    type Item = Cell<'a>;
    type IntoIter = Cells<'a>;

    #[inline]
    fn into_iter(self) -> Cells<'a> {
        self.cells()
    }
}

/// Iterator over the cells of a [`Tuple`].
#[derive(Clone)]
pub struct Cells<'a> {
    rest: &'a [u8],
    remaining: usize,
}

impl fmt::Debug for Cells<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cells({} columns left)", self.remaining)
    }
}

impl<'a> Iterator for Cells<'a> {
    type Item = Cell<'a>;

    #[inline]
    fn next(&mut self) -> Option<Cell<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        let (&kind, rest) = self.rest.split_first()?;
        match kind {
            b'n' => {
                self.rest = rest;
                Some(Cell::Null)
            }
            b'u' => {
                self.rest = rest;
                Some(Cell::Unchanged)
            }
            b't' | b'b' => {
                let (length, rest) = rest.split_first_chunk::<4>()?;
                let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
                let (value, rest) = rest.split_at_checked(length)?;
                self.rest = rest;
                Some(if kind == b't' { Cell::Text(value) } else { Cell::Binary(value) })
            }
            _ => None,
        }
    }

    // The lower end is 0 because `from_bytes` takes anything; the upper end is at most the u16 of the wire.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.remaining.min(self.rest.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &[u8] = b"\0\x04nut\0\0\0\x02hib\0\0\0\x01\x07";

    fn decode(raw: &[u8]) -> Result<Tuple<'_>, DecodeError> {
        Tuple::decode(&mut Reader::new(raw), &NEW_TUPLE)
    }

    #[test]
    fn cells_come_in_column_order() {
        let tuple = decode(ROW).unwrap();
        assert_eq!(tuple.as_bytes(), ROW);
        let cells: Vec<_> = tuple.cells().collect();
        assert_eq!(cells, [Cell::Null, Cell::Unchanged, Cell::Text(b"hi"), Cell::Binary(&[7])]);
        assert_eq!(tuple.cell(2), Some(Cell::Text(b"hi")));
        assert_eq!(tuple.cell(4), None);
    }

    #[test]
    fn decoding_takes_the_tuple_and_leaves_what_follows() {
        let longer = [ROW, b"N"].concat();
        let mut reader = Reader::new(&longer);
        assert_eq!(Tuple::decode(&mut reader, &NEW_TUPLE).unwrap().as_bytes(), ROW);
        assert_eq!(reader.rest(), b"N");
    }

    #[test]
    fn every_cut_is_an_error() {
        for end in 0..ROW.len() {
            assert!(decode(&ROW[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn an_unknown_cell_kind_is_named() {
        let error = decode(b"\0\x02nx").unwrap_err();
        assert_eq!((error.field, error.offset, error.found), ("new tuple cell kind", 3, Some(b'x')));
    }

    #[test]
    fn a_tuple_may_have_no_columns() {
        let tuple = decode(b"\0\0").unwrap();
        assert!(tuple.is_empty());
        assert_eq!(tuple.cells().next(), None);
    }

    #[test]
    fn bytes_that_are_no_tuple_end_the_iteration() {
        let cells: Vec<_> = Tuple::from_bytes(b"\xff\xffnt\xff\xff\xff\xffx").cells().collect();
        assert_eq!(cells, [Cell::Null]);
        assert_eq!(Tuple::from_bytes(b"").cells().count(), 0);
        assert_eq!(Tuple::from_bytes(b"\xff").len(), 0);
    }

    #[test]
    fn debug_shows_no_values() {
        assert_eq!(format!("{:?}", decode(ROW).unwrap()), "Tuple(4 columns, 17 bytes)");
    }
}
