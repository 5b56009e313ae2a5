//! The position kept in a compacted topic.
//!
//! One record per position: the key is `{"connector":NAME,"partition":{…}}`, the value the offset's JSON, so that
//! compaction keeps the newest of each. All of them are written to partition 0, which gives them one order whatever
//! the topic's number of partitions is; all partitions are read.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crabka_connect::{CheckpointStore, ConnectError, Headers, Scalar, SourceOffset};
use rdkafka::ClientConfig;
use serde::{Deserialize, Serialize};

use crate::classify;
use crate::config::{CleanupPolicy, TopicSettings};
use crate::events::Rejectable;
use crate::producer::{Outgoing, Producer};
use crate::properties;
use crate::replay::{self, Entry};
use crate::topics::{Topics, create_command};

/// Options of the checkpoint store.
///
/// `Debug` shows the names of [`properties`](Self::properties) and never their values.
#[derive(Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaCheckpointConfig {
    /// Brokers to start from, `host:port`, separated by commas.
    pub bootstrap_servers: String,
    /// librdkafka properties of the connection: `security.protocol`, `sasl.*`, `ssl.*`. Others are ignored.
    pub properties: BTreeMap<String, String>,
    /// The compacted topic; several connectors may share it. Default: `crabka-offsets`.
    pub topic: String,
    /// Partitions when it is created. Default: 1, and more bring nothing.
    pub partitions: i32,
    /// Replicas when it is created; the broker's default if not set.
    pub replication_factor: Option<i32>,
    /// Whether it is created when it is missing. Default: true.
    pub create_topic: bool,
    /// Whether it is made sure that the topic is compacted. Default: true; false is for brokers that do not know
    /// `DescribeConfigs`.
    pub describe_topic: bool,
    /// Milliseconds that a load or a save may take. Default: 30,000.
    pub timeout_ms: u64,
}

impl Default for KafkaCheckpointConfig {
    fn default() -> Self {
        Self {
            bootstrap_servers: String::new(),
            properties: BTreeMap::new(),
            topic: "crabka-offsets".to_owned(),
            partitions: 1,
            replication_factor: None,
            create_topic: true,
            describe_topic: true,
            timeout_ms: 30_000,
        }
    }
}

impl KafkaCheckpointConfig {
    /// Defaults, with these brokers.
    pub fn new(bootstrap_servers: impl Into<String>) -> Self {
        Self { bootstrap_servers: bootstrap_servers.into(), ..Self::default() }
    }

    fn topic_settings(&self) -> TopicSettings {
        TopicSettings {
            partitions: Some(self.partitions),
            replication_factor: self.replication_factor,
            cleanup_policy: Some(CleanupPolicy::Compact),
            // Only closed segments are compacted, and everything that is not has to be read at start.
            config: BTreeMap::from([("segment.bytes".to_owned(), "16777216".to_owned())]),
        }
    }
}

impl KafkaCheckpointConfig {
    /// The command that removes an offset of a connector: a tombstone of its key (Kafka 3.2 or later). It goes to the
    /// only partition of a topic that was made by the store.
    pub fn removal_command(&self, connector: &str, offset: &SourceOffset) -> String {
        let key = EntryKey { connector: connector.to_owned(), partition: offset.partition.clone() };
        let key = serde_json::to_string(&key).unwrap_or_default().replace('\'', "'\\''");
        format!(
            "printf '%s\\tNULL\\n' '{key}' | kafka-console-producer.sh --bootstrap-server {} --topic {} \
             --property parse.key=true --property null.marker=NULL",
            self.bootstrap_servers, self.topic
        )
    }
}

impl fmt::Debug for KafkaCheckpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaCheckpointConfig")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .field("properties", &self.properties.keys())
            .field("topic", &self.topic)
            .field("partitions", &self.partitions)
            .field("replication_factor", &self.replication_factor)
            .field("create_topic", &self.create_topic)
            .field("describe_topic", &self.describe_topic)
            .field("timeout_ms", &self.timeout_ms)
            .finish()
    }
}

/// Key of an entry.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryKey {
    connector: String,
    partition: BTreeMap<String, Scalar>,
}

/// The newest entry of each key.
type Newest = HashMap<Option<Vec<u8>>, Entry>;

/// Sorts entries by age. Partition 0, to which we write, is newer than all others; within one the offset decides.
fn age(entry: &Entry) -> (Reverse<i32>, i64) {
    (Reverse(entry.partition), entry.offset)
}

