//! Changes of rows and tables: Insert, Update, Delete, Truncate.
//!
//! <https://www.postgresql.org/docs/17/protocol-logicalrep-message-formats.html>

use core::fmt;

use crate::DecodeError;
use crate::reader::Reader;
use crate::tuple::{NEW_TUPLE, OLD_TUPLE, Tuple};

const NEW_TUPLE_KIND: &str = "new tuple kind";
const OLD_TUPLE_KIND: &str = "old tuple kind";

/// `I`, protocol 1: a row was inserted (or entered the publication's row filter).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insert<'a> {
    /// u32, inside a stream only: the (sub)transaction that made the change.
    pub xid: Option<u32>,
    /// u32: oid of the [`Relation`](crate::Relation).
    pub relation: u32,
    /// `N`: the new row. A cell may be unchanged where a row filter turned an UPDATE into an INSERT.
    pub new: Tuple<'a>,
}

impl<'a> Insert<'a> {
    #[inline]
    pub(crate) fn decode(reader: &mut Reader<'a>, in_stream: bool) -> Result<Self, DecodeError> {
        let xid = reader.xid_in_stream(in_stream)?;
        let relation = reader.u32("relation oid")?;
        reader.expect_byte(b'N', NEW_TUPLE_KIND)?;
        let new = Tuple::decode(reader, &NEW_TUPLE)?;
        Ok(Self { xid, relation, new })
    }
}

/// What an old tuple holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldTupleKind {
    /// `K`: the columns of the replica identity; the others are null and mean "not part of the key".
    Key,
    /// `O`: the whole row (`REPLICA IDENTITY FULL`).
    Full,
}

impl OldTupleKind {
    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'K' => Some(Self::Key),
            b'O' => Some(Self::Full),
            _ => None,
        }
    }

    /// The byte before the tuple.
    #[cfg(feature = "encode")]
    pub(crate) const fn as_byte(self) -> u8 {
        match self {
            Self::Key => b'K',
            Self::Full => b'O',
        }
    }
}

/// The row before an Update or Delete, as far as the replica identity tells it. As wide as the relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldTuple<'a> {
    /// Key columns only, or all.
    pub kind: OldTupleKind,
    /// The cells.
    pub tuple: Tuple<'a>,
}

/// `U`, protocol 1: a row was updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update<'a> {
    /// u32, inside a stream only: the (sub)transaction that made the change.
    pub xid: Option<u32>,
    /// u32: oid of the [`Relation`](crate::Relation).
    pub relation: u32,
    /// The old row: always where the identity is full, otherwise when the key changed or is stored out of line.
    pub old: Option<OldTuple<'a>>,
    /// `N`: the new row.
    pub new: Tuple<'a>,
}

impl<'a> Update<'a> {
    #[inline]
    pub(crate) fn decode(reader: &mut Reader<'a>, in_stream: bool) -> Result<Self, DecodeError> {
        let xid = reader.xid_in_stream(in_stream)?;
        let relation = reader.u32("relation oid")?;
        let kind = reader.u8("tuple kind")?;
        let old = if let Some(kind) = OldTupleKind::from_byte(kind) {
            let tuple = Tuple::decode(reader, &OLD_TUPLE)?;
            reader.expect_byte(b'N', NEW_TUPLE_KIND)?;
            Some(OldTuple { kind, tuple })
        } else if kind == b'N' {
            None
        } else {
            return Err(reader.wrong_byte("tuple kind", "unknown tuple kind", kind));
        };
        let new = Tuple::decode(reader, &NEW_TUPLE)?;
        Ok(Self { xid, relation, old, new })
    }
}

/// `D`, protocol 1: a row was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delete<'a> {
    /// u32, inside a stream only: the (sub)transaction that made the change.
    pub xid: Option<u32>,
    /// u32: oid of the [`Relation`](crate::Relation).
    pub relation: u32,
    /// The old row, or its key.
    pub old: OldTuple<'a>,
}

impl<'a> Delete<'a> {
    #[inline]
    pub(crate) fn decode(reader: &mut Reader<'a>, in_stream: bool) -> Result<Self, DecodeError> {
        let xid = reader.xid_in_stream(in_stream)?;
        let relation = reader.u32("relation oid")?;
        let kind = reader.u8(OLD_TUPLE_KIND)?;
        let Some(kind) = OldTupleKind::from_byte(kind) else {
            return Err(reader.wrong_byte(OLD_TUPLE_KIND, "unknown tuple kind", kind));
        };
        let tuple = Tuple::decode(reader, &OLD_TUPLE)?;
        Ok(Self { xid, relation, old: OldTuple { kind, tuple } })
    }
}

/// `T`, protocol 1, since PostgreSQL 11: tables were emptied, those reached by CASCADE included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncate<'a> {
    /// u32, inside a stream only: the (sub)transaction that made the change.
    pub xid: Option<u32>,
    /// Bit 0 of a flags u8: `CASCADE`.
    pub cascade: bool,
    /// Bit 1 of a flags u8: `RESTART IDENTITY`.
    pub restart_identity: bool,
    /// u32 count (before the flags), then the oids of the [`Relation`](crate::Relation)s.
    pub relations: RelationOids<'a>,
}

impl<'a> Truncate<'a> {
    pub(crate) const FLAG_CASCADE: u8 = 1;
    pub(crate) const FLAG_RESTART_IDENTITY: u8 = 2;

    pub(crate) fn decode(reader: &mut Reader<'a>, in_stream: bool) -> Result<Self, DecodeError> {
        let xid = reader.xid_in_stream(in_stream)?;
        let count = reader.u32("relation count")?;
        let flags = reader.flags(Self::FLAG_CASCADE | Self::FLAG_RESTART_IDENTITY, "flags")?;
        let relations = RelationOids::decode(reader, count)?;
        Ok(Self {
            xid,
            cascade: flags & Self::FLAG_CASCADE != 0,
            restart_identity: flags & Self::FLAG_RESTART_IDENTITY != 0,
            relations,
        })
    }
}

/// The relations of a [`Truncate`]: a view of the wire bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RelationOids<'a> {
    oids: &'a [[u8; 4]],
}

impl<'a> RelationOids<'a> {
    /// A view of oids in network byte order.
    #[cfg(feature = "encode")]
    pub(crate) const fn from_wire(oids: &'a [[u8; 4]]) -> Self {
        Self { oids }
    }

    /// The oids in network byte order.
    #[cfg(feature = "encode")]
    pub(crate) const fn as_wire(&self) -> &'a [[u8; 4]] {
        self.oids
    }

    fn decode(reader: &mut Reader<'a>, count: u32) -> Result<Self, DecodeError> {
        const OIDS: &str = "relation oids";
        // Compared with the input before it is used: a count of 2^32 - 1 costs nothing.
        let Some(length) = count.checked_mul(4) else {
            return Err(reader.error(OIDS, "more relations than the input holds"));
        };
        let (oids, _) = reader.bytes(length, OIDS)?.as_chunks::<4>();
        Ok(Self { oids })
    }

    /// Number of relations.
    pub const fn len(&self) -> usize {
        self.oids.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.oids.is_empty()
    }

    /// The oids in the order sent.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + Clone + use<'a> {
        self.oids.iter().map(|oid| u32::from_be_bytes(*oid))
    }
}

impl fmt::Debug for RelationOids<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
