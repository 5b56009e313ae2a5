//! A table as the stream describes it at one point: the Relation message, joined with what the catalogue adds.

use std::sync::Arc;

pub use crabka_pgoutput::ReplicaIdentity;

use crate::types::ColumnType;

/// One version of a table's description. Immutable: a new Relation message makes a new one.
#[derive(Debug)]
pub struct Relation {
    /// Relation oid.
    pub oid: u32,
    /// Schema, as the server spells it.
    pub schema: String,
    /// Table name, as the server spells it.
    pub table: String,
    /// Replica identity.
    pub identity: ReplicaIdentity,
    /// Columns in the order of the Relation message; cells of a row are in the same order.
    pub columns: Vec<Column>,
    /// Indices into `columns` of the key, in key order; empty for a key-less table.
    pub key: Vec<usize>,
    /// Topic of the table's changes, already sanitised.
    pub topic: Arc<str>,
    /// Unique per version within the process: the handle for caches of prepared output.
    pub version: u64,
}

/// A column of a [`Relation`].
#[derive(Debug)]
pub struct Column {
    /// Name, as the server spells it.
    pub name: String,
    /// Type oid.
    pub type_oid: u32,
    /// Type modifier; -1 when there is none.
    pub typmod: i32,
    /// Whether the column is part of the replica identity.
    pub in_identity: bool,
    /// Whether the catalogue says NOT NULL; `None` when unknown.
    pub not_null: Option<bool>,
    /// How its values are decoded.
    pub column_type: ColumnType,
}

impl Relation {
    /// Schema and table for messages: `public.orders`, without quotes.
    pub fn qualified_name(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }

    /// Index of the column of that name.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}
