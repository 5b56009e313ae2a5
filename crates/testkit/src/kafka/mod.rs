//! A real Apache Kafka, one node in KRaft mode.

mod broker;
mod builder;
mod install;
mod wire;

pub use broker::{BrokerStopped, KafkaBroker};
pub use builder::KafkaBrokerBuilder;
pub use install::KafkaInstall;
