//! The sink: batches of records into Kafka, durable and in order.
//!
//! ```text
//! put ──► topic known? ──no──► look up, create, compare ──► smaller batches if its limit asks for it
//!          │ yes
//!          ▼
//!       librdkafka's queue (full: wait) ──► broker ──► delivery report ──► ledger
//! commit ──► all reports in? ──► failed: error ──► rejected: error or dead letter ──► durable
//! ```
//!
//! Records are put into librdkafka's queue by one task, in order; a topic's partitions then keep the order of each
//! key, retries included, because the producer is idempotent. After an error the sink is spent: no later batch can
//! be taken while an earlier one is not durable.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use bytes::Bytes;
use crabka_connect::{ConnectError, ConnectRecord, Sink, SourceOffset};
use rdkafka::error::RDKafkaErrorCode;

use crate::classify;
use crate::config::{Compression, KafkaSinkConfig, Rejected};
use crate::events::Rejectable;
use crate::findings::Finding;
use crate::ledger::{Ledger, Rejection};
use crate::producer::{Outgoing, Producer, Taken, message_bytes, payload_bytes};
use crate::properties::{self, BATCH_BYTES_MAX};
use crate::rejected;
use crate::topics::Topics;

/// Records that are put into the queue before the task lets others run: about a quarter of a millisecond.
const RECORDS_PER_TURN: usize = 256;

/// Counters of a sink, kept over its batches.
#[derive(Debug, Default)]
pub struct KafkaSinkCounters {
    delivered: AtomicU64,
    dead_lettered: AtomicU64,
}

impl KafkaSinkCounters {
    /// Records that are durable in their own topic.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Relaxed)
    }

    /// Records that are durable in the dead-letter topic instead.
    pub fn dead_lettered(&self) -> u64 {
        self.dead_lettered.load(Relaxed)
    }
}

/// What the sink remembers of a topic.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// `max.message.bytes`, if it can be read.
    limit: Option<usize>,
    compacted: bool,
    /// This client may not write it, and by policy its records are dead letters.
    refused: bool,
}

enum Enqueued {
    Done,
    Full,
    NewTopic(Arc<str>),
}

/// Writes records of bytes into Kafka topics.
///
/// # Durability
///
/// With the default settings `commit` returns `Ok` when every record of the batch is acknowledged by all in-sync
/// replicas (`acks=all`), or so is its dead letter.
///
/// # Cancel safety
///
/// A batch whose `put` or `commit` was dropped half-way can only be given up: `abort` it, or close the sink.
pub struct KafkaSink {
    config: KafkaSinkConfig,
    default_topic: Option<Arc<str>>,
    dead_letter_topic: Option<Arc<str>>,
    producer: Producer,
    topics: Topics,
    known: HashMap<Arc<str>, Known>,
    /// Of the record before: most records go where the last one went.
    last: Option<(Arc<str>, Known)>,
    batch_bytes_max: usize,
    spent: bool,
    findings: Vec<Finding>,
    counters: Arc<KafkaSinkCounters>,
}

impl KafkaSink {
    /// Connects, and makes sure that the brokers answer and the dead-letter topic exists.
    ///
    /// # Errors
    ///
    /// Configuration for options and properties that are wrong and for credentials that are refused; transient
    /// when no broker answers within `request_timeout_ms`.
    pub async fn open(config: KafkaSinkConfig) -> Result<Self, ConnectError> {
        config.validate()?;
        let producer = producer(&config, BATCH_BYTES_MAX, Arc::default())?;
        let cluster = producer.reach(config.request_timeout()).await?;
        tracing::info!(cluster, "connected to kafka");
        let connection = properties::connection(&config.bootstrap_servers, &config.properties)?;
        let topics = Topics::new(&connection, config.request_timeout())?.describing(config.describe_topics);
        let mut sink = Self {
            default_topic: config.default_topic.as_deref().map(Arc::from),
            dead_letter_topic: config.dead_letter_topic.as_deref().map(Arc::from),
            batch_bytes_max: BATCH_BYTES_MAX,
            known: HashMap::new(),
            last: None,
            spent: false,
            findings: Vec::new(),
            counters: Arc::default(),
            producer,
            topics,
            config,
        };
        if let Some(topic) = sink.dead_letter_topic.clone() {
            sink.learn(&topic).await?;
        }
        Ok(sink)
    }

