//! PostgreSQL types: from what the server sends, text or binary, to one value.
//!
//! Step 7 of a change's way begins here: an encoder asks the [`ColumnType`] of a column for the [`Value`] of a cell.
//! A value borrows from the cell. Both forms of the wire give the same value; a type without a value of its own is
//! the server's text, which is made from the binary form where that tells everything the text tells
//! ([`ColumnType::binary_is_known`]).
//!
//! A new type: one file with its decoding functions, one line in `registry.rs`, rows in the type table test.

mod array;
mod bits;
mod bytea;
pub(crate) mod calendar;
mod error;
mod float;
mod geometric;
mod hstore;
mod integer;
mod interval;
mod money;
mod network;
mod numeric;
mod range;
mod read;
mod registry;
mod system;
mod text;
mod textsearch;
mod time;
mod timestamp;
pub(crate) mod uuid;
mod value;
pub(crate) mod write;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use bytes::BytesMut;

pub use self::array::Array;
pub(crate) use self::array::Step;
pub use self::bits::Bits;
pub use self::bytea::Bytea;
pub(crate) use self::error::Malformed;
pub use self::error::{Form, ValueError};
pub use self::hstore::Hstore;
pub use self::interval::Interval;
pub use self::money::Money;
pub use self::numeric::{Decimal, Numeric};
pub(crate) use self::numeric::{Unscaled, declared_scale};
use self::range::RangeText;
pub use self::registry::Kind;
use self::registry::{BUILTINS, Binary, Builtin, Codec, ENUM, EXTENSIONS, UNKNOWN};
pub use self::time::{Time, TimeTz};
pub use self::timestamp::{Date, Infinity, Timestamp};
pub use self::value::{ServerText, Value};

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
        /// `typdelim` of the element type: what separates elements in text.
        delimiter: u8,
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
#[derive(Clone)]
pub struct ColumnType {
    oid: u32,
    /// Below all domains.
    base_oid: u32,
    /// Of the column, or of the first domain on the way down that has one.
    typmod: i32,
    name: Cow<'static, str>,
    shape: Shape,
}

#[derive(Debug, Clone)]
enum Shape {
    Plain(&'static Codec),
    Array { element: Box<ColumnType>, delimiter: u8 },
    Range { bound: Box<ColumnType>, multi: bool },
}

/// Types nest (domains over arrays of domains …); the catalogue cannot make a cycle, a wrong entry could.
const NESTING_MAX: usize = 32;

impl ColumnType {
    /// Resolves a type through domains and arrays. An oid that is neither built in nor registered becomes the
    /// server's text.
    pub fn resolve(oid: u32, typmod: i32, registry: &TypeRegistry) -> Self {
        Self::resolve_within(oid, typmod, registry, NESTING_MAX)
    }

    fn resolve_within(oid: u32, typmod: i32, registry: &TypeRegistry, depth: usize) -> Self {
        let new = |name, shape| Self { oid, base_oid: oid, typmod, name, shape };
        let plain = |name: Cow<'static, str>, codec| new(name, Shape::Plain(codec));
        let Some(depth) = depth.checked_sub(1) else { return plain(format!("oid {oid}").into(), &UNKNOWN) };
        let inner = |oid, typmod| Box::new(Self::resolve_within(oid, typmod, registry, depth));
        for entry in BUILTINS {
            if entry.array_oid == oid {
                let shape = Shape::Array {
                    element: inner(entry.oid, typmod),
                    delimiter: registry::delimiter(entry.oid),
                };
                return new(format!("{}[]", entry.name).into(), shape);
            }
            if entry.oid == oid {
                let shape = match &entry.builtin {
                    Builtin::Plain(codec) => Shape::Plain(codec),
                    Builtin::Range { bound } => Shape::Range { bound: inner(*bound, -1), multi: false },
                    Builtin::Multirange { bound } => Shape::Range { bound: inner(*bound, -1), multi: true },
                };
                return new(entry.name.into(), shape);
            }
        }
        let Some(entry) = registry.get(oid) else { return plain(format!("oid {oid}").into(), &UNKNOWN) };
        let name = Cow::from(format!("{}.{}", entry.schema, entry.name));
        match &entry.kind {
            TypeKind::Domain { base, typmod: own } => {
                let base =
                    Self::resolve_within(*base, if typmod == -1 { *own } else { typmod }, registry, depth);
                Self { oid, name, ..base }
            }
            TypeKind::Array { element, delimiter } => {
                new(name, Shape::Array { element: inner(*element, typmod), delimiter: *delimiter })
            }
            TypeKind::Enum { .. } => plain(name, &ENUM),
            TypeKind::Range { subtype } => {
                new(name, Shape::Range { bound: inner(*subtype, -1), multi: false })
            }
            TypeKind::Multirange { range } => match inner(*range, -1).shape {
                Shape::Range { bound, multi: false } => new(name, Shape::Range { bound, multi: true }),
                _ => plain(name, &UNKNOWN),
            },
            TypeKind::Base | TypeKind::Composite | TypeKind::Other => {
                let extension = entry.extension.as_deref();
                let known = EXTENSIONS
                    .iter()
                    .find(|(owner, name, _)| extension == Some(owner) && entry.name == *name);
                plain(name, known.map_or(&UNKNOWN, |(_, _, codec)| codec))
            }
        }
    }

