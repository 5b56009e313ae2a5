//! Messages to bytes: for round-trip tests and scripted servers. Feature `encode`.
//!
//! The exact inverse of the decoder: what was decoded encodes to the bytes it came from. Rows, columns and oid
//! lists borrow from buffers that are made first.
//!
//! ```
//! use crabka_pgoutput::{Cell, Decoder, Insert, Message, TupleBuf};
//!
//! let row = TupleBuf::new([Cell::Text(b"42"), Cell::Null])?;
//! let insert = Message::Insert(Insert { xid: None, relation: 16384, new: row.as_tuple() });
//! let mut payload = Vec::new();
//! insert.encode(&mut payload)?;
//! assert_eq!(payload, b"I\0\0\x40\0N\0\x02t\0\0\0\x0242n");
//! assert_eq!(Decoder::new().decode(&payload)?, insert);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::vec::Vec;
use core::fmt;

use crate::reader::Reader;
use crate::tuple::NEW_TUPLE;
use crate::{
    Cell, Column, Columns, LogicalMessage, Message, OldTuple, Prepare, Relation, RelationOids, Truncate,
    Tuple,
};

/// A message that has no wire form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeError {
    /// Field name, for example `column count`.
    pub field: &'static str,
    /// What was wrong.
    pub reason: &'static str,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pgoutput: cannot encode {}: {}", self.field, self.reason)
    }
}

impl core::error::Error for EncodeError {}

const TOO_LARGE: &str = "more than its length or count field can say";

/// A row being built; [`as_tuple`](Self::as_tuple) goes into a message.
#[derive(Clone, PartialEq, Eq)]
pub struct TupleBuf {
    raw: Vec<u8>,
}

impl TupleBuf {
    /// # Errors
    ///
    /// [`EncodeError`] for more than 65535 cells or a value over 4 GiB.
    pub fn new<'a>(cells: impl IntoIterator<Item = Cell<'a>>) -> Result<Self, EncodeError> {
        let mut raw = Vec::from([0, 0]);
        let mut columns: u16 = 0;
        for cell in cells {
            columns = columns
                .checked_add(1)
                .ok_or(EncodeError { field: "tuple column count", reason: TOO_LARGE })?;
            match cell {
                Cell::Null => raw.push(b'n'),
                Cell::Unchanged => raw.push(b'u'),
                Cell::Text(value) => put_value(&mut raw, b't', value)?,
                Cell::Binary(value) => put_value(&mut raw, b'b', value)?,
            }
        }
        if let Some(count) = raw.first_chunk_mut::<2>() {
            *count = columns.to_be_bytes();
        }
        Ok(Self { raw })
    }

    /// The row, to put into a message.
    pub fn as_tuple(&self) -> Tuple<'_> {
        Tuple::from_bytes(&self.raw)
    }
}

impl fmt::Debug for TupleBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_tuple().fmt(f)
    }
}

fn put_value(raw: &mut Vec<u8>, kind: u8, value: &[u8]) -> Result<(), EncodeError> {
    raw.push(kind);
    put_length(raw, value.len(), "cell length")?;
    raw.extend_from_slice(value);
    Ok(())
}

fn put_length(out: &mut Vec<u8>, length: usize, field: &'static str) -> Result<(), EncodeError> {
    let length = u32::try_from(length).map_err(|_| EncodeError { field, reason: TOO_LARGE })?;
    out.extend_from_slice(&length.to_be_bytes());
    Ok(())
}

fn put_text(out: &mut Vec<u8>, text: &str, field: &'static str) -> Result<(), EncodeError> {
    if text.bytes().any(|byte| byte == 0) {
        return Err(EncodeError { field, reason: "a text cannot hold a zero byte" });
    }
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Ok(())
}

/// The columns of a relation being built; [`as_columns`](Self::as_columns) goes into a [`Relation`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnsBuf {
    count: u16,
    raw: Vec<u8>,
}

