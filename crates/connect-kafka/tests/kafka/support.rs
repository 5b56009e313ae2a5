//! What the tests share: records, an independent reader, Apache Kafka's Java client.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use crabka_connect::{ConnectError, ConnectRecord, Sink};
use crabka_connect_kafka::{KafkaSink, KafkaSinkConfig};
use crabka_testkit::{KafkaBroker, KafkaInstall};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Headers;
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

pub(crate) type Record = ConnectRecord<Bytes, Bytes>;

/// A record of the topic, as the reader found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) key: Option<String>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<String>)>,
    pub(crate) timestamp_ms: Option<i64>,
}

impl Got {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.value.as_deref().unwrap_or_default()).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().rev().find(|(known, _)| known == name).and_then(|(_, value)| value.as_deref())
    }
}

pub(crate) fn record(topic: &str, key: Option<&str>, value: Option<&str>) -> Record {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    ConnectRecord::new(key.map(bytes), value.map(bytes)).with_topic(topic)
}

pub(crate) fn keyed(topic: &str, key: &str, value: &str) -> Record {
    record(topic, Some(key), Some(value))
}

/// One batch through a sink.
pub(crate) async fn write(sink: &mut KafkaSink, mut records: Vec<Record>) -> Result<(), ConnectError> {
    sink.begin().await?;
    sink.put(&mut records).await?;
    assert!(records.is_empty(), "put takes all records");
    sink.commit(None).await
}

/// Writes the batch until it is durable, opening the sink again after each transient error, as the runtime does. Says how
/// often it failed.
pub(crate) async fn write_retrying(
    sink: &mut KafkaSink,
    config: &KafkaSinkConfig,
    records: &[Record],
) -> usize {
    let mut failed = 0;
    while let Err(error) = write(sink, records.to_vec()).await {
        assert!(error.is_transient(), "{error}");
        let _ = sink.close().await;
        *sink = reopened(config).await;
        failed += 1;
    }
    failed
}

async fn reopened(config: &KafkaSinkConfig) -> KafkaSink {
    loop {
        match KafkaSink::open(config.clone()).await {
            Ok(sink) => return sink,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
}

pub(crate) async fn shared() -> &'static KafkaBroker {
    KafkaBroker::shared().await.unwrap()
}

/// Options with time-outs that suit a test.
pub(crate) fn config(servers: impl Into<String>) -> KafkaSinkConfig {
    KafkaSinkConfig { flush_timeout_ms: 5_000, ..KafkaSinkConfig::new(servers) }
}

/// Every committed record of a topic, read by a consumer of its own.
pub(crate) async fn read(servers: &str, topic: &str) -> Vec<Got> {
    let (servers, topic) = (servers.to_owned(), topic.to_owned());
    tokio::task::spawn_blocking(move || read_blocking(&servers, &topic)).await.unwrap()
}

fn read_blocking(servers: &str, topic: &str) -> Vec<Got> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("group.id", "reader")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed")
        .create()
        .unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(20)).unwrap();
    let partitions = metadata.topics()[0].partitions().len();
    assert!(partitions > 0, "topic is missing: {topic}");
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        let partition = i32::try_from(partition).unwrap();
        assignment.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&assignment).unwrap();
    let (mut got, mut ended) = (Vec::new(), 0);
    while ended < partitions {
        match consumer.poll(Duration::from_secs(30)).expect("the topic is read to its end") {
            Ok(message) => got.push(Got {
                partition: message.partition(),
                offset: message.offset(),
                key: message.key().map(|key| String::from_utf8_lossy(key).into_owned()),
                value: message.payload().map(<[u8]>::to_vec),
                headers: message.headers().map_or_else(Vec::new, |headers| {
                    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
                    headers.iter().map(|header| (header.key.to_owned(), header.value.map(text))).collect()
                }),
                timestamp_ms: message.timestamp().to_millis(),
            }),
            Err(KafkaError::PartitionEOF(_)) => ended += 1,
            Err(error) => panic!("{error}"),
        }
    }
    got
}

/// Values of a topic by key, in the order of the partition that the key is in.
pub(crate) fn by_key(got: &[Got]) -> BTreeMap<String, Vec<String>> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for record in got {
        values.entry(record.key.clone().unwrap_or_default()).or_default().push(record.text());
    }
    values
}

/// Whether a topic exists, asked without creating it.
pub(crate) async fn partitions(servers: &str, topic: &str) -> Option<usize> {
    let (servers, topic) = (servers.to_owned(), topic.to_owned());
    tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = ClientConfig::new().set("bootstrap.servers", servers).create().unwrap();
        let metadata = consumer.fetch_metadata(None, Duration::from_secs(20)).unwrap();
        metadata.topics().iter().find(|found| found.name() == topic).map(|found| found.partitions().len())
    })
    .await
    .unwrap()
}

pub(crate) fn admin(servers: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", servers).create().unwrap()
}

/// Creates a topic beside the sink, as an operator would.
pub(crate) async fn create(servers: &str, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    let mut wanted = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for (name, value) in settings {
        wanted = wanted.set(name, value);
    }
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)));
    admin(servers).create_topics([&wanted], &options).await.unwrap()[0].as_ref().unwrap();
}

/// One of the topic's settings, asked from the broker.
pub(crate) async fn topic_setting(servers: &str, topic: &str, name: &str) -> String {
    use rdkafka::admin::ResourceSpecifier;
    let options = AdminOptions::new();
    let described =
        admin(servers).describe_configs([&ResourceSpecifier::Topic(topic)], &options).await.unwrap();
    described[0].as_ref().unwrap().get(name).unwrap().value.clone().unwrap()
}

/// Whether Apache Kafka's Java client can be run; with the broker from an image it may be missing.
pub(crate) fn java_is_here() -> bool {
    let here = KafkaInstall::get().is_ok_and(|install| install.java_and_class_path().is_some());
    assert!(here || std::env::var("CI").is_err(), "this test needs a Java on this machine");
    if !here {
        eprintln!("left out: no Java on this machine");
    }
    here
}

/// Runs Apache Kafka's Java client; gives the lines that it printed.
pub(crate) async fn java(arguments: &[&str], input: String) -> Vec<String> {
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    tokio::task::spawn_blocking(move || {
        let install = KafkaInstall::get().unwrap();
        let (program, class_path) = install.java_and_class_path().expect("a Java on this machine");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kafka/KafkaPeer.java");
        let mut child = Command::new(program)
            .args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", &class_path, source])
            .args(&arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "java {arguments:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    })
    .await
    .unwrap()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
