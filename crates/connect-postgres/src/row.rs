//! A row of a table: cells of the wire, read by column.
//!
//! For those who embed the source: [`Row::get`] reads a column by name and Rust type, straight from the bytes the
//! server sent. What a row of the stream can say about a column is more than a value or null: [`Field`] keeps the
//! cases apart.
//!
//! ```
//! use crabka_connect_postgres::{ChangeEvent, Field, FieldError};
//!
//! fn total(event: &ChangeEvent) -> Result<Option<i64>, FieldError> {
//!     let Some(row) = event.after() else { return Ok(None) };
//!     Ok(match row.get::<i64>("total")? {
//!         Field::Value(total) => Some(total),
//!         // Null: there is no value. Unchanged: there is one, but the server did not send it again.
//!         Field::Null | Field::Unchanged | Field::Absent => None,
//!     })
//! }
//! ```

use crabka_connect::ConnectError;
use crabka_pgoutput::{Cell, Cells, Tuple};

use crate::event::OldRow;
use crate::from_value::FromValue;
use crate::relation::{Column, Relation, ReplicaIdentity};
use crate::types::{Form, Value, ValueError};

/// A view of one row.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    relation: &'a Relation,
    tuple: Tuple<'a>,
    /// `true`: an old row of which only the identity columns were sent.
    key_only: bool,
    old: Option<(Tuple<'a>, bool)>,
}

/// What a row tells about a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field<T> {
    /// The column's value.
    Value(T),
    /// SQL NULL.
    Null,
    /// A value stored out of line (TOAST) that the change did not touch, so that the server did not send it again.
    Unchanged,
    /// Not part of this row: an old row of which only the identity columns were sent.
    Absent,
}

impl<T> Field<T> {
    /// The value, if there is one.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Null | Self::Unchanged | Self::Absent => None,
        }
    }

    /// Whether the row tells the column's value, null included.
    pub fn is_known(&self) -> bool {
        matches!(self, Self::Value(_) | Self::Null)
    }

    /// The field with its value converted.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Field<U> {
        match self {
            Self::Value(value) => Field::Value(convert(value)),
            Self::Null => Field::Null,
            Self::Unchanged => Field::Unchanged,
            Self::Absent => Field::Absent,
        }
    }
}

/// A cell that holds a value: its form and its bytes.
pub(crate) type WireValue<'a> = (Form, &'a [u8]);

/// Why a column could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The table has no such column.
    #[error("table {table} has no column of that name: {column}")]
    NoSuchColumn {
        /// The table, with its schema.
        table: String,
        /// The name that was asked for.
        column: String,
    },
    /// The row has fewer cells than the table has columns.
    #[error("row of table {table} ends before column: {column}")]
    RowTooShort {
        /// The table, with its schema.
        table: String,
        /// The column.
        column: String,
    },
    /// The value is not of the column's type.
    #[error("table {table}, column {column}: {source}")]
    Malformed {
        /// The table, with its schema.
        table: String,
        /// The column.
        column: String,
        /// What is wrong.
        source: ValueError,
    },
    /// The value does not fit the Rust type that was asked for.
    #[error("table {table}, column {column}: a value of type {type_name} cannot be read as {wanted}")]
    WrongType {
        /// The table, with its schema.
        table: String,
        /// The column.
        column: String,
        /// The column's type.
        type_name: String,
        /// The Rust type.
        wanted: &'static str,
    },
}

impl From<FieldError> for ConnectError {
    fn from(error: FieldError) -> Self {
        let message = error.to_string();
        match error {
            FieldError::Malformed { .. } | FieldError::WrongType { .. } => {
                Self::data(message).with_source(error)
            }
            FieldError::NoSuchColumn { .. } => Self::configuration(message).with_source(error),
            FieldError::RowTooShort { .. } => Self::bug(message).with_source(error),
        }
    }
}

impl<'a> Row<'a> {
    /// An old row.
    pub fn old(relation: &'a Relation, old: &'a OldRow) -> Self {
        Self { relation, tuple: Tuple::from_bytes(&old.tuple), key_only: !old.full, old: None }
    }

    /// A new row, with the old one for values that were not sent again.
    pub fn new(relation: &'a Relation, tuple: &'a [u8], old: Option<&'a OldRow>) -> Self {
        Self {
            relation,
            tuple: Tuple::from_bytes(tuple),
            key_only: false,
            old: old.map(|old| (Tuple::from_bytes(&old.tuple), old.full)),
        }
    }

