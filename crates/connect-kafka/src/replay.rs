//! Reading a topic from its start to its end.

use std::collections::HashSet;
use std::time::Duration;

use crabka_connect::ConnectError;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use tokio::time::Instant;

use crate::classify;
use crate::events::Events;
use crate::properties;

/// One record of the topic.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
}

fn consumer(connection: &ClientConfig, isolation: &str) -> Result<BaseConsumer<Events>, ConnectError> {
    let mut config = connection.clone();
    config
        // librdkafka wants a group's name to assign partitions, although none is joined.
        .set("group.id", "crabka-offsets-reader")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("enable.partition.eof", "true")
        .set("isolation.level", isolation);
    BaseConsumer::from_config_and_context(&config, Events::default()).map_err(properties::refused)
}

/// Hands every committed record to `each`, in the order of its partition. Blocks the thread.
///
/// The end of a partition is told by the broker, not computed from offsets: transaction markers and compaction
/// leave gaps. An open transaction hides what is behind it, so the end of the committed records must be
/// the end of the partition.
///
/// # Errors
///
/// Transient when the end is not reached within `limit`.
pub(crate) fn read(
    connection: &ClientConfig,
    topic: &str,
    partitions: i32,
    limit: Duration,
    mut each: impl FnMut(Entry),
) -> Result<(), ConnectError> {
    let deadline = Instant::now() + limit;
    let failed =
        |error: &KafkaError| classify::error(error, format_args!("kafka topic {topic} cannot be read"));
    let committed = consumer(connection, "read_committed")?;
    wait_for_transactions(connection, &committed, topic, partitions, deadline)?;

    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        assignment
            .add_partition_offset(topic, partition, Offset::Beginning)
            .map_err(|error| failed(&error))?;
    }
    committed.assign(&assignment).map_err(|error| failed(&error))?;
    let mut entries = 0_u64;
    let mut open: HashSet<i32> = (0..partitions).collect();
    while !open.is_empty() {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(ConnectError::transient(format!(
                "kafka topic {topic} was not read to its end within {} ms, records read: {entries}",
                limit.as_millis(),
            )));
        }
        match committed.poll(remaining.min(Duration::from_millis(250))) {
            None => {}
            Some(Ok(message)) => {
                entries += 1;
                each(Entry {
                    partition: message.partition(),
                    offset: message.offset(),
                    key: message.key().map(<[u8]>::to_vec),
                    value: message.payload().map(<[u8]>::to_vec),
                });
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                open.remove(&partition);
            }
            // It also looks for the group's coordinator, for which a right may be missing that is not needed.
            Some(Err(error))
                if classify::code_of(&error) == Some(RDKafkaErrorCode::GroupAuthorizationFailed) => {}
            Some(Err(error)) => {
                // librdkafka goes on by itself after a lost connection; only what waiting cannot cure ends it.
                let error = failed(&error);
                if !error.is_transient() {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

fn wait_for_transactions(
    connection: &ClientConfig,
    committed: &BaseConsumer<Events>,
    topic: &str,
    partitions: i32,
    deadline: Instant,
) -> Result<(), ConnectError> {
    let uncommitted = consumer(connection, "read_uncommitted")?;
    for partition in 0..partitions {
        let end = |consumer: &BaseConsumer<Events>| {
            let remaining =
                deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
            consumer.fetch_watermarks(topic, partition, remaining).map(|(_, high)| high).map_err(|error| {
                classify::error(
                    &error,
                    format_args!("end of kafka topic {topic} [{partition}] cannot be read"),
                )
            })
        };
        let high_watermark = end(&uncommitted)?;
        while end(committed)? < high_watermark {
            if Instant::now() >= deadline {
                return Err(ConnectError::transient(format!(
                    "an open transaction hides the end of kafka topic {topic} [{partition}]"
                )));
            }
            #[expect(clippy::disallowed_methods, reason = "this is a thread of its own for blocking calls")]
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}
