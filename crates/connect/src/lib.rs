//! The connector SPI and the runtime that drives a [`Source`] into a [`Sink`].
//!
//! This crate knows no database and no broker. A connector implements [`Source`]; a destination implements
//! [`Sink`]; a [`CheckpointStore`] keeps the [`SourceOffset`] between runs; a [`Converter`] turns typed
//! records into bytes. The order that makes delivery safe is always the same: *durable in the sink, then
//! checkpoint saved, then acknowledged to the source*. [`ConnectorRuntime`] keeps that order; a host with a loop
//! of its own keeps it itself, as [`Source`] describes.
//!
//! # A loop of one's own
//!
//! ```
//! use async_trait::async_trait;
//! use bytes::BytesMut;
//! use crabka_connect::{
//!     CheckpointStore, ConnectError, ConnectRecord, Converter, JsonConverter, LineSink, MemoryCheckpointStore, Sink,
//!     Source, SourceOffset,
//! };
//! use serde_json::{Value, json};
//!
//! struct Greetings(u64);
//!
//! #[async_trait]
//! impl Source<Value, Value> for Greetings {
//!     async fn poll(&mut self) -> Result<Option<ConnectRecord<Value, Value>>, ConnectError> {
//!         if self.0 == 2 {
//!             return Ok(None);
//!         }
//!         self.0 += 1;
//!         Ok(Some(ConnectRecord::new(None, Some(json!({ "hello": self.0 })))))
//!     }
//!     fn checkpoint(&self) -> Option<SourceOffset> {
//!         Some(SourceOffset::new([], [("greeted", self.0.into())]))
//!     }
//!     async fn seek(&mut self, offset: SourceOffset) -> Result<(), ConnectError> {
//!         let greeted = offset.position.get("greeted").and_then(|greeted| greeted.as_u64());
//!         self.0 = greeted.ok_or_else(|| ConnectError::offset("the offset has no number"))?;
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), ConnectError> {
//! let (mut source, mut sink, mut store) = (Greetings(0), LineSink::stdout(), MemoryCheckpointStore::new());
//! let (mut polled, mut encoded, mut buffer) = (Vec::new(), Vec::new(), BytesMut::new());
//! if let Some(offset) = store.load("greetings").await? {
//!     source.seek(offset).await?;
//! }
//! while source.poll_batch(100, &mut polled).await? > 0 {
//!     let offset = source.checkpoint(); // right after the batch's last record was polled
//!     for record in polled.drain(..) {
//!         encoded.push(JsonConverter.encode(record, &mut buffer)?);
//!     }
//!     sink.begin().await?;
//!     sink.put(&mut encoded).await?;
//!     sink.commit(offset.as_ref()).await?; // durable
//!     if let Some(offset) = offset {
//!         store.save("greetings", &offset).await?; // then saved
//!         source.acknowledge(&offset).await?; // then acknowledged
//!     }
//! }
//! source.close().await?;
//! assert_eq!(store.get("greetings").map(|offset| offset.to_json()).as_deref(), Some(r#"{"partition":{},"position":{"greeted":2}}"#));
//! # Ok(())
//! # }
//! ```

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
pub use error::{ConnectError, ErrorClass, ErrorDetail, Part};
pub use offset::{Scalar, SourceOffset};
pub use record::{ConnectRecord, Header, Headers};
pub use runtime::{
    ConnectorRuntime, ConnectorRuntimeBuilder, InFlight, LATENCY_BOUNDS_MS, LastError, Latency, Limits,
    Observer, Phase, Point, RetryPolicy, RunFigures, RuntimeHandle, Status,
};
pub use sink::{LineSink, NullCounts, NullSink, Sink, write_line};
pub use source::Source;
