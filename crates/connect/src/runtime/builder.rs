//! Puts a run together.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;

use super::committer::SharedStore;
use super::handle::RuntimeHandle;
use super::limits::Limits;
use super::observer::Observer;
use super::pipeline::Saved;
use super::retry::RetryPolicy;
use super::session::Shared;
use super::status::StatusWriter;
use super::{ConnectorRuntime, SinkFactory, SourceFactory};
use crate::{CheckpointStore, Clock, ConnectError, Converter, Sink, Source, SystemClock};

/// Builds a [`ConnectorRuntime`]; made by [`ConnectorRuntime::builder`].
pub struct ConnectorRuntimeBuilder<K, V> {
    connector: Arc<str>,
    source: Option<SourceFactory<K, V>>,
    sink: Option<SinkFactory>,
    converter: Option<Box<dyn Converter<K, V>>>,
    store: Option<SharedStore>,
    limits: Limits,
    retry: RetryPolicy,
    clock: Arc<dyn Clock>,
    random: Box<dyn FnMut() -> f64 + Send>,
    observer: Option<Arc<dyn Observer>>,
}

impl<K: Send + 'static, V: Send + 'static> ConnectorRuntimeBuilder<K, V> {
    pub(super) fn new(connector: &str) -> Self {
        Self {
            connector: Arc::from(connector),
            source: None,
            sink: None,
            converter: None,
            store: None,
            limits: Limits::default(),
            retry: RetryPolicy::default(),
            clock: Arc::new(SystemClock),
            random: Box::new(rand::random::<f64>),
            observer: None,
        }
    }

    /// Opens the source: at the start, and again after each transient error. The source must not have delivered
    /// anything yet; the runtime seeks it to the stored offset before the first poll. When a stop comes while it
    /// opens, the future is dropped.
    #[must_use]
    pub fn source<F, Fut>(mut self, mut open: F) -> Self
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Result<Box<dyn Source<K, V>>, ConnectError>> + Send + 'static,
    {
        self.source = Some(Box::new(move || -> BoxFuture<'static, _> { open().boxed() }));
        self
    }

    /// Opens the sink: at the start, and again after each transient error. When a stop comes while it opens, the
    /// future is dropped.
    #[must_use]
    pub fn sink<F, Fut>(mut self, mut open: F) -> Self
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Result<Box<dyn Sink<Bytes, Bytes>>, ConnectError>> + Send + 'static,
    {
        self.sink = Some(Box::new(move || -> BoxFuture<'static, _> { open().boxed() }));
        self
    }

    /// Turns the source's records into bytes.
    #[must_use]
    pub fn converter(mut self, converter: impl Converter<K, V>) -> Self {
        self.converter = Some(Box::new(converter));
        self
    }

    /// As [`converter`](Self::converter), for one that is chosen at run time.
    #[must_use]
    pub fn boxed_converter(mut self, converter: Box<dyn Converter<K, V>>) -> Self {
        self.converter = Some(converter);
        self
    }

    /// Where offsets are kept. Not needed, and not used, when the sink stores them itself.
    #[must_use]
    pub fn checkpoint_store(self, store: impl CheckpointStore) -> Self {
        self.boxed_checkpoint_store(Box::new(store))
    }

    /// As [`checkpoint_store`](Self::checkpoint_store), for one that is chosen at run time.
    #[must_use]
    pub fn boxed_checkpoint_store(mut self, store: Box<dyn CheckpointStore>) -> Self {
        self.store = Some(Arc::new(Mutex::new(store)));
        self
    }

    /// Batch sizes, pauses and the drain time-out.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// When to try again after transient errors.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// The clock for the times in the status. The default is the machine's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Random numbers in `[0, 1)` for the jitter of retries. The default draws them from the operating system's
    /// generator.
    #[must_use]
    pub fn random(mut self, random: impl FnMut() -> f64 + Send + 'static) -> Self {
        self.random = Box::new(random);
        self
    }

    /// Is told about each [`Point`](super::Point) that the run reaches; for crash tests.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// The runtime, ready to run.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] of the configuration class when source, sink or converter is missing, the name is empty, or
    /// a limit makes no sense.
    pub fn build(self) -> Result<ConnectorRuntime<K, V>, ConnectError> {
        let missing =
            |what: &str| ConnectError::configuration(format!("the connector runtime needs a {what}"));
        if self.connector.is_empty() {
            return Err(ConnectError::configuration("the connector needs a name"));
        }
        self.limits.validate()?;
        self.retry.validate()?;
        let status = StatusWriter::new(&self.connector, self.clock);
        let handle = RuntimeHandle::new(&status);
        let shared = Shared {
            connector: self.connector,
            converter: self.converter.ok_or_else(|| missing("converter"))?,
            limits: self.limits,
            observer: self.observer,
            status,
            commands: handle.command.subscribe(),
            incoming: Vec::new(),
            buffer: BytesMut::new(),
        };
        Ok(ConnectorRuntime {
            open_source: self.source.ok_or_else(|| missing("source"))?,
            open_sink: self.sink.ok_or_else(|| missing("sink"))?,
            store: self.store,
            retry: self.retry,
            random: self.random,
            saved: Saved::Unknown,
            shared,
            handle,
        })
    }
}
