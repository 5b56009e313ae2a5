//! pgoutput (PostgreSQL logical replication output plugin) messages, protocol 1 to 4.
//!
//! The bytes inside a WAL data message (`w`) become a [`Message`]; cells, names and contents are slices of the
//! input. Layouts: <https://www.postgresql.org/docs/17/protocol-logicalrep-message-formats.html>.
//!
//! Pure: no I/O, no clock, no log, no async. The decoder allocates nothing: the crate is `no_std` and takes `alloc`
//! only for the `encode` feature. It does not panic on any input; what is not exactly one message is a
//! [`DecodeError`] that names message, field and offset.
//!
//! ```
//! use crabka_pgoutput::{Cell, Decoder, Message};
//!
//! // One connection, one decoder. START_REPLICATION … (proto_version '1', publication_names 'p')
//! let mut decoder = Decoder::new();
//!
//! let relation = b"R\0\0\x40\0public\0orders\0d\0\x02\
//!     \x01id\0\0\0\0\x17\xff\xff\xff\xff\
//!     \x00note\0\0\0\0\x19\xff\xff\xff\xff";
//! let Message::Relation(relation) = decoder.decode(relation)? else { panic!("not a Relation") };
//! assert_eq!((relation.namespace, relation.name), ("public", "orders"));
//! let columns: Vec<_> = relation.columns.iter().map(|column| (column.name, column.key)).collect();
//! assert_eq!(columns, [("id", true), ("note", false)]);
//!
//! // UPDATE orders SET id = 8 WHERE id = 7: the key changed, the note is stored out of line and was not sent
//! let update = b"U\0\0\x40\0K\0\x02t\0\0\0\x017nN\0\x02t\0\0\0\x018u";
//! let Message::Update(update) = decoder.decode(update)? else { panic!("not an Update") };
//! assert_eq!(update.old.unwrap().tuple.cell(0), Some(Cell::Text(b"7")));
//! assert_eq!(update.new.cells().collect::<Vec<_>>(), [Cell::Text(b"8"), Cell::Unchanged]);
//!
//! // A connection that was cut, or a server that speaks something newer
//! let error = decoder.decode(b"I\0\0\x40\0N\0\x02t\0\0\0\x05hel").unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "pgoutput Insert: new tuple cell value at byte 13: the input ends inside the field",
//! );
//! # Ok::<(), crabka_pgoutput::DecodeError>(())
//! ```
//!
//! # Features
//!
//! - `encode`: messages to bytes, for round-trip tests and scripted servers.
//! - `fuzz`: the bodies of the fuzz targets; not part of the API.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::as_conversions, clippy::arithmetic_side_effects)
)]

#[cfg(feature = "encode")]
extern crate alloc;

mod change;
mod decoder;
#[cfg(feature = "encode")]
mod encode;
mod error;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod prepared;
mod reader;
mod relation;
mod stream;
mod time;
mod transaction;
mod tuple;

pub use change::{Delete, Insert, OldTuple, OldTupleKind, RelationOids, Truncate, Update};
pub use decoder::{Decoder, Message};
#[cfg(feature = "encode")]
pub use encode::{ColumnsBuf, EncodeError, RelationOidsBuf, TupleBuf};
pub use error::DecodeError;
pub use prepared::{BeginPrepare, CommitPrepared, Prepare, RollbackPrepared};
pub use relation::{Column, Columns, ColumnsIter, Relation, ReplicaIdentity, Type};
pub use stream::{AbortPoint, StreamAbort, StreamCommit, StreamStart, StreamStop};
pub use time::{POSTGRES_EPOCH_UNIX_US, unix_us};
pub use transaction::{Begin, Commit, LogicalMessage, Origin};
pub use tuple::{Cell, Cells, Tuple};
