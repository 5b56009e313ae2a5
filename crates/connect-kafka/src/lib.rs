//! Kafka sink and the checkpoint kept in a compacted topic, over librdkafka.
//!
//! [`KafkaSink`] writes records of bytes; [`KafkaCheckpointStore`] keeps a connector's position; [`check`] looks
//! at brokers and topics before anything runs. This crate knows no database.
//!
//! # What the default build can do
//!
//! librdkafka is compiled in and linked statically, with OpenSSL: TLS (`security.protocol = "SSL"`), SASL with PLAIN,
//! SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER (not GSSAPI/Kerberos, which needs a system library), and the
//! codecs gzip, snappy, lz4 and zstd. A test reads librdkafka's list of features.
//!
//! # Delivery
//!
//! The producer is idempotent and waits for all in-sync replicas; records do not expire inside librdkafka; a batch
//! is durable when every delivery report is in. Delivery is *at least once*: a batch whose outcome is not known is
//! written again as a whole, with another producer identity.

mod check;
mod checkpoint;
mod classify;
mod config;
mod events;
mod findings;
mod ledger;
mod producer;
mod properties;
mod quiet;
mod rejected;
mod replay;
mod sink;
mod topics;

pub use check::check;
pub use checkpoint::{KafkaCheckpointConfig, KafkaCheckpointStore};
pub use config::{CleanupPolicy, Compression, DEFAULT_PARTITIONS, KafkaSinkConfig, Rejected, TopicSettings};
pub use findings::{Finding, Severity};
pub use rejected::header as dead_letter_header;
pub use sink::{KafkaSink, KafkaSinkCounters};
