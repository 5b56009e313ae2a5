//! The connector SPI and the runtime that drives a [`Source`] into a [`Sink`].
//!
//! This crate knows no database and no broker. A connector implements [`Source`]; a destination implements
//! [`Sink`]; a [`CheckpointStore`] keeps the [`SourceOffset`] between runs; a [`Converter`] turns typed
//! records into bytes. The order that makes delivery safe is always the same: *durable in the sink, then
//! checkpoint saved, then acknowledged to the source*.

mod checkpoint;
mod clock;
mod converter;
mod error;
mod offset;
mod record;
mod sink;
mod source;

pub use checkpoint::CheckpointStore;
pub use clock::{Clock, SystemClock};
pub use converter::{BytesConverter, Converter};
pub use error::{ConnectError, ErrorClass, ErrorDetail};
pub use offset::{Scalar, SourceOffset};
pub use record::{ConnectRecord, Header, Headers};
pub use sink::Sink;
pub use source::Source;
