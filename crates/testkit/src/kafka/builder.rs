//! What a broker is to be like.

use std::time::Duration;

use super::broker::KafkaBroker;
use crate::error::Error;

/// Settings of every test broker; a builder's own settings come after them and win.
const DEFAULTS: &[(&str, &str)] = &[
    ("auto.create.topics.enable", "false"),
    ("default.replication.factor", "1"),
    ("min.insync.replicas", "1"),
    ("num.partitions", "1"),
    ("offsets.topic.replication.factor", "1"),
    ("offsets.topic.num.partitions", "1"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("transaction.state.log.num.partitions", "1"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
    ("share.coordinator.state.topic.num.partitions", "1"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("log.initial.task.delay.ms", "1000"),
    ("log.segment.delete.delay.ms", "1000"),
    // Preallocated per thread and per log: the defaults are made for large machines.
    ("log.cleaner.dedupe.buffer.size", "8388608"),
    ("log.index.size.max.bytes", "1048576"),
    ("num.network.threads", "2"),
    ("num.io.threads", "4"),
];

/// Describes a broker before it is started; made by [`KafkaBroker::builder`].
#[derive(Debug, Clone, Default)]
pub struct KafkaBrokerBuilder {
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) advertised: Option<String>,
    pub(crate) heap_mb: Option<u32>,
    pub(crate) start_timeout: Option<Duration>,
}

impl KafkaBrokerBuilder {
    /// A line of `server.properties`, such as `message.max.bytes`; the last one of a name wins.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.settings.push((name.into(), value.to_string()));
        self
    }

    /// Adds a second listener whose clients are told to come to `address` (`host:port`), such as a
    /// [`FaultProxy`](crate::FaultProxy) before it. The listener itself is at
    /// [`proxied_address`](KafkaBroker::proxied_address).
    #[must_use]
    pub fn advertise(mut self, address: impl ToString) -> Self {
        self.advertised = Some(address.to_string());
        self
    }

    /// Heap of the Java machine in MiB; 384 without this.
    #[must_use]
    pub fn heap_mb(mut self, size: u32) -> Self {
        self.heap_mb = Some(size);
        self
    }

    /// How long a start may take; 120 s without this.
    #[must_use]
    pub fn start_timeout(mut self, limit: Duration) -> Self {
        self.start_timeout = Some(limit);
        self
    }

    /// Makes the broker and starts it; it answers clients when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] without Java, Maven or jars, [`Error::NotReady`] with the end of its log when it does not
    /// come up, [`Error::LeftOut`] in a quick run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the broker comes up in the background and is stopped at once.
    pub async fn start(self) -> Result<KafkaBroker, Error> {
        KafkaBroker::launch(self).await
    }

    pub(crate) fn all_settings(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        DEFAULTS.iter().copied().chain(own)
    }
}
