//! What an operator sets: the sink's options, each with its unit and its default.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crabka_connect::ConnectError;
use serde::{Deserialize, Serialize};

/// Partitions of a topic that is created without a configured count.
pub const DEFAULT_PARTITIONS: i32 = 6;

/// Codec of the batches that are sent. All of them are compiled into the default build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// The name in the configuration, which is also librdkafka's.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Compression {
    type Err = ConnectError;

    fn from_str(name: &str) -> Result<Self, ConnectError> {
        [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd]
            .into_iter()
            .find(|codec| codec.as_str() == name)
            .ok_or_else(|| {
                ConnectError::configuration(format!("compression is not known: {name}"))
                    .with_fix("use one of none, gzip, snappy, lz4, zstd")
            })
    }
}

/// What happens to a record that its topic will never take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejected {
    /// The batch fails; the position does not move.
    #[default]
    Stop,
    /// The record goes to [`dead_letter_topic`](KafkaSinkConfig::dead_letter_topic) and is counted.
    DeadLetter,
}

impl FromStr for Rejected {
    type Err = ConnectError;

    fn from_str(name: &str) -> Result<Self, ConnectError> {
        match name {
            "stop" => Ok(Self::Stop),
            "dead_letter" => Ok(Self::DeadLetter),
            _ => Err(ConnectError::configuration(format!("policy is not known: {name}"))
                .with_fix("use stop or dead_letter")),
        }
    }
}

/// Kafka's `cleanup.policy` of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CleanupPolicy {
    /// Old segments are deleted.
    Delete,
    /// The newest record of each key stays.
    Compact,
    /// Both.
    CompactDelete,
}

impl CleanupPolicy {
    /// The value as Kafka spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Compact => "compact",
            Self::CompactDelete => "compact,delete",
        }
    }

    /// Whether a broker's value means this policy; the order of its words does not matter.
    pub(crate) fn is(self, value: &str) -> bool {
        let mut words: Vec<&str> = value.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        words.sort_unstable();
        words.join(",") == self.as_str()
    }
}

/// How a topic is created, and what an existing one is compared with.
///
/// A member that is not set takes the default at creation and is not compared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TopicSettings {
    /// Number of partitions; [`DEFAULT_PARTITIONS`] when created without. An existing topic keeps its count.
    pub partitions: Option<i32>,
    /// Number of replicas; the broker's `default.replication.factor` when created without.
    pub replication_factor: Option<i32>,
    /// `cleanup.policy`; the broker's default when created without.
    pub cleanup_policy: Option<CleanupPolicy>,
    /// Further topic configuration, as `retention.ms`.
    pub config: BTreeMap<String, String>,
}

impl TopicSettings {
    /// These settings, with what they leave open taken from `defaults`.
    #[must_use]
    pub fn or(&self, defaults: &Self) -> Self {
        let mut config = defaults.config.clone();
        config.extend(self.config.clone());
        Self {
            partitions: self.partitions.or(defaults.partitions),
            replication_factor: self.replication_factor.or(defaults.replication_factor),
            cleanup_policy: self.cleanup_policy.or(defaults.cleanup_policy),
            config,
        }
    }
}

