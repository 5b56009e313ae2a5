//! A producer whose records are counted: in order into librdkafka's queue, back-pressure when it is full, and
//! one wait for all reports.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crabka_connect::{ConnectError, Headers};
use rdkafka::ClientConfig;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders, OwnedMessage, ToBytes};
use rdkafka::producer::{BaseRecord, Producer as _, PurgeConfig, ThreadedProducer};

use crate::classify;
use crate::events::{Events, Rejectable, Reports};
use crate::ledger::{Ledger, Rejection, Stalled};
use crate::properties;

/// One record on its way into librdkafka's queue, which copies it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: Option<i32>,
    pub(crate) key: Option<&'a Bytes>,
    pub(crate) value: Option<&'a Bytes>,
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) headers: &'a Headers,
}

impl Outgoing<'_> {
    fn native_headers(&self) -> Option<OwnedHeaders> {
        if self.headers.is_empty() {
            return None;
        }
        let mut native = OwnedHeaders::new_with_capacity(self.headers.len());
        for header in self.headers {
            native = native.insert(Header { key: &header.name, value: header.value.as_deref() });
        }
        Some(native)
    }

    /// The record as it is kept when its topic refuses it.
    pub(crate) fn rejected(&self, code: RDKafkaErrorCode) -> Rejection {
        let message = OwnedMessage::new(
            self.value.map(|value| value.to_vec()),
            self.key.map(|key| key.to_vec()),
            self.topic.to_owned(),
            rdkafka::Timestamp::NotAvailable,
            self.partition.unwrap_or(-1),
            -1,
            self.native_headers(),
        );
        Rejection { code, timestamp_ms: self.timestamp_ms, message }
    }
}

/// What became of a record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// In the queue, or rejected and remembered.
    Yes,
    /// The queue is full.
    Full,
}

pub(crate) struct Producer {
    // `None` only while it is being closed.
    inner: Option<Arc<ThreadedProducer<Reports>>>,
    reports: Reports,
}