    /// Oid of the type itself: of a domain, not of its base.
    pub fn oid(&self) -> u32 {
        self.oid
    }

    /// Oid of the type below all domains.
    pub fn base_oid(&self) -> u32 {
        self.base_oid
    }

    /// The modifier in force: the column's, or the first one met on the way down a chain of domains; -1 when there
    /// is none.
    pub fn typmod(&self) -> i32 {
        self.typmod
    }

    /// Name of the type: of a domain, not of its base.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What kind of value it has.
    pub fn kind(&self) -> Kind {
        match &self.shape {
            Shape::Plain(codec) => codec.kind,
            Shape::Array { .. } => Kind::Array,
            Shape::Range { .. } => Kind::ServerText,
        }
    }

    /// The type of the elements, for an array or a domain over one.
    pub fn element(&self) -> Option<&Self> {
        match &self.shape {
            Shape::Array { element, .. } => Some(element),
            Shape::Plain(_) | Shape::Range { .. } => None,
        }
    }

    /// Whether the binary form decodes to the same value as the text form. A captured column that answers
    /// `false` puts the stream on text.
    pub fn binary_is_known(&self) -> bool {
        match &self.shape {
            Shape::Plain(codec) => !matches!(codec.binary, Binary::Unknown),
            Shape::Array { element, .. } => element.binary_is_known(),
            Shape::Range { bound, .. } => bound.binary_is_known(),
        }
    }

    /// The value of a text cell.
    ///
    /// # Errors
    ///
    /// [`ValueError`] when the text is not of this type; the data class.
    pub fn from_text<'a>(&'a self, bytes: &'a [u8]) -> Result<Value<'a>, ValueError> {
        self.decode(Form::Text, bytes).map_err(|malformed| self.error(Form::Text, malformed))
    }

    /// The value of a binary cell: the same as that of the text.
    ///
    /// # Errors
    ///
    /// [`ValueError`] when the bytes are not of this type, or the binary form of this type is not known; the data
    /// class.
    pub fn from_binary<'a>(&'a self, bytes: &'a [u8]) -> Result<Value<'a>, ValueError> {
        self.decode(Form::Binary, bytes).map_err(|malformed| self.error(Form::Binary, malformed))
    }

    /// What the server prints for a cell, under the settings of our sessions.
    ///
    /// # Errors
    ///
    /// [`ValueError`] as for [`from_text`](Self::from_text) and [`from_binary`](Self::from_binary).
    pub fn server_text(&self, form: Form, bytes: &[u8]) -> Result<String, ValueError> {
        let mut out = BytesMut::new();
        self.write_server_text(form, bytes, &mut out)?;
        String::from_utf8(out.into()).map_err(|_| self.error(form, Malformed("not UTF-8")))
    }

    pub(crate) fn write_server_text(
        &self,
        form: Form,
        bytes: &[u8],
        out: &mut BytesMut,
    ) -> Result<(), ValueError> {
        self.decode(form, bytes)
            .and_then(|value| value.write_server_text(out))
            .map_err(|malformed| self.error(form, malformed))
    }

    #[inline]
    pub(crate) fn decode<'a>(&'a self, form: Form, bytes: &'a [u8]) -> Result<Value<'a>, Malformed> {
        match (&self.shape, form) {
            (Shape::Plain(codec), Form::Text) => (codec.text)(bytes),
            (Shape::Plain(codec), Form::Binary) => match codec.binary {
                Binary::Decode(decode) => decode(bytes),
                Binary::Render(render) => Ok(Value::ServerText(ServerText::binary(bytes, render))),
                Binary::Unknown => Err(Malformed("the type's binary form is not known")),
            },
            (Shape::Array { element, delimiter }, form) => {
                Ok(Value::Array(Array::new(element, *delimiter, form, bytes)))
            }
            (Shape::Range { .. }, Form::Text) => text::server_text(bytes),
            (Shape::Range { bound, multi }, Form::Binary) => {
                Ok(Value::ServerText(ServerText::range(RangeText { bound, multi: *multi, bytes })))
            }
        }
    }

    pub(crate) fn error(&self, form: Form, malformed: Malformed) -> ValueError {
        ValueError { type_name: self.name.clone(), form, reason: malformed.0 }
    }
}

impl PartialEq for ColumnType {
    fn eq(&self, other: &Self) -> bool {
        let same_shape = match (&self.shape, &other.shape) {
            (Shape::Plain(codec), Shape::Plain(other)) => std::ptr::eq(*codec, *other),
            (
                Shape::Array { element, delimiter },
                Shape::Array { element: other, delimiter: other_delimiter },
            ) => element == other && delimiter == other_delimiter,
            (Shape::Range { bound, multi }, Shape::Range { bound: other, multi: other_multi }) => {
                bound == other && multi == other_multi
            }
            _ => false,
        };
        same_shape && (self.oid, self.typmod) == (other.oid, other.typmod)
    }
}

/// Every built-in type and its array type.
#[cfg(feature = "fuzz")]
pub(crate) fn builtin_oids() -> impl Iterator<Item = u32> {
    BUILTINS.iter().flat_map(|entry| [entry.oid, entry.array_oid])
}

impl fmt::Debug for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColumnType({} {}/{})", self.name, self.oid, self.typmod)
    }
}