impl ColumnsBuf {
    /// # Errors
    ///
    /// [`EncodeError`] for more than 65535 columns or a name with a zero byte.
    pub fn new<'a>(columns: impl IntoIterator<Item = Column<'a>>) -> Result<Self, EncodeError> {
        let mut raw = Vec::new();
        let mut count: u16 = 0;
        for column in columns {
            count = count.checked_add(1).ok_or(EncodeError { field: "column count", reason: TOO_LARGE })?;
            raw.push(if column.key { Column::FLAG_KEY } else { 0 });
            put_text(&mut raw, column.name, "column name")?;
            raw.extend_from_slice(&column.type_oid.to_be_bytes());
            raw.extend_from_slice(&column.type_modifier.to_be_bytes());
        }
        Ok(Self { count, raw })
    }

    /// The columns, to put into a [`Relation`].
    pub fn as_columns(&self) -> Columns<'_> {
        Columns::from_parts(self.count, &self.raw)
    }
}

/// The oids of a truncate being built; [`as_oids`](Self::as_oids) goes into a [`Truncate`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationOidsBuf {
    oids: Vec<[u8; 4]>,
}

impl RelationOidsBuf {
    /// From oids, in the order to send.
    pub fn new(oids: impl IntoIterator<Item = u32>) -> Self {
        Self { oids: oids.into_iter().map(u32::to_be_bytes).collect() }
    }

    /// The oids, to put into a [`Truncate`].
    pub fn as_oids(&self) -> RelationOids<'_> {
        RelationOids::from_wire(&self.oids)
    }
}

impl Message<'_> {
    /// Appends the message's bytes to `out`.
    ///
    /// An `xid` that is there is written: between Stream Start and Stream Stop it must be, elsewhere it must not.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] for a text with a zero byte, a content over 4 GiB, or a row of [`Tuple::from_bytes`] that is
    /// none. Nothing was appended then.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        let result = Writer { out }.message(self);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }
}

struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

