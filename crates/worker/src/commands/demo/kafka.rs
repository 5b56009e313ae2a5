//! The demo's Kafka: librdkafka's mock cluster in this process, or a real broker; and the consumer that reads back.

use std::time::Duration;

use crabka_connect::ConnectError;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Message, OwnedMessage};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::traffic::Traffic;

/// How long a look at a broker may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Where the records go.
pub(super) struct DemoKafka {
    servers: String,
    /// `None` with a real broker.
    mock: Option<MockCluster<'static, DefaultProducerContext>>,
    topics: Vec<String>,
}

impl DemoKafka {
    /// Starts the mock cluster with the topics of the connector `name`, unless a broker is named.
    pub(super) fn start(broker: Option<&str>, name: &str) -> Result<Self, ConnectError> {
        let topics = vec![
            format!("{name}.{}", Traffic::TABLE),
            format!("{name}.message"),
            format!("__debezium-heartbeat.{name}"),
        ];
        if let Some(broker) = broker {
            return Ok(Self { servers: broker.to_owned(), mock: None, topics });
        }
        let failed =
            |error: KafkaError| ConnectError::bug("the mock cluster does not start").with_source(error);
        let mock = MockCluster::new(1).map_err(failed)?;
        for topic in &topics {
            mock.create_topic(topic, 1, 1).map_err(failed)?;
        }
        Ok(Self { servers: mock.bootstrap_servers(), mock: Some(mock), topics })
    }

    pub(super) fn bootstrap_servers(&self) -> String {
        self.servers.clone()
    }

    /// Whether it is the mock cluster.
    pub(super) fn is_mock(&self) -> bool {
        self.mock.is_some()
    }

    /// The topic of the demo's table.
    fn topic(&self) -> &str {
        self.topics.first().map_or("", String::as_str)
    }

    /// One line about the broker.
    pub(super) fn describe(&self) -> String {
        let kind = match self.mock {
            Some(_) => "librdkafka's mock cluster, in this process",
            None => "a real broker",
        };
        format!("Kafka {} ({kind}): topic {}", self.servers, self.topic())
    }

    /// Deletes the demo's topics from a real broker. The mock cluster goes with the process.
    pub(super) async fn clean_up(self) {
        if self.mock.is_some() {
            return;
        }
        let admin: Result<AdminClient<DefaultClientContext>, KafkaError> =
            ClientConfig::new().set("bootstrap.servers", &self.servers).create();
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        let deleted = match admin {
            Ok(admin) => {
                admin.delete_topics(&topics, &AdminOptions::new().operation_timeout(Some(LIMIT))).await
            }
            Err(error) => Err(error),
        };
        for problem in deleted.into_iter().flatten().filter_map(Result::err) {
            // A topic that was never needed was never made.
            if problem.1 != RDKafkaErrorCode::UnknownTopicOrPartition {
                tracing::warn!(topic = problem.0, error = %problem.1, "a topic of the demo stays behind");
            }
        }
    }
}

/// Reads the table's topic from its beginning.
pub(super) struct Reader {
    consumer: StreamConsumer,
}

impl Reader {
    /// A consumer without a group: nothing of it stays behind.
    pub(super) fn open(kafka: &DemoKafka) -> Result<Self, ConnectError> {
        let failed = |error: KafkaError| {
            ConnectError::configuration(format!("reading back from kafka: {error}")).with_source(error)
        };
        let consumer: StreamConsumer = ClientConfig::new()
            .set("bootstrap.servers", kafka.bootstrap_servers())
            .set("group.id", "crabka-demo")
            .set("enable.auto.commit", "false")
            .set("topic.metadata.refresh.interval.ms", "500")
            .set("fetch.wait.max.ms", "50")
            .create()
            .map_err(failed)?;
        let mut partitions = TopicPartitionList::new();
        partitions
            .add_partition_offset(kafka.topic(), 0, Offset::Beginning)
            .and_then(|()| consumer.assign(&partitions))
            .map_err(failed)?;
        Ok(Self { consumer })
    }

    /// The next record.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<OwnedMessage, ConnectError> {
        loop {
            match self.consumer.recv().await {
                Ok(message) => return Ok(message.detach()),
                // With a real broker the topic is made by the first record.
                Err(error) => match error.rdkafka_error_code() {
                    Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {}
                    _ => {
                        let message = format!("reading back from kafka: {error}");
                        return Err(ConnectError::transient(message).with_source(error));
                    }
                },
            }
        }
    }
}

/// Where a record is, and what it holds.
pub(super) fn place(message: &OwnedMessage) -> String {
    format!("{}@{}", message.partition(), message.offset())
}