    /// The table.
    pub fn relation(&self) -> &'a Relation {
        self.relation
    }

    /// Whether only the identity columns were sent; the other fields are [`Field::Absent`].
    pub fn is_key_only(&self) -> bool {
        self.key_only
    }

    /// The column of that name as a Rust type; [`FromValue`] lists them.
    ///
    /// # Errors
    ///
    /// [`FieldError`] when there is no such column, or its value cannot be read, or not as this Rust type.
    pub fn get<T: FromValue<'a>>(&self, name: &str) -> Result<Field<T>, FieldError> {
        let index = self.relation.column_index(name).ok_or_else(|| FieldError::NoSuchColumn {
            table: self.relation.qualified_name(),
            column: name.to_owned(),
        })?;
        self.get_at(index)
    }

    /// As [`get`](Self::get), by index.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_at<T: FromValue<'a>>(&self, index: usize) -> Result<Field<T>, FieldError> {
        let column = self.relation.columns.get(index).ok_or_else(|| FieldError::NoSuchColumn {
            table: self.relation.qualified_name(),
            column: format!("number {index}"),
        })?;
        match self.value_of(index, column)? {
            Field::Value(value) => match T::from_value(value) {
                Some(value) => Ok(Field::Value(value)),
                None => Err(FieldError::WrongType {
                    table: self.relation.qualified_name(),
                    column: column.name.clone(),
                    type_name: column.column_type.name().to_owned(),
                    wanted: std::any::type_name::<T>(),
                }),
            },
            Field::Null => Ok(Field::Null),
            Field::Unchanged => Ok(Field::Unchanged),
            Field::Absent => Ok(Field::Absent),
        }
    }

    /// The column of that name as the server prints it, whatever its type.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn server_text(&self, name: &str) -> Result<Field<String>, FieldError> {
        let index = self.relation.column_index(name).ok_or_else(|| FieldError::NoSuchColumn {
            table: self.relation.qualified_name(),
            column: name.to_owned(),
        })?;
        let column = &self.relation.columns[index];
        match self.wire_at(index).ok_or_else(|| self.too_short(column))? {
            Field::Value((form, bytes)) => column
                .column_type
                .server_text(form, bytes)
                .map(Field::Value)
                .map_err(|source| self.malformed(column, source)),
            Field::Null => Ok(Field::Null),
            Field::Unchanged => Ok(Field::Unchanged),
            Field::Absent => Ok(Field::Absent),
        }
    }

    fn value_of(&self, index: usize, column: &'a Column) -> Result<Field<Value<'a>>, FieldError> {
        let value = match self.wire_at(index).ok_or_else(|| self.too_short(column))? {
            Field::Value((Form::Text, bytes)) => column.column_type.from_text(bytes),
            Field::Value((Form::Binary, bytes)) => column.column_type.from_binary(bytes),
            Field::Null => return Ok(Field::Null),
            Field::Unchanged => return Ok(Field::Unchanged),
            Field::Absent => return Ok(Field::Absent),
        };
        value.map(Field::Value).map_err(|source| self.malformed(column, source))
    }

    fn malformed(&self, column: &Column, source: ValueError) -> FieldError {
        FieldError::Malformed { table: self.relation.qualified_name(), column: column.name.clone(), source }
    }

    fn too_short(&self, column: &Column) -> FieldError {
        FieldError::RowTooShort { table: self.relation.qualified_name(), column: column.name.clone() }
    }

    /// The cell of a column. An unchanged value is taken from the old row where that has it.
    pub fn cell(&self, index: usize) -> Option<Cell<'a>> {
        match self.tuple.cell(index)? {
            Cell::Unchanged => Some(self.old_cell(index).unwrap_or(Cell::Unchanged)),
            cell => Some(cell),
        }
    }

    fn old_cell(&self, index: usize) -> Option<Cell<'a>> {
        let (old, full) = self.old?;
        let in_identity = self.relation.columns.get(index)?.in_identity
            && self.relation.identity != ReplicaIdentity::Nothing;
        if full || in_identity { old.cell(index) } else { None }
    }

    /// What the row tells about one column; `None` when the row has no such cell.
    pub(crate) fn wire_at(&self, index: usize) -> Option<Field<WireValue<'a>>> {
        let column = self.relation.columns.get(index)?;
        Some(self.field(index, column, self.tuple.cell(index)?))
    }

    /// What the row tells about each column, in order; ends early when the row has too few cells.
    pub(crate) fn wire_fields(&self) -> WireFields<'a> {
        WireFields { row: *self, cells: self.tuple.cells(), index: 0 }
    }

    #[inline]
    fn field(&self, index: usize, column: &Column, cell: Cell<'a>) -> Field<WireValue<'a>> {
        let cell = match cell {
            Cell::Text(bytes) => return Field::Value((Form::Text, bytes)),
            Cell::Binary(bytes) => return Field::Value((Form::Binary, bytes)),
            Cell::Unchanged => self.old_cell(index).unwrap_or(Cell::Unchanged),
            Cell::Null => Cell::Null,
        };
        match cell {
            Cell::Text(bytes) => Field::Value((Form::Text, bytes)),
            Cell::Binary(bytes) => Field::Value((Form::Binary, bytes)),
            Cell::Null if self.key_only && !column.in_identity => Field::Absent,
            Cell::Null => Field::Null,
            Cell::Unchanged => Field::Unchanged,
        }
    }
}

/// Iterator over the fields of a [`Row`].
pub(crate) struct WireFields<'a> {
    row: Row<'a>,
    cells: Cells<'a>,
    index: usize,
}

impl<'a> Iterator for WireFields<'a> {
    type Item = (&'a Column, Field<WireValue<'a>>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let column = self.row.relation.columns.get(self.index)?;
        let cell = self.cells.next()?;
        let field = self.row.field(self.index, column, cell);
        self.index += 1;
        Some((column, field))
    }
}