    /// Counts in counters that are there already: those of the sink before this one in the same run.
    #[must_use]
    pub fn counting_in(mut self, counters: Arc<KafkaSinkCounters>) -> Self {
        self.counters = counters;
        self
    }

    /// Looks these topics up before the first record, creating what is missing.
    ///
    /// # Errors
    ///
    /// As [`put`](Sink::put) has them for a topic that it meets for the first time.
    pub async fn prepare(&mut self, topics: &[&str]) -> Result<(), ConnectError> {
        for topic in topics {
            if !self.known.contains_key(*topic) {
                self.learn(&Arc::from(*topic)).await?;
            }
        }
        Ok(())
    }

    /// Where existing topics differ from what is configured, as far as they were met.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Counters that live as long as anybody looks at them.
    pub fn counters(&self) -> Arc<KafkaSinkCounters> {
        Arc::clone(&self.counters)
    }

    /// The producer's settings as librdkafka sees them, by its own names; secrets are not among them.
    ///
    /// # Errors
    ///
    /// Configuration when a property is wrong.
    pub fn effective_settings(&self) -> Result<BTreeMap<String, String>, ConnectError> {
        effective_settings(&self.config, self.batch_bytes_max)
    }

    /// Meets a topic for the first time.
    async fn learn(&mut self, topic: &Arc<str>) -> Result<(), ConnectError> {
        let dead_letters = self.dead_letter_topic.as_deref() == Some(&**topic);
        let settings = if dead_letters {
            self.config.dead_letter_settings(topic)
        } else {
            self.config.settings_of(topic)
        };
        let facts = match self.topics.ensure(topic, &settings, self.config.create_topics).await {
            Ok(facts) => facts,
            Err(error) if !dead_letters && self.is_refusal(&error) => {
                tracing::warn!(topic = &**topic, %error, "records of a topic become dead letters");
                self.known.insert(Arc::clone(topic), Known { limit: None, compacted: false, refused: true });
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for finding in self.topics.differences(topic, &facts, &settings) {
            tracing::warn!("{finding}");
            self.findings.push(finding);
        }
        let limit = facts.batch_bytes_max();
        if let Some(limit) = limit
            && limit < self.batch_bytes_max
        {
            self.shrink_batches(limit).await?;
        }
        self.known
            .insert(Arc::clone(topic), Known { limit, compacted: facts.is_compacted(), refused: false });
        Ok(())
    }

    fn is_refusal(&self, error: &ConnectError) -> bool {
        self.config.on_unauthorized == Rejected::DeadLetter && classify::is_unauthorized(error)
    }

    /// A topic takes smaller batches than we send: a broker refuses a batch as a whole, so no batch of several
    /// records may be over the smallest limit. librdkafka fixes the size when a producer is made.
    async fn shrink_batches(&mut self, limit: usize) -> Result<(), ConnectError> {
        tracing::info!(bytes = limit, "kafka batches are limited by a topic's max.message.bytes");
        self.producer.settle(self.config.delivery_timeout()).await?;
        if let Some(error) = self.producer.failure() {
            return Err(error);
        }
        let smaller = producer(&self.config, limit, Arc::clone(self.producer.ledger()))?;
        let mut larger = std::mem::replace(&mut self.producer, smaller);
        larger.end(self.config.flush_timeout()).await;
        self.batch_bytes_max = limit;
        Ok(())
    }

    fn usable(&self) -> Result<(), ConnectError> {
        if self.spent {
            return Err(ConnectError::transient("kafka sink failed before and has to be opened again"));
        }
        Ok(())
    }

    async fn enqueue(&mut self, records: &[ConnectRecord<Bytes, Bytes>]) -> Result<(), ConnectError> {
        for (index, record) in records.iter().enumerate() {
            if index % RECORDS_PER_TURN == RECORDS_PER_TURN - 1 {
                tokio::task::yield_now().await;
                if self.producer.ledger().has_failed() {
                    break;
                }
            }
            loop {
                match self.try_enqueue(record)? {
                    Enqueued::Done => break,
                    Enqueued::Full => self.producer.wait_for_room(self.config.delivery_timeout()).await?,
                    Enqueued::NewTopic(topic) => self.learn(&topic).await?,
                }
            }
        }
        match self.producer.ledger().has_failed() {
            true => self.settle().await,
            false => Ok(()),
        }
    }

    fn try_enqueue(&mut self, record: &ConnectRecord<Bytes, Bytes>) -> Result<Enqueued, ConnectError> {
        let Some(topic) = record.topic.as_ref().or(self.default_topic.as_ref()) else {
            return Err(ConnectError::configuration("record names no topic").with_fix("set default_topic"));
        };
        let known = match &self.last {
            Some((last, known)) if Arc::ptr_eq(last, topic) => *known,
            _ => match self.known.get(topic) {
                Some(known) => {
                    self.last = Some((Arc::clone(topic), *known));
                    *known
                }
                None => return Ok(Enqueued::NewTopic(Arc::clone(topic))),
            },
        };
        let outgoing = Outgoing {
            topic,
            partition: None,
            key: record.key.as_ref(),
            value: record.value.as_ref(),
            timestamp_ms: record.timestamp_ms.filter(|_| self.config.source_timestamps),
            headers: &record.headers,
        };
        if known.refused {
            let code = RDKafkaErrorCode::TopicAuthorizationFailed;
            self.producer.ledger().reject_unsent(outgoing.rejected(code));
            return Ok(Enqueued::Done);
        }
        if known.compacted && outgoing.key.is_none() {
            return Err(rejected::without_key(topic));
        }
        // Compressed, it may fit after all: then the broker decides.
        if self.config.compression == Compression::None
            && known.limit.is_some_and(|limit| payload_bytes(outgoing) > limit)
        {
            let code = RDKafkaErrorCode::MessageSizeTooLarge;
            self.producer.ledger().reject_unsent(outgoing.rejected(code));
            return Ok(Enqueued::Done);
        }
        Ok(match self.producer.try_send(outgoing)? {
            Taken::Yes => Enqueued::Done,
            Taken::Full => Enqueued::Full,
        })
    }

    /// Waits for every report, and tells the first failure.
    async fn settle(&self) -> Result<(), ConnectError> {
        self.producer.settle(self.config.delivery_timeout()).await?;
        self.producer.failure().map_or(Ok(()), Err)
    }

    /// Sends the records that their topics refused to the dead-letter topic, if that is the policy, and tells how
    /// many.
    async fn settle_rejections(&mut self, offset: Option<&SourceOffset>) -> Result<u64, ConnectError> {
        let rejections = self.producer.ledger().take_rejections();
        if rejections.is_empty() {
            return Ok(0);
        }
        for rejection in &rejections {
            let limit = self.limit_of(rejection);
            let by_policy = match rejection.code {
                RDKafkaErrorCode::TopicAuthorizationFailed => self.config.on_unauthorized,
                _ => self.config.on_too_large,
            };
            let (Rejected::DeadLetter, Some(topic)) = (by_policy, &self.dead_letter_topic) else {
                return Err(rejected::error(rejection, limit, self.batch_bytes_max));
            };
            let letter = rejected::dead_letter(rejection, topic, limit, self.batch_bytes_max, offset)?;
            let outgoing = Outgoing {
                topic,
                partition: None,
                key: letter.key.as_ref(),
                value: letter.value.as_ref(),
                timestamp_ms: letter.timestamp_ms,
                headers: &letter.headers,
            };
            self.producer.send(outgoing, self.config.delivery_timeout()).await?;
        }
        self.settle().await?;
        let letters = u64::try_from(rejections.len()).unwrap_or(u64::MAX);
        if let Some(refused) = self.producer.ledger().take_rejections().first() {
            let topic = self.dead_letter_topic.as_deref().unwrap_or_default();
            return Err(rejected::error(refused, self.limit_of(refused), self.batch_bytes_max)
                .context(format!("dead letter was refused by topic {topic}")));
        }
        tracing::warn!(records = letters, "records went to the dead-letter topic");
        Ok(letters)
    }

    /// The size limit that a rejected record was over: its topic's, or our own, which librdkafka looks at first.
    fn limit_of(&self, rejection: &Rejection) -> Option<usize> {
        use rdkafka::Message;
        let of_topic = self.known.get(rejection.message.topic()).and_then(|known| known.limit);
        let own = self.config.record_bytes_max;
        if message_bytes(&rejection.message) > own {
            Some(of_topic.map_or(own, |limit| limit.min(own)))
        } else {
            of_topic
        }
    }
}

fn producer(
    config: &KafkaSinkConfig,
    batch_bytes_max: usize,
    ledger: Arc<Ledger>,
) -> Result<Producer, ConnectError> {
    let client = properties::sink_producer(config, batch_bytes_max)?;
    let unauthorized = config.on_unauthorized == Rejected::DeadLetter;
    Producer::new(&client, Rejectable { unauthorized }, ledger)
}

/// The settings that decide about delivery, as librdkafka sees them.
fn effective_settings(
    config: &KafkaSinkConfig,
    batch_bytes_max: usize,
) -> Result<BTreeMap<String, String>, ConnectError> {
    let client = properties::sink_producer(config, batch_bytes_max)?;
    properties::effective(
        &client,
        &[
            "acks",
            "allow.auto.create.topics",
            "batch.size",
            "builtin.features",
            "compression.type",
            "enable.idempotence",
            "linger.ms",
            "max.in.flight.requests.per.connection",
            "message.max.bytes",
            "message.send.max.retries",
            "message.timeout.ms",
            "partitioner",
            "queue.buffering.max.kbytes",
            "queue.buffering.max.messages",
            "security.protocol",
        ],
    )
}

#[async_trait]
impl Sink<Bytes, Bytes> for KafkaSink {
    async fn begin(&mut self) -> Result<(), ConnectError> {
        self.usable()?;
        if self.producer.ledger().outstanding() > 0 {
            self.spent = true;
            return Err(ConnectError::transient("kafka sink still waits for a batch that was given up"));
        }
        Ok(())
    }

    async fn put(&mut self, records: &mut Vec<ConnectRecord<Bytes, Bytes>>) -> Result<(), ConnectError> {
        self.usable()?;
        // Until it is known to have gone well: the future may be dropped.
        self.spent = true;
        let result = self.enqueue(records).await;
        records.clear();
        if let Err(error) = result {
            // What is on the wire lands before the batch is sent again, so that it cannot land after it.
            let _ = self.producer.settle(self.config.flush_timeout()).await;
            return Err(error);
        }
        self.spent = false;
        Ok(())
    }

    async fn commit(&mut self, offset: Option<&SourceOffset>) -> Result<(), ConnectError> {
        self.usable()?;
        self.spent = true;
        self.settle().await?;
        let letters = self.settle_rejections(offset).await?;
        // Dead letters were reported as delivered too, to another topic than their own.
        let delivered = self.producer.ledger().take_delivered().saturating_sub(letters);
        self.counters.delivered.fetch_add(delivered, Relaxed);
        self.counters.dead_lettered.fetch_add(letters, Relaxed);
        self.spent = false;
        Ok(())
    }

    async fn abort(&mut self) -> Result<(), ConnectError> {
        // Without a Kafka transaction a record that was sent cannot be taken back; what is still queued can, but
        // only together with its producer, whose sequence would have a gap.
        let fresh = producer(&self.config, self.batch_bytes_max, Arc::default())?;
        let mut given_up = std::mem::replace(&mut self.producer, fresh);
        given_up.end(self.config.flush_timeout()).await;
        self.spent = false;
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), ConnectError> {
        self.usable()?;
        self.settle().await.inspect_err(|_| self.spent = true)
    }

    async fn close(&mut self) -> Result<(), ConnectError> {
        self.spent = true;
        self.producer.end(self.config.flush_timeout()).await;
        Ok(())
    }
}