impl Producer {
    /// A producer that reports into `ledger`, in which nothing may be outstanding.
    pub(crate) fn new(
        config: &ClientConfig,
        rejectable: Rejectable,
        ledger: Arc<Ledger>,
    ) -> Result<Self, ConnectError> {
        let reports = Reports { events: Events::default(), ledger, rejectable };
        let inner = ThreadedProducer::from_config_and_context(config, reports.clone())
            .map_err(properties::refused)?;
        Ok(Self { inner: Some(Arc::new(inner)), reports })
    }

    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        &self.reports.ledger
    }

    fn inner(&self) -> Result<&Arc<ThreadedProducer<Reports>>, ConnectError> {
        self.inner.as_ref().ok_or_else(|| ConnectError::bug("kafka producer is used after it was closed"))
    }

    /// Waits until a broker answers, and tells the cluster's id.
    ///
    /// # Errors
    ///
    /// Configuration as soon as the brokers refuse TLS or credentials; transient when none answers in time.
    pub(crate) async fn reach(&self, limit: Duration) -> Result<String, ConnectError> {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let inner = Arc::clone(self.inner()?);
            let slice = limit.min(Duration::from_millis(250));
            let cluster =
                tokio::task::spawn_blocking(move || inner.client().fetch_cluster_id(slice))
                    .await
                    .map_err(|error| ConnectError::bug("kafka metadata thread ended").with_source(error))?;
            if let Some(cluster) = cluster {
                return Ok(cluster);
            }
            let last = self.reports.events.last_error();
            let refused = last.as_ref().filter(|(code, _)| classify::is_refused_connection(*code));
            if let Some((code, reason)) = refused {
                return Err(classify::with_code(
                    *code,
                    None,
                    format_args!("kafka refuses this client: {reason}"),
                ));
            }
            if tokio::time::Instant::now() >= deadline {
                let error = ConnectError::transient(match &last {
                    Some((_, reason)) => format!("no kafka broker answers: {reason}"),
                    None => format!("no kafka broker answers within {} ms", limit.as_millis()),
                });
                return Err(error.with_fix("check bootstrap_servers and security.protocol"));
            }
        }
    }

    /// Puts a record into the queue, behind all records before it. Never blocks.
    ///
    /// # Errors
    ///
    /// When the record can never be taken: by class as [`classify`] says.
    pub(crate) fn try_send(&self, record: Outgoing<'_>) -> Result<Taken, ConnectError> {
        let inner = self.inner()?;
        // Kafka knows no time before 1970, and librdkafka takes 0 as "now".
        let timestamp_ms = record.timestamp_ms.filter(|ms| *ms > 0);
        let native = BaseRecord {
            topic: record.topic,
            partition: record.partition,
            payload: record.value.map(AsRef::as_ref),
            key: record.key.map(AsRef::as_ref),
            timestamp: timestamp_ms,
            headers: record.native_headers(),
            delivery_opaque: timestamp_ms.and_then(|ms| usize::try_from(ms).ok()).unwrap_or(0),
        };
        let ledger = self.ledger();
        ledger.sent();
        let Err((error, _)) = inner.send::<[u8], [u8]>(native) else { return Ok(Taken::Yes) };
        ledger.unsent();
        match classify::code_of(&error) {
            Some(RDKafkaErrorCode::QueueFull) => Ok(Taken::Full),
            Some(code) if self.reports.rejectable.covers(code) => {
                ledger.reject_unsent(record.rejected(code));
                Ok(Taken::Yes)
            }
            Some(code) => Err(classify::with_code(
                code,
                Some(record.topic),
                format_args!("kafka refused a record of topic {}", record.topic),
            )),
            None => Err(undeliverable(&error, record.topic)),
        }
    }

    /// Waits until the queue has room again.
    ///
    /// # Errors
    ///
    /// Transient when no report came for `stall`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(crate) async fn wait_for_room(&self, stall: Duration) -> Result<(), ConnectError> {
        let outstanding = self.ledger().outstanding();
        if outstanding < 2 {
            // librdkafka frees the room a moment after it reported.
            tokio::time::sleep(Duration::from_millis(1)).await;
            return Ok(());
        }
        let target = outstanding - outstanding.div_ceil(4);
        self.ledger().wait(target, stall).await.map_err(|stalled| self.stalled(&stalled, stall))
    }

    /// [`try_send`](Self::try_send), waiting for room.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits, the record is not sent.
    pub(crate) async fn send(&self, record: Outgoing<'_>, stall: Duration) -> Result<(), ConnectError> {
        while self.try_send(record)? == Taken::Full {
            self.wait_for_room(stall).await?;
        }
        Ok(())
    }

    /// Waits until every record has its report.
    ///
    /// # Durability
    ///
    /// When it returns `Ok`, each record is durable, failed or rejected, as the ledger tells.
    ///
    /// # Errors
    ///
    /// Transient when no report came for `stall`; configuration when the reason is that the broker refuses
    /// our credentials.
    pub(crate) async fn settle(&self, stall: Duration) -> Result<(), ConnectError> {
        self.ledger().wait(0, stall).await.map_err(|stalled| self.stalled(&stalled, stall))
    }

    fn stalled(&self, stalled: &Stalled, stall: Duration) -> ConnectError {
        let message = format!(
            "kafka gave no delivery report for {} ms, records outstanding: {}",
            stall.as_millis(),
            stalled.outstanding
        );
        match self.reports.events.last_error() {
            Some((code, reason)) if classify::is_refused_credentials(code) => {
                classify::with_code(code, None, format_args!("{message}; last error: {reason}"))
            }
            Some((code, reason)) => ConnectError::transient(format!("{message}; last error: {reason}"))
                .with_source(KafkaError::Global(code)),
            None => ConnectError::transient(message),
        }
    }

    /// The first failed report as an error, with the number of others.
    pub(crate) fn failure(&self) -> Option<ConnectError> {
        let (failure, count) = self.ledger().take_failure()?;
        let topic = &failure.topic;
        let mut message = format!("kafka did not store a record of topic {topic} [{}]", failure.partition);
        if count > 1 {
            message.push_str(&format!(" and {} more", count - 1));
        }
        let fatal = self.inner.as_ref().and_then(|inner| inner.client().fatal_error());
        match (failure.code, fatal) {
            (RDKafkaErrorCode::Fatal, Some((code, reason))) => {
                Some(classify::with_code(code, Some(topic), format!("{message}: {reason}")))
            }
            (code, _) => Some(classify::with_code(code, Some(topic), message)),
        }
    }

    /// Whether an error has ended it: it takes no record any more, and those in its queue never leave it.
    pub(crate) fn has_ended(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.client().fatal_error().is_some())
    }

    /// Gives up what is queued, and waits for what is on the wire.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    pub(crate) async fn give_up(&self, stall: Duration) -> Result<(), ConnectError> {
        self.inner()?.purge(PurgeConfig::default().queue());
        self.settle(stall).await
    }

    /// Ends the producer: what is queued is given up, what is on the wire may finish for `grace`.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits, the rest happens in the background.
    pub(crate) async fn end(&mut self, grace: Duration) {
        let Some(inner) = &self.inner else { return };
        inner.purge(PurgeConfig::default().queue());
        // A request on the wire that lands after the batch was sent again would put an old record behind a
        // newer one: give it the chance to land first.
        let _ = tokio::time::timeout(grace, self.ledger().wait(0, grace)).await;
        let inner = self.inner.take();
        // Joins threads; not on a runtime thread.
        let _ = tokio::task::spawn_blocking(move || drop(inner)).await;
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(inner));
        }
    }
}

fn undeliverable(error: &KafkaError, topic: &str) -> ConnectError {
    match error {
        KafkaError::Nul(_) => {
            ConnectError::configuration(format!("topic name contains a zero byte: {topic:?}"))
        }
        other => classify::error(other, format_args!("kafka refused a record of topic {topic}")),
    }
}

/// Bytes of key, value and headers.
pub(crate) fn payload_bytes(record: Outgoing<'_>) -> usize {
    let headers: usize = record
        .headers
        .iter()
        .map(|header| header.name.len() + header.value.as_ref().map_or(0, Bytes::len))
        .sum();
    record.key.map_or(0, Bytes::len) + record.value.map_or(0, Bytes::len) + headers
}

/// The same for a rejected record.
pub(crate) fn message_bytes(message: &OwnedMessage) -> usize {
    use rdkafka::Message;
    use rdkafka::message::Headers as _;
    let headers: usize = message.headers().map_or(0, |headers| {
        headers
            .iter()
            .map(|header| header.key.len() + header.value.map_or(0, |value| value.to_bytes().len()))
            .sum()
    });
    message.key().map_or(0, <[u8]>::len) + message.payload().map_or(0, <[u8]>::len) + headers
}
