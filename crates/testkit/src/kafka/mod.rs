//! A real Apache Kafka in KRaft mode: one node, or several that replicate.

mod broker;
mod builder;
mod cluster;
mod install;
mod wire;

pub use broker::{BrokerStopped, KafkaBroker};
pub use builder::KafkaBrokerBuilder;
pub use cluster::KafkaCluster;
pub use install::KafkaInstall;
