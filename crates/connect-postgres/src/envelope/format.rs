//! What every envelope does with a row: keys, the notes about values a field cannot hold, errors that name the
//! column.

use bytes::{BufMut, Bytes, BytesMut};
use crabka_connect::ConnectError;

use super::json;
use crate::relation::{Column, Relation, ReplicaIdentity};
use crate::row::{Field, Row, WireValue};
use crate::types::{Array, ColumnType, Malformed, Step, Value};

/// Header that lists the columns of `after` whose values the server did not send: a JSON array of names.
pub const UNAVAILABLE_HEADER: &str = "__unavailable";

/// Header with the server's text of values that their fields cannot hold: `{"after":{"amount":"NaN"}}`.
pub const SOURCE_TEXT_HEADER: &str = "__source_text";

/// Whether a field says all of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Whole,
    /// The field is null or lacks something; the server's text goes into a header.
    InPart,
}

impl Held {
    fn and(self, other: Self) -> Self {
        if self == Self::Whole { other } else { self }
    }
}

/// How an envelope writes values.
pub(super) trait ValueFormat {
    /// Appends a value as JSON.
    fn write(
        &self,
        out: &mut BytesMut,
        column_type: &ColumnType,
        value: &Value<'_>,
    ) -> Result<Held, Malformed>;

    /// What keeps a key with a value that its field cannot hold from being written: who can hold it.
    fn fix_for_key(&self) -> &'static str;
}

/// Appends an array as nested lists, with what `write_element` makes of its elements.
pub(super) fn write_array(
    out: &mut BytesMut,
    array: &Array<'_>,
    write_element: impl Fn(&mut BytesMut, &ColumnType, &Value<'_>) -> Result<Held, Malformed>,
) -> Result<Held, Malformed> {
    let mut held = if array.has_default_bounds()? { Held::Whole } else { Held::InPart };
    let mut after_item = false;
    array.walk(&mut |step| {
        if after_item && !matches!(step, Step::Close) {
            out.put_u8(b',');
        }
        match step {
            Step::Open => out.put_u8(b'['),
            Step::Close => out.put_u8(b']'),
            Step::Element(None) => out.put_slice(b"null"),
            Step::Element(Some(value)) => held = held.and(write_element(out, array.element_type(), &value)?),
        }
        after_item = !matches!(step, Step::Open);
        Ok(())
    })?;
    Ok(held)
}

/// Which row of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    After,
}

/// What is to be told about an event's values besides the values. Allocates only when there is something.
#[derive(Debug, Default)]
pub(super) struct Notes {
    unavailable: BytesMut,
    before_text: BytesMut,
    after_text: BytesMut,
}

impl Notes {
    /// Lists a column whose value the server did not send.
    pub(super) fn unavailable(&mut self, column: &Column) {
        self.unavailable.put_u8(if self.unavailable.is_empty() { b'[' } else { b',' });
        json::string(&mut self.unavailable, &column.name);
    }

    /// Keeps the server's text of a value.
    fn source_text(&mut self, side: Side, column: &Column, wire: WireValue<'_>) -> Result<(), ConnectError> {
        let out = match side {
            Side::Before => &mut self.before_text,
            Side::After => &mut self.after_text,
        };
        out.put_u8(if out.is_empty() { b'{' } else { b',' });
        json::string(out, &column.name);
        out.put_u8(b':');
        json::string_of(out, |out| column.column_type.write_server_text(wire.0, wire.1, out))
            .map_err(ConnectError::from)
    }

    /// The header values, if there are any: `__unavailable`, `__source_text`.
    pub(super) fn take(&mut self) -> (Option<Bytes>, Option<Bytes>) {
        let unavailable = (!self.unavailable.is_empty()).then(|| {
            self.unavailable.put_u8(b']');
            self.unavailable.split().freeze()
        });
        if self.before_text.is_empty() && self.after_text.is_empty() {
            return (unavailable, None);
        }
        let mut text = BytesMut::new();
        for (name, part) in [("before", &mut self.before_text), ("after", &mut self.after_text)] {
            if part.is_empty() {
                continue;
            }
            text.put_u8(if text.is_empty() { b'{' } else { b',' });
            json::string(&mut text, name);
            text.put_u8(b':');
            text.put_slice(&part.split());
            text.put_u8(b'}');
        }
        text.put_u8(b'}');
        (unavailable, Some(text.freeze()))
    }

