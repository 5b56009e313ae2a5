//! The PostgreSQL change source: `impl Source` over logical replication with pgoutput.

mod assemble;
pub mod catalog;
pub mod check;
mod checkpoint;
pub mod classify;
mod config;
pub mod envelope;
mod event;
pub mod figures;
mod from_value;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod key;
mod position;
mod records;
mod relation;
mod row;
mod session;
pub mod setup;
mod slot_watch;
mod source;
pub mod sql;
pub mod types;
mod verify;

pub use checkpoint::{CHECKPOINT_TABLE_SQL, PostgresCheckpointStore};
pub use config::{BinaryMode, PostgresSourceConfig, SlotMode};
pub use event::{
    Body, ChangeEvent, ChangeKey, ChangePart, LogicalMessage, OldRow, Operation, Origin, SourceInfo,
    Transaction,
};
pub use figures::{SlotLook, SourceFigures, SourceSnapshot, StreamState};
pub use from_value::FromValue;
pub use position::{Fingerprint, OpenTransaction, Position, StoredPosition, StreamIdentity};
pub use records::{ChangeRecord, DeleteRecords};
pub use relation::{Column, Relation, ReplicaIdentity};
pub use row::{Field, FieldError, Row};
pub use slot_watch::SlotWatch;
pub use source::PostgresSource;
pub use sql::{Parameter, SqlConnection};
