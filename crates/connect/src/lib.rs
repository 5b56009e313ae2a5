//! The connector SPI and the runtime that drives a [`Source`] into a [`Sink`].
//!
//! This crate knows no database and no broker. A connector implements [`Source`]; a destination implements
//! [`Sink`]; a [`CheckpointStore`] keeps the [`SourceOffset`] between runs; a [`Converter`] turns typed
//! records into bytes. The order that makes delivery safe is always the same: *durable in the sink, then
//! checkpoint saved, then acknowledged to the source*. [`ConnectorRuntime`] keeps that order; a host with a loop
//! of its own keeps it itself, as [`Source`] describes.

mod blocking;
mod checkpoint;
mod clock;
mod converter;
mod error;
mod offset;
mod record;
pub mod runtime;
mod sink;
mod source;

pub use checkpoint::{CheckpointStore, FileCheckpointStore, MemoryCheckpointStore};
pub use clock::{Clock, SystemClock};
pub use converter::{BytesConverter, Converter, JsonConverter};
pub use error::{ConnectError, ErrorClass, ErrorDetail};
pub use offset::{Scalar, SourceOffset};
pub use record::{ConnectRecord, Header, Headers};
pub use runtime::{
    ConnectorRuntime, ConnectorRuntimeBuilder, LastError, Limits, Observer, Phase, Point, RetryPolicy,
    RuntimeHandle, Status,
};
pub use sink::{LineSink, NullCounts, NullSink, Sink, write_line};
pub use source::Source;