/// Options of the Kafka sink.
///
/// `Debug` shows the names of [`properties`](Self::properties) and never their values.
#[derive(Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaSinkConfig {
    /// Brokers to start from, `host:port`, separated by commas.
    pub bootstrap_servers: String,
    /// librdkafka properties passed through: `security.protocol`, `sasl.*`, `ssl.*` and any other that has no
    /// option here.
    pub properties: BTreeMap<String, String>,
    /// Lets [`properties`](Self::properties) lower the delivery guarantee (`acks`, `enable.idempotence`, retries,
    /// `message.timeout.ms`); each such property is logged as a warning. Default: false, they are refused.
    pub allow_weaker_durability: bool,
    /// Codec of the batches. Default: none.
    pub compression: Compression,
    /// Milliseconds to wait for more records before a request is sent. Default: 0.
    pub linger_ms: u32,
    /// Topic of records that name none. Default: there is none, and such a record is an error.
    pub default_topic: Option<String>,
    /// Whether missing topics are created. Default: true. The broker never creates them on its own.
    pub create_topics: bool,
    /// Whether the configuration of topics is read, for their size limit and cleanup policy. Default: true. Switched off
    /// for a broker that does not answer such requests, as librdkafka's mock cluster: then a record over the limit,
    /// or one without a key on a compacted topic, is noticed only when the broker refuses it.
    pub describe_topics: bool,
    /// Whether a Kafka record gets the timestamp of its [`ConnectRecord`](crabka_connect::ConnectRecord) instead of the time at which
    /// it is produced. Default: false, because retention by time goes by it: a source that catches up would write
    /// records that the broker may delete at once.
    pub source_timestamps: bool,
    /// Settings of every topic.
    pub topic: TopicSettings,
    /// Settings of single topics, by name; what they leave open comes from [`topic`](Self::topic).
    pub topics: BTreeMap<String, TopicSettings>,
    /// A record over the topic's size limit. Default: stop.
    pub on_too_large: Rejected,
    /// A record whose topic this client may not write. Default: stop.
    pub on_unauthorized: Rejected,
    /// Where rejected records go; required when a policy says so.
    pub dead_letter_topic: Option<String>,
    /// Bytes of the largest record that is sent at all. Default: 100,000,000 (a broker closes the connection
    /// on a request over its `socket.request.max.bytes`, by default 104,857,600).
    pub record_bytes_max: usize,
    /// Records in the producer's queue. Default: 100,000.
    pub queue_records_max: usize,
    /// Bytes in the producer's queue. Default: 134,217,728.
    pub queue_bytes_max: usize,
    /// Milliseconds without any delivery report after which a batch counts as failed (and is tried again).
    /// Default: 120,000.
    pub delivery_timeout_ms: u64,
    /// Milliseconds that closing waits for records in flight. Default: 10,000.
    pub flush_timeout_ms: u64,
    /// Milliseconds for one administrative request: metadata, creating and describing topics. Default: 30,000.
    pub request_timeout_ms: u64,
}

impl Default for KafkaSinkConfig {
    fn default() -> Self {
        Self {
            bootstrap_servers: String::new(),
            properties: BTreeMap::new(),
            allow_weaker_durability: false,
            compression: Compression::None,
            linger_ms: 0,
            default_topic: None,
            create_topics: true,
            describe_topics: true,
            source_timestamps: false,
            topic: TopicSettings::default(),
            topics: BTreeMap::new(),
            on_too_large: Rejected::Stop,
            on_unauthorized: Rejected::Stop,
            dead_letter_topic: None,
            record_bytes_max: 100_000_000,
            queue_records_max: 100_000,
            queue_bytes_max: 134_217_728,
            delivery_timeout_ms: 120_000,
            flush_timeout_ms: 10_000,
            request_timeout_ms: 30_000,
        }
    }
}

impl KafkaSinkConfig {
    /// Defaults, with these brokers.
    pub fn new(bootstrap_servers: impl Into<String>) -> Self {
        Self { bootstrap_servers: bootstrap_servers.into(), ..Self::default() }
    }

    /// The settings of one topic: its own, then those of every topic.
    pub fn settings_of(&self, topic: &str) -> TopicSettings {
        match self.topics.get(topic) {
            Some(own) => own.or(&self.topic),
            None => self.topic.clone(),
        }
    }

    /// Settings of the dead-letter topic: it must take what other topics refuse for its size.
    pub(crate) fn dead_letter_settings(&self, topic: &str) -> TopicSettings {
        let mut settings = self.settings_of(topic);
        // Room for the headers that the dead letter has besides the record.
        let limit = self.record_bytes_max.saturating_add(65_536);
        settings.config.entry("max.message.bytes".to_owned()).or_insert_with(|| limit.to_string());
        settings
    }

    pub(crate) fn delivery_timeout(&self) -> Duration {
        Duration::from_millis(self.delivery_timeout_ms)
    }

