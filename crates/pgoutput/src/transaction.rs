//! Transactions that are sent whole, in commit order: Begin, Commit, and the Origin behind a Begin; and
//! logical messages (`pg_logical_emit_message`).
//!
//! <https://www.postgresql.org/docs/17/protocol-logicalrep-message-formats.html>

use core::fmt;

use crate::DecodeError;
use crate::reader::Reader;

/// `B`, protocol 1: a transaction begins. Its changes and its [`Commit`] follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// u64: LSN at which the commit record starts; equal to the `commit_lsn` of the [`Commit`].
    pub final_lsn: u64,
    /// i64: commit time in µs since 2000-01-01 UTC; see [`unix_us`](crate::unix_us).
    pub commit_time_us: i64,
    /// u32: the transaction's id.
    pub xid: u32,
}

impl Begin {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            final_lsn: reader.u64("final lsn")?,
            commit_time_us: reader.i64("commit time")?,
            xid: reader.u32("xid")?,
        })
    }
}

/// `C`, protocol 1: the transaction of the last [`Begin`] is complete.
///
/// On the wire a flags u8 comes first; it is always 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// u64: LSN at which the commit record starts.
    pub commit_lsn: u64,
    /// u64: LSN at which the commit record ends: the position to acknowledge and to resume from.
    pub end_lsn: u64,
    /// i64: commit time in µs since 2000-01-01 UTC.
    pub commit_time_us: i64,
}

impl Commit {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.flags(0, "flags")?;
        Ok(Self {
            commit_lsn: reader.u64("commit lsn")?,
            end_lsn: reader.u64("end lsn")?,
            commit_time_us: reader.i64("commit time")?,
        })
    }
}

/// `O`, protocol 1: the transaction came from elsewhere by replication. Follows Begin, or the first Stream
/// Start of a streamed transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin<'a> {
    /// u64: LSN of the commit on the origin; 0 in streamed transactions.
    pub lsn: u64,
    /// Text: the origin's name.
    pub name: &'a str,
}

impl<'a> Origin<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { lsn: reader.u64("lsn")?, name: reader.text("name")? })
    }
}

/// `M`, protocol 1 with the option `messages`, since PostgreSQL 14: what `pg_logical_emit_message` wrote.
///
/// One that is not transactional comes outside Begin and Commit, before the transaction that wrote it.
/// Its `Debug` form leaves the content out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LogicalMessage<'a> {
    /// u32, inside a stream only: the (sub)transaction that wrote it.
    pub xid: Option<u32>,
    /// Bit 0 of a flags u8: belongs to a transaction and vanishes with its abort.
    pub transactional: bool,
    /// u64: LSN at which the message's record ends.
    pub lsn: u64,
    /// Text: the prefix.
    pub prefix: &'a str,
    /// u32 length, then the bytes: as they were written, in no encoding.
    pub content: &'a [u8],
}

impl<'a> LogicalMessage<'a> {
    pub(crate) const FLAG_TRANSACTIONAL: u8 = 1;

    pub(crate) fn decode(reader: &mut Reader<'a>, in_stream: bool) -> Result<Self, DecodeError> {
        let xid = reader.xid_in_stream(in_stream)?;
        let flags = reader.flags(Self::FLAG_TRANSACTIONAL, "flags")?;
        let lsn = reader.u64("lsn")?;
        let prefix = reader.text("prefix")?;
        let length = reader.u32("content length")?;
        let content = reader.bytes(length, "content")?;
        Ok(Self { xid, transactional: flags != 0, lsn, prefix, content })
    }
}

impl fmt::Debug for LogicalMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogicalMessage")
            .field("xid", &self.xid)
            .field("transactional", &self.transactional)
            .field("lsn", &self.lsn)
            .field("prefix", &self.prefix)
            .field("content_bytes", &self.content.len())
            .finish()
    }
}
