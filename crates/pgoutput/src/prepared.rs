//! Two-phase transactions (`two_phase`), since PostgreSQL 15, protocol 3.
//!
//! A slot that was ever two-phase sends them whatever the protocol version.
//!
//! <https://www.postgresql.org/docs/17/protocol-logicalrep-message-formats.html>

use crate::DecodeError;
use crate::reader::Reader;

/// `b`, protocol 3: a transaction that was prepared begins. Its changes and its [`Prepare`] follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeginPrepare<'a> {
    /// u64: LSN of the prepare record.
    pub prepare_lsn: u64,
    /// u64: LSN at which the prepare record ends.
    pub end_lsn: u64,
    /// i64: prepare time in µs since 2000-01-01 UTC.
    pub prepare_time_us: i64,
    /// u32: the transaction's id.
    pub xid: u32,
    /// Text: the name given to `PREPARE TRANSACTION`.
    pub gid: &'a str,
}

impl<'a> BeginPrepare<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            prepare_lsn: reader.u64("prepare lsn")?,
            end_lsn: reader.u64("end lsn")?,
            prepare_time_us: reader.i64("prepare time")?,
            xid: reader.u32("xid")?,
            gid: reader.text("gid")?,
        })
    }
}

/// `P`, protocol 3: the transaction of the last [`BeginPrepare`] is prepared. And `p`, with streaming: a streamed
/// transaction is prepared ([`Message::StreamPrepare`](crate::Message::StreamPrepare)).
///
/// On the wire a flags u8 comes first; it is always 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prepare<'a> {
    /// u64: LSN of the prepare record.
    pub prepare_lsn: u64,
    /// u64: LSN at which the prepare record ends.
    pub end_lsn: u64,
    /// i64: prepare time in µs since 2000-01-01 UTC.
    pub prepare_time_us: i64,
    /// u32: the (top-level) transaction.
    pub xid: u32,
    /// Text: the name given to `PREPARE TRANSACTION`.
    pub gid: &'a str,
}

impl<'a> Prepare<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.flags(0, "flags")?;
        Ok(Self {
            prepare_lsn: reader.u64("prepare lsn")?,
            end_lsn: reader.u64("end lsn")?,
            prepare_time_us: reader.i64("prepare time")?,
            xid: reader.u32("xid")?,
            gid: reader.text("gid")?,
        })
    }
}

/// `K`, protocol 3: `COMMIT PREPARED`. The rows came with the prepare.
///
/// On the wire a flags u8 comes first; it is always 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitPrepared<'a> {
    /// u64: LSN at which the commit record starts.
    pub commit_lsn: u64,
    /// u64: LSN at which the commit record ends.
    pub end_lsn: u64,
    /// i64: commit time in µs since 2000-01-01 UTC.
    pub commit_time_us: i64,
    /// u32: the transaction that was prepared.
    pub xid: u32,
    /// Text: the name given to `PREPARE TRANSACTION`.
    pub gid: &'a str,
}

impl<'a> CommitPrepared<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.flags(0, "flags")?;
        Ok(Self {
            commit_lsn: reader.u64("commit lsn")?,
            end_lsn: reader.u64("end lsn")?,
            commit_time_us: reader.i64("commit time")?,
            xid: reader.u32("xid")?,
            gid: reader.text("gid")?,
        })
    }
}

/// `r`, protocol 3: `ROLLBACK PREPARED`. What came with the prepare is void.
///
/// On the wire a flags u8 comes first; it is always 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollbackPrepared<'a> {
    /// u64: LSN at which the prepare record ends.
    pub prepare_end_lsn: u64,
    /// u64: LSN at which the rollback record ends.
    pub rollback_end_lsn: u64,
    /// i64: prepare time in µs since 2000-01-01 UTC.
    pub prepare_time_us: i64,
    /// i64: rollback time in µs since 2000-01-01 UTC.
    pub rollback_time_us: i64,
    /// u32: the transaction that was prepared.
    pub xid: u32,
    /// Text: the name given to `PREPARE TRANSACTION`.
    pub gid: &'a str,
}

impl<'a> RollbackPrepared<'a> {
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.flags(0, "flags")?;
        Ok(Self {
            prepare_end_lsn: reader.u64("prepare end lsn")?,
            rollback_end_lsn: reader.u64("rollback end lsn")?,
            prepare_time_us: reader.i64("prepare time")?,
            rollback_time_us: reader.i64("rollback time")?,
            xid: reader.u32("xid")?,
            gid: reader.text("gid")?,
        })
    }
}
