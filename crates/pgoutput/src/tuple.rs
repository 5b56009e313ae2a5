//! TupleData: the cells of one row.
//!
//! <https://www.postgresql.org/docs/17/protocol-logicalrep-message-formats.html>

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple<'a> {
    raw: &'a [u8],
}

impl<'a> Tuple<'a> {
    /// A view of bytes that [`as_bytes`](Self::as_bytes) of a decoded tuple returned.
    ///
    /// Other bytes are not an error and not undefined: iteration ends at the first cell that does not parse.
    pub const fn from_bytes(raw: &'a [u8]) -> Self {
        Self { raw }
    }

    /// The wire bytes: column count u16, then the cells.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.raw
    }

    /// Number of columns; may be 0.
    pub fn len(&self) -> usize {
        self.raw.first_chunk::<2>().map_or(0, |count| usize::from(u16::from_be_bytes(*count)))
    }

    /// Whether there are no columns.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cells in column order.
    pub fn cells(&self) -> Cells<'a> {
        Cells { rest: self.raw.get(2..).unwrap_or_default(), remaining: self.len() }
    }

    /// The cell of one column; walks the row from its start.
    pub fn cell(&self, index: usize) -> Option<Cell<'a>> {
        self.cells().nth(index)
    }
}

/// Iterator over the cells of a [`Tuple`].
#[derive(Debug, Clone)]
pub struct Cells<'a> {
    rest: &'a [u8],
    remaining: usize,
}

impl<'a> Cells<'a> {
    /// The bytes that were not consumed yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
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

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.remaining))
    }
}
