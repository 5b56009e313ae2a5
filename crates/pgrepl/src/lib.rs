//! One PostgreSQL replication connection: TLS, authentication, START_REPLICATION, CopyBoth frames, standby
//! status. The payload of the stream is opaque bytes here.

mod lsn;

pub use lsn::{Lsn, ParseLsnError};
