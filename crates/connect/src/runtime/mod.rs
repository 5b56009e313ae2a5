//! Drives a [`Source`] into a [`Sink`]: batches, the order of commits, retries.
//!
//! # Order
//!
//! For each batch, always: durable in the sink ([`Sink::commit`] returned), then the offset saved
//! ([`CheckpointStore::save`](crate::CheckpointStore::save) returned), then [`Source::acknowledge`] with that same
//! offset, which [`Source::checkpoint`] gave right after the batch's last record was polled. So at any moment
//! `acknowledged ≤ checkpointed ≤ delivered ≤ received`, and a crash anywhere repeats records from the last saved
//! offset on and loses none.
//!
//! One batch is in flight while the next one fills. A batch is cut when it is full, too old, or the source has no
//! more at once, and never before the one in flight has landed: batches are small on light load and large under load.
//!
//! # Errors
//!
//! A transient error closes source and sink, waits (capped exponential back-off with jitter, see [`RetryPolicy`]),
//! reopens both and seeks to the saved offset. Every other class ends the run. Records polled before a source
//! failed are still delivered, except after an error of the bug or fenced class.
//!
//! # Example
//!
//! ```
//! use async_trait::async_trait;
//! use crabka_connect::{
//!     ConnectError, ConnectRecord, ConnectorRuntime, JsonConverter, MemoryCheckpointStore, NullSink, Sink, Source,
//!     SourceOffset,
//! };
//! use serde_json::{Value, json};
//!
//! /// Counts up to three.
//! struct Numbers(u64);
//!
//! #[async_trait]
//! impl Source<Value, Value> for Numbers {
//!     async fn poll(&mut self) -> Result<Option<ConnectRecord<Value, Value>>, ConnectError> {
//!         if self.0 == 3 {
//!             return Ok(None);
//!         }
//!         self.0 += 1;
//!         Ok(Some(ConnectRecord::new(Some(json!(self.0)), Some(json!({ "n": self.0 })))))
//!     }
//!     fn checkpoint(&self) -> Option<SourceOffset> {
//!         Some(SourceOffset::new([("stream", "numbers".into())], [("n", self.0.into())]))
//!     }
//!     async fn seek(&mut self, offset: SourceOffset) -> Result<(), ConnectError> {
//!         let n = offset.position.get("n").and_then(|n| n.as_u64());
//!         self.0 = n.ok_or_else(|| ConnectError::offset("the offset has no number"))?;
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), ConnectError> {
//! let sink = NullSink::new();
//! let counts = sink.counts();
//! let runtime = ConnectorRuntime::builder("numbers")
//!     .source(|| async { Ok(Box::new(Numbers(0)) as Box<dyn Source<_, _>>) })
//!     .sink(move || std::future::ready(Ok(Box::new(sink.clone()) as Box<dyn Sink<_, _>>)))
//!     .converter(JsonConverter)
//!     .checkpoint_store(MemoryCheckpointStore::new())
//!     .build()?;
//! let handle = runtime.handle();
//! let run = tokio::spawn(runtime.run());
//! handle.until(|status| status.records_acknowledged == 3).await;
//! handle.stop();
//! run.await.expect("no panic")?;
//! assert_eq!(counts.records(), 3);
//! # Ok(())
//! # }
//! ```

mod builder;
mod committer;
mod figures;
mod handle;
mod limits;
mod observer;
mod pipeline;
mod retry;
mod session;
mod status;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

pub use self::builder::ConnectorRuntimeBuilder;
pub use self::figures::{LATENCY_BOUNDS_MS, Latency, RunFigures};
pub use self::handle::RuntimeHandle;
pub use self::limits::Limits;
pub use self::observer::{Observer, Point};
pub use self::retry::RetryPolicy;
pub use self::status::{InFlight, LastError, Phase, Status};

use self::committer::{CommitTask, Committer, SharedStore};
use self::figures::CommitTimes;
use self::handle::Command;
use self::observer::reached;
use self::pipeline::{Pipeline, Saved};
use self::session::{Session, Shared, stop_asked};
use self::status::StatusWriter;
use crate::{ConnectError, Part, Sink, Source, SourceOffset};

type SourceFactory<K, V> =
    Box<dyn FnMut() -> BoxFuture<'static, Result<Box<dyn Source<K, V>>, ConnectError>> + Send>;
type SinkFactory =
    Box<dyn FnMut() -> BoxFuture<'static, Result<Box<dyn Sink<Bytes, Bytes>>, ConnectError>> + Send>;

/// Drives one source into one sink. See the [module](self) for what it promises.
pub struct ConnectorRuntime<K, V> {
    open_source: SourceFactory<K, V>,
    open_sink: SinkFactory,
    store: Option<SharedStore>,
    retry: RetryPolicy,
    random: Box<dyn FnMut() -> f64 + Send>,
    saved: Saved,
    shared: Shared<K, V>,
    /// Kept so that the command channel outlives every handle of the host.
    handle: RuntimeHandle,
}

struct Opened<K, V> {
    source: Box<dyn Source<K, V>>,
    sink: Box<dyn Sink<Bytes, Bytes>>,
}

impl<K: Send + 'static, V: Send + 'static> ConnectorRuntime<K, V> {
    /// Starts to build a runtime for the connector of this name, under which its offset is stored.
    pub fn builder(connector: &str) -> ConnectorRuntimeBuilder<K, V> {
        ConnectorRuntimeBuilder::new(connector)
    }

    /// Steers and watches this run.
    pub fn handle(&self) -> RuntimeHandle {
        self.handle.clone()
    }

    /// Runs until a graceful stop (`Ok`), an abort, or an error that is not retried. Needs a tokio runtime with time
    /// enabled.
    ///
    /// # Errors
    ///
    /// The [`ConnectError`] that ended the run: of any class but transient when source, converter, sink or store
    /// failed (a panic of one of them is of the bug class); transient when the attempts of the [`RetryPolicy`] are
    /// used up, when a stop could not finish the running batch, or on an abort.
    ///
    /// # Durability
    ///
    /// Whatever ends it, nothing was acknowledged to the source that the checkpoint store does not hold, and
    /// nothing is checkpointed that is not durable in the sink.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is an abort: nothing is lost, but records since the last saved offset will be
    /// delivered again, and source and sink are not closed.
    pub async fn run(mut self) -> Result<(), ConnectError> {
        let ending = Ending { status: self.shared.status.clone(), ended: false };
        ending.status.started();
        let mut commands = self.shared.commands.clone();
        let aborted = async move {
            if commands.wait_for(|command| *command == Command::Abort).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let attempts = AssertUnwindSafe(self.attempts()).catch_unwind();
        let result = tokio::select! {
            biased;
            () = aborted => None,
            result = attempts => Some(result),
        };
        match result {
            None => {
                let error =
                    ConnectError::transient("aborted by the host before the running batch was finished");
                ending.end(Phase::Aborted, Some(&error));
                Err(error)
            }
            Some(Ok(Ok(()))) => {
                ending.end(Phase::Stopped, None);
                Ok(())
            }
            Some(Ok(Err(error))) => {
                ending.end(Phase::Failed, Some(&error));
                Err(error)
            }
            Some(Err(panic)) => {
                let error = committer::panic_error("source or converter", &*panic);
                ending.end(Phase::Failed, Some(&error));
                Err(error)
            }
        }
    }

    async fn attempts(&mut self) -> Result<(), ConnectError> {
        let mut failures = 0;
        loop {
            self.shared.status.phase(Phase::Starting);
            let stop = stop_asked(self.shared.commands.clone());
            let opened = tokio::select! {
                biased;
                () = stop => return Ok(()),
                opened = self.open() => opened,
            };
            let (error, complete) = match opened {
                Ok(opened) => {
                    let ended = self.attempt(opened).await;
                    self.saved = ended.saved;
                    if ended.progress {
                        failures = 0;
                    } else {
                        self.saved = Saved::Unknown;
                    }
                    match ended.result {
                        Ok(()) => return Ok(()),
                        Err(error) => (error, ended.complete),
                    }
                }
                Err(error) => {
                    self.saved = Saved::Unknown;
                    (error, true)
                }
            };
            if !error.is_transient() {
                return Err(error);
            }
            if self.shared.command() >= Command::Stop {
                // The stop met a failing source or sink: it was graceful if nothing polled was left behind.
                return if complete { Ok(()) } else { Err(error) };
            }
            failures += 1;
            if self.retry.exhausted(failures) {
                return Err(error.context(format!("gave up after {failures} attempts without progress")));
            }
            if self.back_off(&error, failures).await.is_break() {
                return Ok(());
            }
        }
    }

    /// Waits before the next attempt; breaks off on a stop.
    async fn back_off(&mut self, error: &ConnectError, failures: u32) -> std::ops::ControlFlow<()> {
        let delay = self.retry.delay(failures, (self.random)());
        self.shared.status.backing_off(error, failures, delay);
        tracing::warn!(
            connector = %self.shared.connector,
            attempt = failures,
            next_attempt_in_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
            "transient error, reopening from the last checkpoint: {}", error.chain()
        );
        tokio::select! {
            biased;
            () = stop_asked(self.shared.commands.clone()) => std::ops::ControlFlow::Break(()),
            () = tokio::time::sleep(delay) => std::ops::ControlFlow::Continue(()),
        }
    }

    /// Opens sink and source and seeks to the stored offset. The sink comes first: a sink that stores offsets fences
    /// an older instance when it opens, and only then is its stored offset final.
    async fn open(&mut self) -> Result<Opened<K, V>, ConnectError> {
        let limit = self.shared.limits.drain_timeout;
        let opened = (self.open_sink)().await;
        let mut sink = opened.map_err(|error| error.context("opening the sink").in_part(Part::Sink))?;
        match self.open_source_at_stored(&mut sink).await {
            Ok(source) => Ok(Opened { source, sink }),
            Err(error) => {
                close_quietly(limit, sink.close()).await;
                Err(error)
            }
        }
    }

    async fn open_source_at_stored(
        &mut self,
        sink: &mut Box<dyn Sink<Bytes, Bytes>>,
    ) -> Result<Box<dyn Source<K, V>>, ConnectError> {
        let limit = self.shared.limits.drain_timeout;
        let offset = self.stored_offset(sink).await?;
        let opened = (self.open_source)().await;
        let mut source = opened.map_err(|error| error.context("opening the source").in_part(Part::Source))?;
        if let Some(offset) = offset {
            self.shared.status.restored(&offset);
            if let Err(error) = source.seek(SourceOffset::clone(&offset)).await {
                close_quietly(limit, source.close()).await;
                return Err(error.context("resuming from the stored offset").in_part(Part::Source));
            }
        }
        Ok(source)
    }

    async fn stored_offset(
        &mut self,
        sink: &mut Box<dyn Sink<Bytes, Bytes>>,
    ) -> Result<Option<Arc<SourceOffset>>, ConnectError> {
        if sink.stores_offset() {
            let restored = sink.restore_offset().await;
            return Ok(restored
                .map_err(|error| error.context("restoring the offset from the sink").in_part(Part::Sink))?
                .map(Arc::new));
        }
        // Known is what this run has saved itself. After an attempt that has saved nothing another instance may have.
        if let Saved::Known(offset) = &self.saved {
            return Ok(offset.clone());
        }
        let Some(store) = &self.store else {
            let error =
                ConnectError::configuration("this sink does not store offsets: a checkpoint store is needed");
            return Err(error.with_fix("set [checkpoint] store"));
        };
        let loaded = store.lock().await.load(&self.shared.connector).await;
        let offset = loaded
            .map_err(|error| error.context("loading the checkpoint").in_part(Part::Checkpoint))?
            .map(Arc::new);
        self.saved = Saved::Known(offset.clone());
        Ok(offset)
    }

    async fn attempt(&mut self, opened: Opened<K, V>) -> session::Ended {
        let Opened { source, sink } = opened;
        let stores_offset = sink.stores_offset();
        let record_offsets = sink.wants_record_offsets();
        let committer = Committer::spawn(CommitTask {
            connector: Arc::clone(&self.shared.connector),
            sink,
            store: if stores_offset { None } else { self.store.clone() },
            observer: self.shared.observer.clone(),
            status: self.shared.status.clone(),
            commit_times: CommitTimes::default(),
        });
        let pipeline = Pipeline::new(
            self.shared.limits.clone(),
            self.shared.observer.clone(),
            self.shared.status.clone(),
            committer,
            self.saved.clone(),
        );
        reached(self.shared.observer.as_ref(), Point::Opened).await;
        Session::new(&mut self.shared, source, pipeline, record_offsets).run().await
    }
}

/// Closes what is given up because of another error, which is the one to report.
async fn close_quietly(limit: Duration, close: impl Future<Output = Result<(), ConnectError>>) {
    if let Ok(Err(error)) = tokio::time::timeout(limit, close).await {
        tracing::debug!("closing after an error failed: {}", error.chain());
    }
}

/// Makes sure that the status says how the run ended, also when its future is dropped.
struct Ending {
    status: StatusWriter,
    ended: bool,
}

impl Ending {
    fn end(mut self, phase: Phase, error: Option<&ConnectError>) {
        self.ended = true;
        self.status.ended(phase, error);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.ended {
            self.status.ended(Phase::Aborted, None);
        }
    }
}