/// Keeps offsets in a compacted Kafka topic.
///
/// # Durability
///
/// `save` returns `Ok` when all in-sync replicas have the offset (`acks=all`).
///
/// After a `save` that failed it may be unknown whether its offset is stored, or still will be. The next `load` or
/// `save` waits until that is decided, and fails with a transient error while it is not: what `load` returns is
/// replaced by nothing older, and by nothing that was saved before.
///
/// # Cancel safety
///
/// A `save` that was dropped half-way leaves the old or the new offset, as one that failed.
pub struct KafkaCheckpointStore {
    config: KafkaCheckpointConfig,
    topics: Topics,
    client: ClientConfig,
    producer: Producer,
    /// A save has not ended well: its offset may be queued or on the wire, and the producer may be of no use any more.
    unsettled: bool,
    /// Partitions of the topic, once it is known to be there and compacted.
    partitions: Option<i32>,
}

impl KafkaCheckpointStore {
    /// Connects. The topic is looked at by the first `load` or `save`.
    ///
    /// # Errors
    ///
    /// Configuration for wrong properties and refused credentials; transient when no broker answers in time.
    pub async fn open(config: KafkaCheckpointConfig) -> Result<Self, ConnectError> {
        if config.bootstrap_servers.trim().is_empty() {
            return Err(ConnectError::configuration(
                "no kafka broker is configured for the checkpoint store",
            )
            .with_fix("set bootstrap_servers = \"host:9092\""));
        }
        if config.timeout_ms == 0 || config.partitions < 1 {
            return Err(ConnectError::configuration("timeout_ms and partitions must be at least 1"));
        }
        let timeout = Duration::from_millis(config.timeout_ms);
        let mut client = properties::durable_producer(&config.bootstrap_servers, &config.properties)?;
        if !config.properties.contains_key("socket.timeout.ms") {
            // A request that nobody answers is sent again over a new connection when a save gives up on it, so that
            // its outcome is known soon after the broker can be reached again.
            client.set("socket.timeout.ms", config.timeout_ms.clamp(1_000, 60_000).to_string());
        }
        let producer = producer(&client)?;
        producer.reach(timeout).await?;
        let connection = properties::connection(&config.bootstrap_servers, &config.properties)?;
        let topics = Topics::new(&connection, timeout)?.describing(config.describe_topic);
        Ok(Self { config, topics, client, producer, unsettled: false, partitions: None })
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.config.timeout_ms)
    }

    /// Partitions of the topic, which exists and is compacted when this returns.
    async fn topic(&mut self) -> Result<i32, ConnectError> {
        if let Some(partitions) = self.partitions {
            return Ok(partitions);
        }
        let topic = &self.config.topic;
        let settings = self.config.topic_settings();
        let facts = self.topics.ensure(topic, &settings, self.config.create_topic).await?;
        match &facts.config {
            Some(config) if !CleanupPolicy::Compact.is(&config.cleanup_policy) => {
                return Err(ConnectError::configuration(format!(
                    "kafka topic {topic} would lose positions, its cleanup.policy is not compact: {}",
                    config.cleanup_policy
                ))
                .with_fix(format!(
                    "kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic {topic} --add-config \
                     cleanup.policy=compact, or name another topic: {}",
                    create_command("NAME", &settings)
                )));
            }
            Some(_) => {}
            None => tracing::warn!(topic, "cannot read whether the topic of positions is compacted"),
        }
        self.partitions = Some(facts.partitions);
        Ok(facts.partitions)
    }

    fn unreadable(&self, entry: &Entry, what: &str) -> ConnectError {
        ConnectError::offset(format!(
            "{what} in kafka topic {} [{}] at offset {}",
            self.config.topic, entry.partition, entry.offset
        ))
        .with_fix("remove it with a tombstone of the same key, or give positions a topic of their own")
    }

    /// The newest live entry of a connector, from the newest entry of each key.
    fn newest(&self, connector: &str, entries: Newest) -> Result<Option<SourceOffset>, ConnectError> {
        let mut live: Option<(EntryKey, Entry)> = None;
        for (key, entry) in entries {
            let Some(key) = key else { return Err(self.unreadable(&entry, "record without a key")) };
            let key: EntryKey = serde_json::from_slice(&key)
                .map_err(|error| self.unreadable(&entry, "key that is not ours").with_source(error))?;
            let newer = live.as_ref().is_none_or(|(_, known)| age(known) < age(&entry));
            if key.connector == connector && entry.value.is_some() && newer {
                live = Some((key, entry));
            }
        }
        let Some((key, entry)) = live else { return Ok(None) };
        let value = entry.value.as_deref().unwrap_or_default();
        let offset = SourceOffset::from_json(value)
            .map_err(|error| self.unreadable(&entry, "offset that is not readable").with_source(error))?;
        if offset.partition != key.partition {
            return Err(self.unreadable(&entry, "offset of another source partition than its key says"));
        }
        Ok(Some(offset))
    }

    /// Waits until it is decided what became of a save that did not end well.
    ///
    /// The producer is left to it as long as it can go on: it sends the offset again under the same sequence number, so
    /// that a copy that is still on its way through the network is worth nothing once this one has arrived. Given
    /// up, such a copy could land behind what is read now.
    async fn settle(&mut self) -> Result<(), ConnectError> {
        if !self.unsettled {
            return Ok(());
        }
        let timeout = self.timeout();
        let settled = match self.producer.has_ended() {
            true => self.producer.give_up(timeout).await,
            false => self.producer.settle(timeout).await,
        };
        settled.map_err(|error| {
            error.context(format!("an earlier position may still land in kafka topic {}", self.config.topic))
        })?;
        let fresh = producer(&self.client)?;
        let mut old = std::mem::replace(&mut self.producer, fresh);
        self.unsettled = false;
        old.end(timeout).await;
        Ok(())
    }

    /// The offset of a connector, as `load`, but a missing topic is not made.
    ///
    /// # Errors
    ///
    /// As `load`.
    pub async fn peek(&mut self, connector: &str) -> Result<Option<SourceOffset>, ConnectError> {
        if self.partitions.is_none() && self.topics.look(&self.config.topic).await?.is_none() {
            return Ok(None);
        }
        self.load(connector).await
    }

    /// Releases the connections.
    pub async fn close(mut self) {
        let timeout = self.timeout();
        self.producer.end(timeout).await;
    }
}

