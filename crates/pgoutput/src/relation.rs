//! Tables and types: what the rows that follow refer to by oid.
//!
//! <https://www.postgresql.org/docs/17/protocol-logicalrep-message-formats.html>

use core::fmt;

use crate::DecodeError;
use crate::reader::Reader;

/// `R`, protocol 1: a table as the rows that follow see it. May come again at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation<'a> {
    /// u32, inside a stream only: the (sub)transaction in whose eyes the table looks like this.
    pub xid: Option<u32>,
    /// u32: the table's oid.
    pub oid: u32,
    /// Text: the schema; empty for `pg_catalog`.
    pub namespace: &'a str,
    /// Text: the table's name.
    pub name: &'a str,
    /// u8: what identifies a row in old tuples.
    pub identity: ReplicaIdentity,
    /// u16 count, then the columns in the order of every row's cells.
    pub columns: Columns<'a>,
}

impl<'a> Relation<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>, in_stream: bool) -> Result<Self, DecodeError> {
        let xid = reader.xid_in_stream(in_stream)?;
        let oid = reader.u32("oid")?;
        let namespace = reader.text("namespace")?;
        let name = reader.text("name")?;
        let identity = reader.u8("replica identity")?;
        let Some(identity) = ReplicaIdentity::from_byte(identity) else {
            return Err(reader.wrong_byte("replica identity", "unknown replica identity", identity));
        };
        let columns = Columns::decode(reader)?;
        Ok(Self { xid, oid, namespace, name, identity, columns })
    }
}

/// `REPLICA IDENTITY` of a table (`pg_class.relreplident`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaIdentity {
    /// `d`: the primary key, or nothing where there is none.
    Default,
    /// `n`: nothing; the server rejects UPDATE and DELETE.
    Nothing,
    /// `f`: the whole old row.
    Full,
    /// `i`: a unique index; when it was dropped, no column is flagged.
    Index,
}

impl ReplicaIdentity {
    /// From `pg_class.relreplident`.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'd' => Some(Self::Default),
            b'n' => Some(Self::Nothing),
            b'f' => Some(Self::Full),
            b'i' => Some(Self::Index),
            _ => None,
        }
    }

    /// As in `pg_class.relreplident`.
    pub const fn as_byte(self) -> u8 {
        match self {
            Self::Default => b'd',
            Self::Nothing => b'n',
            Self::Full => b'f',
            Self::Index => b'i',
        }
    }
}

/// One column of a [`Relation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column<'a> {
    /// Bit 0 of a flags u8: part of the replica identity (of the key; every column where it is full).
    pub key: bool,
    /// Text: the column's name.
    pub name: &'a str,
    /// u32: the type's oid.
    pub type_oid: u32,
    /// i32: the type modifier (`atttypmod`); -1 when there is none, and for columns of a domain.
    pub type_modifier: i32,
}

impl<'a> Column<'a> {
    pub(crate) const FLAG_KEY: u8 = 1;

    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            key: reader.flags(Self::FLAG_KEY, "column flags")? != 0,
            name: reader.text("column name")?,
            type_oid: reader.u32("column type oid")?,
            type_modifier: reader.i32("column type modifier")?,
        })
    }
}

/// The columns of a [`Relation`]: a view of the wire bytes, checked when the message was decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Columns<'a> {
    count: u16,
    raw: &'a [u8],
}

impl<'a> Columns<'a> {
    /// A view of columns that are known to be well formed.
    #[cfg(feature = "encode")]
    pub(crate) const fn from_parts(count: u16, raw: &'a [u8]) -> Self {
        Self { count, raw }
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = reader.u16("column count")?;
        let start = reader.rest();
        for _ in 0..count {
            Column::decode(reader)?;
        }
        Ok(Self { count, raw: reader.taken_since(start) })
    }

    /// Number of columns, as on the wire.
    #[cfg(feature = "encode")]
    pub(crate) const fn count(&self) -> u16 {
        self.count
    }

    /// The wire bytes behind the count.
    #[cfg(feature = "encode")]
    pub(crate) const fn as_bytes(&self) -> &'a [u8] {
        self.raw
    }

    /// Number of columns; may be 0.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are no columns.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The columns in the order of every row's cells.
    pub const fn iter(&self) -> ColumnsIter<'a> {
        ColumnsIter { reader: Reader::new(self.raw), remaining: self.count }
    }
}

impl fmt::Debug for Columns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for Columns<'a> {
    type Item = Column<'a>;
    type IntoIter = ColumnsIter<'a>;

    fn into_iter(self) -> ColumnsIter<'a> {
        self.iter()
    }
}

/// Iterator over the [`Columns`] of a relation.
#[derive(Debug, Clone)]
pub struct ColumnsIter<'a> {
    reader: Reader<'a>,
    remaining: u16,
}

impl<'a> Iterator for ColumnsIter<'a> {
    type Item = Column<'a>;

    fn next(&mut self) -> Option<Column<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        // Cannot fail: the same bytes were read the same way when the message was decoded.
        Column::decode(&mut self.reader).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let remaining = usize::from(self.remaining);
        (remaining, Some(remaining))
    }
}

impl ExactSizeIterator for ColumnsIter<'_> {}

/// `Y`, protocol 1: the name of a type that is not built in, before the [`Relation`] that uses it.
///
/// For a domain it is the domain's oid with the base type's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type<'a> {
    /// u32, inside a stream only: the (sub)transaction.
    pub xid: Option<u32>,
    /// u32: the type's oid.
    pub oid: u32,
    /// Text: the schema; empty for `pg_catalog`.
    pub namespace: &'a str,
    /// Text: the type's name.
    pub name: &'a str,
}

impl<'a> Type<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>, in_stream: bool) -> Result<Self, DecodeError> {
        Ok(Self {
            xid: reader.xid_in_stream(in_stream)?,
            oid: reader.u32("oid")?,
            namespace: reader.text("namespace")?,
            name: reader.text("name")?,
        })
    }
}
