//! The typed change: a view of the bytes the server sent, nothing copied.
//!
//! The `Debug` forms tell widths and sizes only: row values do not belong into logs.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use crabka_pgoutput::Tuple;
use crabka_pgrepl::Lsn;

use crate::relation::Relation;
use crate::row::Row;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// INSERT.
    Insert,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
    /// TRUNCATE.
    Truncate,
    /// `pg_logical_emit_message`.
    Message,
    /// No change: carries an idle position to the checkpoint.
    Heartbeat,
}

/// Which of the records of a key-changing UPDATE an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangePart {
    /// The change is one event.
    Whole,
    /// The delete of the old key; `after` is the new row, for the header that names the new key.
    KeyChangeDelete,
    /// The create of the new key; `before` is the old row, for the header that names the old key.
    KeyChangeCreate,
}

/// What every event of one source has in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceInfo {
    /// Topic prefix, also `source.name`.
    pub topic_prefix: String,
    /// Database name.
    pub database: String,
}

/// Replication origin of a transaction that was itself replicated to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Origin name.
    pub name: String,
    /// Commit LSN at the origin.
    pub lsn: Lsn,
}

/// The committed transaction a change belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Top-level transaction id.
    pub xid: u32,
    /// LSN of the commit record (Begin.final_lsn = Commit.commit_lsn).
    pub commit_lsn: Lsn,
    /// Commit time, microseconds since 1970-01-01 UTC.
    pub commit_time_us: i64,
    /// Where the transaction was first committed, if it came by replication.
    pub origin: Option<Origin>,
    /// End LSN of the last commit before this transaction, if one was seen or restored.
    pub previous_end_lsn: Option<Lsn>,
}

/// The old row of an UPDATE or DELETE, as far as the server sent it.
#[derive(Clone)]
pub struct OldRow {
    /// TupleData bytes.
    pub tuple: Bytes,
    /// `true` for a complete row (REPLICA IDENTITY FULL), `false` for the identity columns only.
    pub full: bool,
}

impl fmt::Debug for OldRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OldRow")
            .field("tuple", &Tuple::from_bytes(&self.tuple))
            .field("full", &self.full)
            .finish()
    }
}

/// A message of `pg_logical_emit_message`.
#[derive(Clone)]
pub struct LogicalMessage {
    /// Whether it belongs to a transaction.
    pub transactional: bool,
    /// The application's prefix.
    pub prefix: String,
    /// The content, raw.
    pub content: Bytes,
}

impl fmt::Debug for LogicalMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogicalMessage")
            .field("transactional", &self.transactional)
            .field("prefix", &self.prefix)
            .field("content_bytes", &self.content.len())
            .finish()
    }
}

/// What an event is about.
#[derive(Clone)]
pub enum Body {
    /// A row of a table.
    Row {
        /// The table, as of the change.
        relation: Arc<Relation>,
        /// The old row, if the server sent one.
        old: Option<OldRow>,
        /// TupleData bytes of the new row; `None` for a DELETE.
        new: Option<Bytes>,
    },
    /// One table of a TRUNCATE.
    Truncate {
        /// The table.
        relation: Arc<Relation>,
        /// CASCADE was given.
        cascade: bool,
        /// RESTART IDENTITY was given.
        restart_identity: bool,
    },
    /// A logical message.
    Message(Box<LogicalMessage>),
    /// A heartbeat.
    Heartbeat,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row { relation, old, new } => f
                .debug_struct("Row")
                .field("relation", &relation.qualified_name())
                .field("old", old)
                .field("new", &new.as_deref().map(Tuple::from_bytes))
                .finish(),
            Self::Truncate { relation, cascade, restart_identity } => f
                .debug_struct("Truncate")
                .field("relation", &relation.qualified_name())
                .field("cascade", cascade)
                .field("restart_identity", restart_identity)
                .finish(),
            Self::Message(message) => message.fmt(f),
            Self::Heartbeat => f.write_str("Heartbeat"),
        }
    }
}

/// One change of a committed transaction.
///
/// Identity: (`transaction.commit_lsn`, `ordinal`). `lsn` alone is neither unique nor monotone.
#[derive(Debug, Clone)]
pub struct ChangeEvent {
    /// What happened.
    pub operation: Operation,
    /// Which record of a key change this is.
    pub part: ChangePart,
    /// Start of the change's WAL record; for a message the end of its record, for a heartbeat the idle position.
    pub lsn: Lsn,
    /// Index of the change among all that the server sent of its transaction, captured or not, from 0.
    pub ordinal: u64,
    /// The transaction; `None` for a non-transactional message and a heartbeat.
    pub transaction: Option<Arc<Transaction>>,
    /// What all events of the source share.
    pub source: Arc<SourceInfo>,
    /// The content.
    pub body: Body,
}

impl ChangeEvent {
    /// The table, for row changes and truncates.
    pub fn relation(&self) -> Option<&Arc<Relation>> {
        match &self.body {
            Body::Row { relation, .. } | Body::Truncate { relation, .. } => Some(relation),
            Body::Message(_) | Body::Heartbeat => None,
        }
    }

    /// The row before the change, as far as the server sent it: under REPLICA IDENTITY FULL the whole row, else
    /// the identity columns, and those only when the key changed or the row was deleted.
    ///
    /// `None` for the create of a key change, whose row begins there.
    pub fn before(&self) -> Option<Row<'_>> {
        match &self.body {
            Body::Row { relation, old: Some(old), .. } if self.part != ChangePart::KeyChangeCreate => {
                Some(Row::old(relation, old))
            }
            _ => None,
        }
    }

    /// The row after the change. Unchanged out-of-line values are taken from the old row where it has them.
    ///
    /// `None` for a delete, the delete of a key change included.
    pub fn after(&self) -> Option<Row<'_>> {
        match &self.body {
            Body::Row { relation, old, new: Some(new) } if self.part != ChangePart::KeyChangeDelete => {
                Some(Row::new(relation, new, old.as_ref()))
            }
            _ => None,
        }
    }
}

/// The key of a record.
#[derive(Clone)]
pub enum ChangeKey {
    /// The key columns of a row.
    Row {
        /// The table, as of the change; its `key` is not empty.
        relation: Arc<Relation>,
        /// TupleData bytes that hold the key columns.
        tuple: Bytes,
        /// The old row, for key columns that `tuple` marks as unchanged.
        old: Option<OldRow>,
    },
    /// The prefix of a logical message.
    Message {
        /// The application's prefix.
        prefix: String,
    },
    /// The key of heartbeats.
    Heartbeat {
        /// What all events of the source share; its topic prefix is the key.
        source: Arc<SourceInfo>,
    },
}

impl fmt::Debug for ChangeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row { relation, tuple, old } => f
                .debug_struct("Row")
                .field("relation", &relation.qualified_name())
                .field("tuple", &Tuple::from_bytes(tuple))
                .field("old", old)
                .finish(),
            Self::Message { prefix } => f.debug_struct("Message").field("prefix", prefix).finish(),
            Self::Heartbeat { source } => f.debug_struct("Heartbeat").field("source", source).finish(),
        }
    }
}