#[async_trait]
impl CheckpointStore for KafkaCheckpointStore {
    async fn load(&mut self, connector: &str) -> Result<Option<SourceOffset>, ConnectError> {
        self.settle().await?;
        let partitions = self.topic().await?;
        let connection = properties::connection(&self.config.bootstrap_servers, &self.config.properties)?;
        let (topic, timeout) = (self.config.topic.clone(), self.timeout());
        let entries = tokio::task::spawn_blocking(move || {
            let mut newest = Newest::new();
            replay::read(&connection, &topic, partitions, timeout, |mut entry| {
                let key = entry.key.take();
                if newest.get(&key).is_none_or(|known| age(known) < age(&entry)) {
                    newest.insert(key, entry);
                }
            })?;
            Ok::<_, ConnectError>(newest)
        })
        .await
        .map_err(|error| ConnectError::bug("kafka reading thread ended").with_source(error))??;
        self.newest(connector, entries)
    }

    async fn save(&mut self, connector: &str, offset: &SourceOffset) -> Result<(), ConnectError> {
        self.settle().await?;
        self.topic().await?;
        let key = EntryKey { connector: connector.to_owned(), partition: offset.partition.clone() };
        let key = serde_json::to_vec(&key)
            .map_err(|error| ConnectError::bug("key of an offset cannot be written").with_source(error))?;
        let (key, value) = (Bytes::from(key), Bytes::from(offset.to_json()));
        let record = Outgoing {
            topic: &self.config.topic,
            partition: Some(0),
            key: Some(&key),
            value: Some(&value),
            timestamp_ms: None,
            headers: &Headers::new(),
        };
        let context = || format!("position is not saved in kafka topic {}", self.config.topic);
        self.unsettled = true;
        self.producer.send(record, self.timeout()).await.map_err(|error| error.context(context()))?;
        self.producer.settle(self.timeout()).await.map_err(|error| error.context(context()))?;
        if let Some(error) = self.producer.failure() {
            return Err(error.context(context()));
        }
        match self.producer.ledger().take_rejections().first() {
            Some(rejection) => Err(classify::with_code(rejection.code, Some(&self.config.topic), context())),
            None => {
                self.unsettled = false;
                Ok(())
            }
        }
    }
}

fn producer(client: &ClientConfig) -> Result<Producer, ConnectError> {
    Producer::new(client, Rejectable::default(), Arc::default())
}
