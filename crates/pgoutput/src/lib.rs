//! pgoutput (PostgreSQL logical replication output plugin) messages, protocol 1 to 4.
//!
//! Pure: no I/O, no clock, no log, no async. Everything borrows from the input.

mod error;
mod tuple;

pub use error::DecodeError;
pub use tuple::{Cell, Cells, Tuple};
