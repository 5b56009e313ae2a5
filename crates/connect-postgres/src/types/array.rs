//! Arrays of any type, walked without building a tree.
//!
//! Text: `{1,NULL,3}`, with bounds in front when one does not begin at 1. Binary: the dimensions with their lower
//! bounds, then the elements in order.
//!
//! <https://www.postgresql.org/docs/17/arrays.html>

use bytes::{BufMut, BytesMut};

use super::ColumnType;
use super::error::{Form, Malformed};
use super::read::{Reader, utf8};
use super::value::Value;
use super::write;

/// An array.
#[derive(Debug, Clone, Copy)]
pub struct Array<'a> {
    element: &'a ColumnType,
    delimiter: u8,
    form: Form,
    bytes: &'a [u8],
}

/// What a walk over an array meets.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'v> {
    /// A dimension begins.
    Open,
    /// An element; `None` is null.
    Element(Option<Value<'v>>),
    /// A dimension ends.
    Close,
}

/// The server's limit.
const DIMENSIONS_MAX: usize = 6;

impl<'a> Array<'a> {
    pub(super) fn new(element: &'a ColumnType, delimiter: u8, form: Form, bytes: &'a [u8]) -> Self {
        Self { element, delimiter, form, bytes }
    }

    /// The type of the elements.
    pub fn element_type(&self) -> &'a ColumnType {
        self.element
    }

    /// Whether every dimension begins at 1, so that nothing but the elements is to be told.
    pub(crate) fn has_default_bounds(&self) -> Result<bool, Malformed> {
        match self.form {
            Form::Text => Ok(!self.bytes.starts_with(b"[")),
            Form::Binary => Ok(Dimensions::read(self.bytes)?.0.bounds().all(|(_, lower)| lower == 1)),
        }
    }

    /// Walks the array: one [`Step::Open`] and [`Step::Close`] around every list, an empty array being one list.
    pub(crate) fn walk(
        &self,
        visit: &mut dyn FnMut(Step<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        match self.form {
            Form::Text => self.walk_text(visit),
            Form::Binary => self.walk_binary(visit),
        }
    }

    fn walk_binary(&self, visit: &mut dyn FnMut(Step<'_>) -> Result<(), Malformed>) -> Result<(), Malformed> {
        let (dimensions, mut reader) = Dimensions::read(self.bytes)?;
        let total = dimensions.total()?;
        if total == 0 {
            visit(Step::Open)?;
            visit(Step::Close)?;
            return reader.finish();
        }
        // Four bytes at least per element, so the loop is bounded by the value's size.
        if total > reader.len() / 4 {
            return Err(Malformed("more elements than bytes"));
        }
        for index in 0..total {
            for _ in 0..dimensions.boundaries(index) {
                visit(Step::Open)?;
            }
            let value = match reader.sized()? {
                Some(bytes) => Some(self.element.decode(Form::Binary, bytes)?),
                None => None,
            };
            visit(Step::Element(value))?;
            for _ in 0..dimensions.boundaries(index + 1) {
                visit(Step::Close)?;
            }
        }
        reader.finish()
    }

    fn walk_text(&self, visit: &mut dyn FnMut(Step<'_>) -> Result<(), Malformed>) -> Result<(), Malformed> {
        let malformed = Malformed("not of the form {…}");
        let mut rest = self.bytes;
        if rest.starts_with(b"[") {
            let end = rest.iter().position(|&byte| byte == b'=').ok_or(malformed)?;
            rest = &rest[end + 1..];
        }
        let mut depth = 0usize;
        let mut unescaped = Vec::new();
        // What may come next: an element or list, or what follows one.
        let mut after_item = false;
        loop {
            let (&byte, after) = rest.split_first().ok_or(malformed)?;
            match byte {
                b'{' if !after_item && depth < DIMENSIONS_MAX => {
                    depth += 1;
                    visit(Step::Open)?;
                    rest = after;
                    // An empty list ends at once.
                    after_item = rest.starts_with(b"}");
                }
                b'}' if after_item && depth > 0 => {
                    depth -= 1;
                    visit(Step::Close)?;
                    rest = after;
                    if depth == 0 {
                        break;
                    }
                }
                _ if byte == self.delimiter && after_item => {
                    rest = after;
                    after_item = false;
                }
                _ if !after_item && depth > 0 => {
                    let (element, after) = self.text_element(rest, &mut unescaped)?;
                    visit(Step::Element(match element {
                        Some(bytes) => Some(self.element.decode(Form::Text, bytes)?),
                        None => None,
                    }))?;
                    rest = after;
                    after_item = true;
                }
                _ => return Err(malformed),
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(Malformed("text after the array")) }
    }

    /// Takes one element off the front; `None` is null. An element with escapes is put into `unescaped`.
    fn text_element<'s: 'b, 'b>(
        &self,
        bytes: &'s [u8],
        unescaped: &'b mut Vec<u8>,
    ) -> Result<(Option<&'b [u8]>, &'s [u8]), Malformed> {
        let Some(quoted) = bytes.strip_prefix(b"\"") else {
            let end = bytes
                .iter()
                .position(|&byte| byte == self.delimiter || matches!(byte, b'{' | b'}' | b'"' | b'\\'))
                .ok_or(Malformed("array does not end"))?;
            let (element, rest) = bytes.split_at(end);
            return match element {
                b"" => Err(Malformed("empty element without quotes")),
                b"NULL" => Ok((None, rest)),
                _ => Ok((Some(element), rest)),
            };
        };
        let (end, escapes) = quoted_end(quoted)?;
        let (element, rest) = (&quoted[..end], &quoted[end + 1..]);
        if escapes {
            unescape_into(unescaped, element);
            Ok((Some(unescaped), rest))
        } else {
            Ok((Some(element), rest))
        }
    }

    pub(super) fn write_server_text(&self, out: &mut BytesMut) -> Result<(), Malformed> {
        if self.form == Form::Text {
            out.put_slice(utf8(self.bytes)?.as_bytes());
            return Ok(());
        }
        let (dimensions, _) = Dimensions::read(self.bytes)?;
        if !self.has_default_bounds()? {
            for (length, lower) in dimensions.bounds() {
                out.put_u8(b'[');
                write::integer(out, lower);
                out.put_u8(b':');
                write::integer(out, i64::from(lower) + i64::from(length) - 1);
                out.put_u8(b']');
            }
            out.put_u8(b'=');
        }
        let mut after_item = false;
        self.walk(&mut |step| {
            if after_item && !matches!(step, Step::Close) {
                out.put_u8(self.delimiter);
            }
            match step {
                Step::Open => out.put_u8(b'{'),
                Step::Close => out.put_u8(b'}'),
                Step::Element(None) => out.put_slice(b"NULL"),
                Step::Element(Some(value)) => {
                    let start = out.len();
                    value.write_server_text(out)?;
                    if self.needs_quotes(&out[start..]) {
                        write::insert_before(out, start, |byte| {
                            matches!(byte, b'"' | b'\\').then_some(b'\\')
                        });
                        write::quote_from(out, start);
                    }
                }
            }
            after_item = !matches!(step, Step::Open);
            Ok(())
        })
    }

    fn needs_quotes(&self, element: &[u8]) -> bool {
        element.is_empty()
            || element.eq_ignore_ascii_case(b"NULL")
            || element.iter().any(|&byte| {
                byte == self.delimiter
                    || matches!(byte, b'"' | b'\\' | b'{' | b'}' | b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C)
            })
    }
}

/// Where a quoted text ends, from behind its opening quote, and whether it has escapes.
pub(super) fn quoted_end(bytes: &[u8]) -> Result<(usize, bool), Malformed> {
    let mut escapes = false;
    let mut index = 0;
    loop {
        match bytes.get(index) {
            Some(b'"') => return Ok((index, escapes)),
            Some(b'\\') => {
                escapes = true;
                index += 2;
            }
            Some(_) => index += 1,
            None => return Err(Malformed("quoted text does not end")),
        }
    }
}

/// Replaces what is in `target` by `bytes` without the backslashes that escape.
pub(super) fn unescape_into(target: &mut Vec<u8>, bytes: &[u8]) {
    target.clear();
    let mut bytes = bytes.iter();
    while let Some(&byte) = bytes.next() {
        target.push(if byte == b'\\' { bytes.next().copied().unwrap_or(byte) } else { byte });
    }
}

/// Lengths and lower bounds.
#[derive(Debug, Clone, Copy)]
struct Dimensions {
    count: usize,
    bounds: [(i32, i32); DIMENSIONS_MAX],
}

impl Dimensions {
    fn read(bytes: &[u8]) -> Result<(Self, Reader<'_>), Malformed> {
        let mut reader = Reader::new(bytes);
        let count = reader.i32()?;
        // The element oid is the server's; what the elements are is known from the column.
        let (_has_nulls, _element) = (reader.i32()?, reader.u32()?);
        let count = usize::try_from(count).ok().filter(|&count| count <= DIMENSIONS_MAX);
        let count = count.ok_or(Malformed("number of dimensions out of range"))?;
        let mut bounds = [(0, 1); DIMENSIONS_MAX];
        for bound in &mut bounds[..count] {
            *bound = (reader.i32()?, reader.i32()?);
            if bound.0 < 0 {
                return Err(Malformed("negative length"));
            }
        }
        Ok((Self { count, bounds }, reader))
    }

    fn bounds(&self) -> impl Iterator<Item = (i32, i32)> {
        self.bounds.iter().copied().take(self.count)
    }

    fn total(&self) -> Result<usize, Malformed> {
        if self.count == 0 {
            return Ok(0);
        }
        self.bounds()
            .try_fold(1usize, |total, (length, _)| total.checked_mul(usize::try_from(length).ok()?))
            .ok_or(Malformed("too many elements"))
    }

    /// How many lists begin before, or end before, the element of that index.
    fn boundaries(&self, index: usize) -> usize {
        let mut stride = 1usize;
        self.bounds[..self.count]
            .iter()
            .rev()
            .take_while(|(length, _)| {
                // Not zero: an array without elements is not walked; not too large: the product was checked.
                stride *= *length as usize;
                index.is_multiple_of(stride)
            })
            .count()
    }
}