    pub(super) fn clear(&mut self) {
        self.unavailable.clear();
        self.before_text.clear();
        self.after_text.clear();
    }
}

/// Appends the value of a cell; what the field cannot hold is noted.
#[inline]
pub(super) fn write_cell(
    out: &mut BytesMut,
    format: &impl ValueFormat,
    relation: &Relation,
    column: &Column,
    wire: WireValue<'_>,
    (side, notes): (Side, &mut Notes),
) -> Result<(), ConnectError> {
    let held =
        decode_and_write(out, format, column, wire).map_err(|error| in_column(error, relation, column))?;
    if held == Held::InPart {
        notes.source_text(side, column, wire).map_err(|error| in_column(error, relation, column))?;
    }
    Ok(())
}

#[inline]
fn decode_and_write(
    out: &mut BytesMut,
    format: &impl ValueFormat,
    column: &Column,
    (form, bytes): WireValue<'_>,
) -> Result<Held, ConnectError> {
    column
        .column_type
        .decode(form, bytes)
        .and_then(|value| format.write(out, &column.column_type, &value))
        .map_err(|malformed| column.column_type.error(form, malformed).into())
}

#[cold]
pub(super) fn in_column(error: ConnectError, relation: &Relation, column: &Column) -> ConnectError {
    error.context(format_args!("table {}, column {}", relation.qualified_name(), column.name))
}

#[cold]
pub(super) fn row_too_short(relation: &Relation) -> ConnectError {
    ConnectError::bug(format!(
        "row has fewer cells than its table has columns: {}",
        relation.qualified_name()
    ))
}

/// Appends the key object: the key columns in key order.
pub(super) fn write_key(
    out: &mut BytesMut,
    format: &impl ValueFormat,
    members: &Members,
    row: &Row<'_>,
) -> Result<(), ConnectError> {
    let relation = row.relation();
    out.put_u8(b'{');
    for (place, &index) in relation.key.iter().enumerate() {
        let column = relation.columns.get(index).ok_or_else(|| row_too_short(relation))?;
        let field = row.wire_at(index).ok_or_else(|| row_too_short(relation))?;
        members.write(out, index, place == 0);
        match field {
            Field::Value(wire) => {
                let held = decode_and_write(out, format, column, wire)
                    .map_err(|error| in_column(error, relation, column))?;
                if held == Held::InPart {
                    let error = ConnectError::data("the key holds a value that this envelope cannot write");
                    return Err(in_column(error.with_fix(format.fix_for_key()), relation, column));
                }
            }
            Field::Null if column.in_identity || relation.identity == ReplicaIdentity::Full => {
                out.put_slice(b"null")
            }
            Field::Null | Field::Absent | Field::Unchanged => return Err(key_not_sent(relation, column)),
        }
    }
    out.put_u8(b'}');
    Ok(())
}

#[cold]
fn key_not_sent(relation: &Relation, column: &Column) -> ConnectError {
    let name = crate::catalog::TableName { schema: relation.schema.clone(), table: relation.table.clone() };
    let error = ConnectError::data("the server did not send this column of the key");
    in_column(error, relation, column)
        .with_fix(format!("ALTER TABLE {} REPLICA IDENTITY FULL", name.quoted()))
}

/// The names of a relation's columns as members of a JSON object, written once.
#[derive(Debug)]
pub(super) struct Members {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Members {
    pub(super) fn new(relation: &Relation) -> Self {
        let mut text = BytesMut::new();
        let mut ends = Vec::with_capacity(relation.columns.len());
        for column in &relation.columns {
            text.put_u8(b',');
            json::string(&mut text, &column.name);
            text.put_u8(b':');
            ends.push(text.len());
        }
        Self { text: text.into(), ends }
    }

    /// Appends `,"name":`, without the comma for the first member.
    #[inline]
    pub(super) fn write(&self, out: &mut BytesMut, index: usize, first: bool) {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        out.put_slice(&self.text[start + usize::from(first)..self.ends[index]]);
    }
}