impl Writer<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> &mut Self {
        self.out.extend_from_slice(&bytes);
        self
    }

    fn u8(&mut self, value: u8) -> &mut Self {
        self.put([value])
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.put(value.to_be_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.put(value.to_be_bytes())
    }

    fn i64(&mut self, value: i64) -> &mut Self {
        self.put(value.to_be_bytes())
    }

    fn xid(&mut self, xid: Option<u32>) -> &mut Self {
        if let Some(xid) = xid {
            self.u32(xid);
        }
        self
    }

    fn text(&mut self, text: &str, field: &'static str) -> Result<&mut Self, EncodeError> {
        put_text(self.out, text, field)?;
        Ok(self)
    }

    fn message(&mut self, message: &Message<'_>) -> Result<(), EncodeError> {
        self.u8(message.tag());
        match message {
            Message::Begin(m) => {
                self.u64(m.final_lsn).i64(m.commit_time_us).u32(m.xid);
            }
            Message::Commit(m) => {
                self.u8(0).u64(m.commit_lsn).u64(m.end_lsn).i64(m.commit_time_us);
            }
            Message::Origin(m) => {
                self.u64(m.lsn).text(m.name, "origin name")?;
            }
            Message::Relation(m) => self.relation(m)?,
            Message::Type(m) => {
                self.xid(m.xid).u32(m.oid).text(m.namespace, "type namespace")?.text(m.name, "type name")?;
            }
            Message::Insert(m) => self.xid(m.xid).u32(m.relation).tuple(b'N', m.new)?,
            Message::Update(m) => {
                self.xid(m.xid).u32(m.relation);
                if let Some(old) = m.old {
                    self.old_tuple(old)?;
                }
                self.tuple(b'N', m.new)?;
            }
            Message::Delete(m) => self.xid(m.xid).u32(m.relation).old_tuple(m.old)?,
            Message::Truncate(m) => self.truncate(m)?,
            Message::LogicalMessage(m) => self.logical_message(m)?,
            Message::StreamStart(m) => {
                self.u32(m.xid).u8(u8::from(m.first_segment));
            }
            Message::StreamStop(_) => {}
            Message::StreamCommit(m) => {
                self.u32(m.xid).u8(0).u64(m.commit_lsn).u64(m.end_lsn).i64(m.commit_time_us);
            }
            Message::StreamAbort(m) => {
                self.u32(m.xid).u32(m.subxid);
                if let Some(abort) = m.abort {
                    self.u64(abort.lsn).i64(abort.time_us);
                }
            }
            Message::BeginPrepare(m) => {
                self.u64(m.prepare_lsn)
                    .u64(m.end_lsn)
                    .i64(m.prepare_time_us)
                    .u32(m.xid)
                    .text(m.gid, "gid")?;
            }
            Message::Prepare(m) | Message::StreamPrepare(m) => self.prepare(m)?,
            Message::CommitPrepared(m) => {
                self.u8(0).u64(m.commit_lsn).u64(m.end_lsn).i64(m.commit_time_us);
                self.u32(m.xid).text(m.gid, "gid")?;
            }
            Message::RollbackPrepared(m) => {
                self.u8(0).u64(m.prepare_end_lsn).u64(m.rollback_end_lsn);
                self.i64(m.prepare_time_us).i64(m.rollback_time_us).u32(m.xid).text(m.gid, "gid")?;
            }
        }
        Ok(())
    }

    fn relation(&mut self, m: &Relation<'_>) -> Result<(), EncodeError> {
        self.xid(m.xid).u32(m.oid);
        self.text(m.namespace, "relation namespace")?.text(m.name, "relation name")?;
        self.u8(m.identity.as_byte()).put(m.columns.count().to_be_bytes());
        self.out.extend_from_slice(m.columns.as_bytes());
        Ok(())
    }

    fn truncate(&mut self, m: &Truncate<'_>) -> Result<(), EncodeError> {
        let flags = (if m.cascade { Truncate::FLAG_CASCADE } else { 0 })
            | (if m.restart_identity { Truncate::FLAG_RESTART_IDENTITY } else { 0 });
        self.xid(m.xid);
        put_length(self.out, m.relations.len(), "relation count")?;
        self.u8(flags);
        self.out.extend_from_slice(m.relations.as_wire().as_flattened());
        Ok(())
    }

    fn logical_message(&mut self, m: &LogicalMessage<'_>) -> Result<(), EncodeError> {
        let flags = if m.transactional { LogicalMessage::FLAG_TRANSACTIONAL } else { 0 };
        self.xid(m.xid).u8(flags).u64(m.lsn).text(m.prefix, "message prefix")?;
        put_length(self.out, m.content.len(), "message content length")?;
        self.out.extend_from_slice(m.content);
        Ok(())
    }

    fn prepare(&mut self, m: &Prepare<'_>) -> Result<(), EncodeError> {
        self.u8(0).u64(m.prepare_lsn).u64(m.end_lsn).i64(m.prepare_time_us).u32(m.xid).text(m.gid, "gid")?;
        Ok(())
    }

    fn old_tuple(&mut self, old: OldTuple<'_>) -> Result<(), EncodeError> {
        self.tuple(old.kind.as_byte(), old.tuple)
    }

    fn tuple(&mut self, kind: u8, tuple: Tuple<'_>) -> Result<(), EncodeError> {
        let mut reader = Reader::new(tuple.as_bytes());
        let whole = Tuple::decode(&mut reader, &NEW_TUPLE).and_then(|_| reader.finish());
        if whole.is_err() {
            return Err(EncodeError { field: "tuple", reason: "its bytes are not exactly one row" });
        }
        self.u8(kind).out.extend_from_slice(tuple.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Insert, Origin};

    #[test]
    fn what_has_no_wire_form_is_an_error_and_leaves_the_buffer() {
        let mut out = Vec::from(*b"before");
        let origin = Message::Origin(Origin { lsn: 1, name: "a\0b" });
        assert_eq!(origin.encode(&mut out).unwrap_err().field, "origin name");
        for raw in [&b""[..], b"\0", b"\0\x01", b"\0\x01nn", b"\0\x01x"] {
            let insert = Message::Insert(Insert { xid: None, relation: 1, new: Tuple::from_bytes(raw) });
            assert_eq!(insert.encode(&mut out).unwrap_err().field, "tuple", "{raw:?}");
        }
        assert_eq!(out, b"before");
    }

    #[test]
    fn counts_are_limited_by_their_field() {
        let cells = |count| TupleBuf::new(core::iter::repeat_n(Cell::Null, count));
        assert_eq!(cells(65_535).unwrap().as_tuple().len(), 65_535);
        assert_eq!(cells(65_536).unwrap_err().field, "tuple column count");
        let column = Column { key: true, name: "c", type_oid: 23, type_modifier: -1 };
        let columns = |count| ColumnsBuf::new(core::iter::repeat_n(column, count));
        assert_eq!(columns(65_535).unwrap().as_columns().len(), 65_535);
        assert_eq!(columns(65_536).unwrap_err().field, "column count");
    }
}