    pub(crate) fn flush_timeout(&self) -> Duration {
        Duration::from_millis(self.flush_timeout_ms)
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    /// Checks what can be checked without a broker.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Configuration`] that names the option.
    pub fn validate(&self) -> Result<(), ConnectError> {
        if self.bootstrap_servers.trim().is_empty() {
            return Err(ConnectError::configuration("no kafka broker is configured")
                .with_fix("set bootstrap_servers = \"host:9092\""));
        }
        let dead_letters =
            self.on_too_large == Rejected::DeadLetter || self.on_unauthorized == Rejected::DeadLetter;
        if dead_letters && self.dead_letter_topic.is_none() {
            return Err(ConnectError::configuration("a dead-letter policy is set without a topic for it")
                .with_fix("set dead_letter_topic"));
        }
        if !(1_000..=1_000_000_000).contains(&self.record_bytes_max) {
            return Err(ConnectError::configuration(format!(
                "record_bytes_max is outside 1,000 to 1,000,000,000 bytes: {}",
                self.record_bytes_max
            )));
        }
        if self.queue_bytes_max < self.record_bytes_max {
            return Err(ConnectError::configuration(format!(
                "queue_bytes_max is below record_bytes_max, so that the largest record never fits: {} < {}",
                self.queue_bytes_max, self.record_bytes_max
            ))
            .with_fix("raise queue_bytes_max or lower record_bytes_max"));
        }
        if self.queue_records_max == 0 {
            return Err(ConnectError::configuration("queue_records_max must be at least 1"));
        }
        let timeouts = [self.delivery_timeout_ms, self.flush_timeout_ms, self.request_timeout_ms];
        if timeouts.contains(&0) {
            return Err(ConnectError::configuration(
                "delivery_timeout_ms, flush_timeout_ms and request_timeout_ms must be at least 1",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for KafkaSinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSinkConfig")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .field("properties", &self.properties.keys())
            .field("allow_weaker_durability", &self.allow_weaker_durability)
            .field("compression", &self.compression)
            .field("linger_ms", &self.linger_ms)
            .field("default_topic", &self.default_topic)
            .field("create_topics", &self.create_topics)
            .field("describe_topics", &self.describe_topics)
            .field("source_timestamps", &self.source_timestamps)
            .field("topic", &self.topic)
            .field("topics", &self.topics)
            .field("on_too_large", &self.on_too_large)
            .field("on_unauthorized", &self.on_unauthorized)
            .field("dead_letter_topic", &self.dead_letter_topic)
            .field("record_bytes_max", &self.record_bytes_max)
            .field("queue_records_max", &self.queue_records_max)
            .field("queue_bytes_max", &self.queue_bytes_max)
            .field("delivery_timeout_ms", &self.delivery_timeout_ms)
            .field("flush_timeout_ms", &self.flush_timeout_ms)
            .field("request_timeout_ms", &self.request_timeout_ms)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_a_cleanup_policy_does_not_matter() {
        assert!(CleanupPolicy::CompactDelete.is("delete, compact"));
        assert!(CleanupPolicy::CompactDelete.is("compact,delete"));
        assert!(!CleanupPolicy::Compact.is("compact,delete"));
        assert!(CleanupPolicy::Delete.is("delete"));
    }

    #[test]
    fn a_topic_takes_what_it_leaves_open_from_the_defaults() {
        let mut config = KafkaSinkConfig::new("localhost:9092");
        config.topic.partitions = Some(12);
        config.topic.config.insert("retention.ms".into(), "1000".into());
        let heartbeat = TopicSettings {
            partitions: Some(1),
            config: BTreeMap::from([("segment.ms".to_owned(), "500".to_owned())]),
            ..TopicSettings::default()
        };
        config.topics.insert("heartbeat".into(), heartbeat);

        let own = config.settings_of("heartbeat");
        assert_eq!(own.partitions, Some(1));
        assert_eq!(own.config.len(), 2);
        assert_eq!(config.settings_of("other").partitions, Some(12));
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut config = KafkaSinkConfig::new("localhost:9092");
        config.properties.insert("sasl.password".into(), "hunter2".into());
        let shown = format!("{config:?}");
        assert!(shown.contains("sasl.password") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn a_dead_letter_policy_needs_its_topic() {
        let config =
            KafkaSinkConfig { on_too_large: Rejected::DeadLetter, ..KafkaSinkConfig::new("localhost:9092") };
        let error = config.validate().unwrap_err();
        assert!(error.to_string().contains("dead_letter_topic"), "{error}");
    }
}
