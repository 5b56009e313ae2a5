//! Kafka sink and the checkpoint kept in a compacted topic, over librdkafka.
