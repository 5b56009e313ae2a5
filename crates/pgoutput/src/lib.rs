//! pgoutput (PostgreSQL logical replication output plugin) messages, protocol 1 to 4.
//!
//! Pure: no I/O, no clock, no log, no async. Everything borrows from the input.

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::as_conversions, clippy::arithmetic_side_effects)
)]

mod change;
mod decoder;
mod error;
mod prepared;
mod reader;
mod relation;
mod stream;
mod time;
mod transaction;
mod tuple;

pub use change::{Delete, Insert, OldTuple, OldTupleKind, RelationOids, Truncate, Update};
pub use decoder::{Decoder, Message};
pub use error::DecodeError;
pub use prepared::{BeginPrepare, CommitPrepared, Prepare, RollbackPrepared};
pub use relation::{Column, Columns, ColumnsIter, Relation, ReplicaIdentity, Type};
pub use stream::{AbortPoint, StreamAbort, StreamCommit, StreamStart, StreamStop};
pub use time::{POSTGRES_EPOCH_UNIX_US, unix_us};
pub use transaction::{Begin, Commit, LogicalMessage, Origin};
pub use tuple::{Cell, Cells, Tuple};
