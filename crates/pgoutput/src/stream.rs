//! Transactions that are sent in chunks while they run (`streaming`), since PostgreSQL 14, protocol 2.
//!
//! `(Stream Start, changes, Stream Stop)+`, other transactions between the chunks, and at last Stream Commit,
//! Stream Abort or Stream Prepare, outside any chunk.
//!
//! <https://www.postgresql.org/docs/17/protocol-logicalrep-message-formats.html>

use crate::DecodeError;
use crate::reader::Reader;

/// `S`, protocol 2: a chunk of a running transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamStart {
    /// u32: the top-level transaction. The messages of the chunk carry the subtransaction that made them.
    pub xid: u32,
    /// u8, 0 or 1: the transaction's first chunk on this connection.
    pub first_segment: bool,
}

impl StreamStart {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { xid: reader.u32("xid")?, first_segment: reader.flags(1, "first segment")? != 0 })
    }
}

/// `E`, protocol 2: the chunk ends; the transaction is still open. Has no fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamStop {}

/// `c`, protocol 2: a streamed transaction committed.
///
/// On the wire a flags u8 comes behind the xid; it is always 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamCommit {
    /// u32: the top-level transaction.
    pub xid: u32,
    /// u64: LSN at which the commit record starts.
    pub commit_lsn: u64,
    /// u64: LSN at which the commit record ends: the position to acknowledge and to resume from.
    pub end_lsn: u64,
    /// i64: commit time in µs since 2000-01-01 UTC.
    pub commit_time_us: i64,
}

impl StreamCommit {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let xid = reader.u32("xid")?;
        reader.flags(0, "flags")?;
        Ok(Self {
            xid,
            commit_lsn: reader.u64("commit lsn")?,
            end_lsn: reader.u64("end lsn")?,
            commit_time_us: reader.i64("commit time")?,
        })
    }
}

/// `A`, protocol 2: a streamed transaction, or one subtransaction of it, was rolled back.
///
/// May come for a transaction that was never streamed (reported of PostgreSQL 18 with streaming off): it is
/// decoded like any other, and a caller that knows nothing of `xid` ignores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamAbort {
    /// u32: the top-level transaction.
    pub xid: u32,
    /// u32: the subtransaction whose changes are void, and only those; equal to `xid`: all of them.
    pub subxid: u32,
    /// Protocol 4 with `streaming 'parallel'` only.
    pub abort: Option<AbortPoint>,
}

impl StreamAbort {
    pub(crate) fn decode(reader: &mut Reader<'_>, streaming_parallel: bool) -> Result<Self, DecodeError> {
        let xid = reader.u32("xid")?;
        let subxid = reader.u32("subtransaction xid")?;
        let abort = if streaming_parallel {
            Some(AbortPoint { lsn: reader.u64("abort lsn")?, time_us: reader.i64("abort time")? })
        } else {
            None
        };
        Ok(Self { xid, subxid, abort })
    }
}

/// Where and when a streamed transaction was rolled back. Both are 0 for one that ended with a server crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortPoint {
    /// u64: LSN of the abort.
    pub lsn: u64,
    /// i64: abort time in µs since 2000-01-01 UTC.
    pub time_us: i64,
}
