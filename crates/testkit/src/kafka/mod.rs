//! A real Apache Kafka, one node in KRaft mode.

mod broker;
mod builder;
mod jars;
mod wire;

pub use broker::{BrokerStopped, KafkaBroker};
pub use builder::KafkaBrokerBuilder;
pub use jars::KafkaJars;
