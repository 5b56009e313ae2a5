//! An independent reader of topics.

use std::time::{Duration, Instant};

use rdkafka::Message;
use rdkafka::TopicPartitionList;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::Offset;
use serde_json::Value;

/// Reads one topic from its beginning, all partitions.
pub struct TopicReader {
    consumer: BaseConsumer,
}

/// A record as it lies in the topic.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Partition.
    pub partition: i32,
    /// Key; null where there is none.
    pub key: Value,
    /// Value; null for a tombstone.
    pub value: Value,
}

impl TopicReader {
    /// Waits for the topic to exist.
    pub fn open(bootstrap_servers: &str, topic: &str) -> Self {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap_servers)
            .set("group.id", format!("{topic}-reader"))
            .set("enable.auto.commit", "false")
            .set("isolation.level", "read_committed")
            .set("allow.auto.create.topics", "false")
            .create()
            .expect("a consumer");
        let deadline = Instant::now() + Duration::from_secs(60);
        let partitions = loop {
            let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(10));
            let partitions =
                metadata.ok().and_then(|m| m.topics().first().map(|t| t.partitions().len())).unwrap_or(0);
            if partitions > 0 {
                break partitions;
            }
            assert!(Instant::now() < deadline, "no topic {topic}");
            std::thread::sleep(Duration::from_millis(100));
        };
        let mut assignment = TopicPartitionList::new();
        for partition in 0..partitions {
            let partition = i32::try_from(partition).expect("few partitions");
            assignment.add_partition_offset(topic, partition, Offset::Beginning).expect("a valid offset");
        }
        consumer.assign(&assignment).expect("assigned");
        Self { consumer }
    }

    /// The next record; `None` when there is none for a while.
    pub fn next(&self, wait: Duration) -> Option<Stored> {
        match self.consumer.poll(wait)? {
            Ok(message) => {
                let json = |bytes: Option<&[u8]>| {
                    bytes.map_or(Value::Null, |bytes| serde_json::from_slice(bytes).expect("valid JSON"))
                };
                Some(Stored {
                    partition: message.partition(),
                    key: json(message.key()),
                    value: json(message.payload()),
                })
            }
            // The broker is away; the consumer comes back by itself.
            Err(_) => None,
        }
    }
}
