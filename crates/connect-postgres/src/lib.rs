//! The PostgreSQL change source: `impl Source` over logical replication with pgoutput.

pub mod catalog;
pub mod check;
mod checkpoint;
pub mod classify;
pub mod envelope;
mod event;
mod relation;
mod row;
pub mod setup;
pub mod sql;
pub mod types;

pub use checkpoint::{CHECKPOINT_TABLE_SQL, PostgresCheckpointStore};
pub use event::{
    Body, ChangeEvent, ChangeKey, ChangePart, LogicalMessage, OldRow, Operation, Origin, SourceInfo,
    Transaction,
};
pub use relation::{Column, Relation, ReplicaIdentity};
pub use row::Row;
pub use sql::{Parameter, SqlConnection};
