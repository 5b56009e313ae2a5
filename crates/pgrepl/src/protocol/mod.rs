//! The frontend/backend protocol, as far as a replication connection needs it.
//!
//! <https://www.postgresql.org/docs/18/protocol-message-formats.html>

pub(crate) mod backend;
pub(crate) mod cursor;
pub(crate) mod frame;
