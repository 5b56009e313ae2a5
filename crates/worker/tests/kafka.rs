//! The verbs against a real PostgreSQL and a real Kafka.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

mod command;

use std::time::{Duration, Instant};

use command::{LIMIT, Running, Workplace, output, stderr, stdout};
use crabka_testkit::{KafkaBroker, PgServer, needs};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// The smallest configuration, as the README has it, with the names of a test.
fn smallest(name: &str, url: &str, brokers: &str) -> Workplace {
    Workplace::new(&format!(
        "name = {name:?}\n[source]\nurl = {url:?}\ntables = [\"public.orders\"]\n[envelope]\ntype = \"debezium\"\n\
         [sink]\ntype = \"kafka\"\nbootstrap_servers = {brokers:?}\n[checkpoint]\nstore = \"kafka\"\n"
    ))
}

async fn database() -> (String, String, Client) {
    let server = PgServer::shared_default().await.unwrap();
    let name = server.create_database("kafka").await.unwrap();
    let sql = server.connect(&name).await.unwrap();
    sql.batch_execute("CREATE TABLE orders (id int PRIMARY KEY, v text)").await.unwrap();
    (name.clone(), server.url(&name), sql)
}

/// Key and value of the first `count` records of a topic, all partitions together.
fn read(brokers: &str, topic: &str, count: usize) -> Vec<(Value, Value)> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "reads")
        .set("enable.auto.commit", "false")
        .create()
        .unwrap();
    let end = Instant::now() + LIMIT;
    let partitions = loop {
        let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(10)).unwrap();
        match metadata.topics().first().map_or(0, |topic| topic.partitions().len()) {
            0 => assert!(Instant::now() < end, "no topic in time: {topic}"),
            partitions => break partitions,
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        let partition = i32::try_from(partition).unwrap();
        assignment.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&assignment).unwrap();
    let parse =
        |bytes: Option<&[u8]>| bytes.map_or(Value::Null, |bytes| serde_json::from_slice(bytes).unwrap());
    let mut records = Vec::new();
    while records.len() < count {
        assert!(Instant::now() < end, "{} of {count} records in time: {topic}", records.len());
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            let message = message.unwrap();
            records.push((parse(message.key()), parse(message.payload())));
        }
    }
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn run_streams_into_kafka_with_its_checkpoint_there() {
    needs!(postgres, kafka);
    let (name, url, sql) = database().await;
    let brokers = KafkaBroker::shared().await.unwrap().bootstrap_servers();
    let place = smallest(&name, &url, &brokers);
    let check = place.output("check", &[]);
    assert_eq!(check.status.code(), Some(0), "{}{}", stdout(&check), stderr(&check));
    assert!(place.output("init", &[]).status.success());

    sql.batch_execute("INSERT INTO orders VALUES (1, 'a'); UPDATE orders SET v = 'b'").await.unwrap();
    let topic = format!("{name}.public.orders");
    let running = place.run(&["--set", "sink.partitions=1"]);
    let records = read(&brokers, &topic, 2);
    assert_eq!(records[0].0, json!({"id": 1}));
    assert_eq!(records[1].1["after"], json!({"id": 1, "v": "b"}));
    running.terminate();

    sql.batch_execute("DELETE FROM orders").await.unwrap();
    let running = place.run(&["--set", "sink.partitions=1"]);
    let records = read(&brokers, &topic, 4);
    let ops: Vec<&Value> = records.iter().map(|(_, value)| &value["op"]).collect();
    assert_eq!(ops, [&json!("c"), &json!("u"), &json!("d"), &Value::Null]);
    running.terminate();
    sql.batch_execute(&format!("SELECT pg_drop_replication_slot('{name}')")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_25_a_record_that_cannot_be_delivered_has_its_exit_code() {
    needs!(postgres, kafka);
    let (name, url, sql) = database().await;
    let brokers = KafkaBroker::shared().await.unwrap().bootstrap_servers();
    let place = smallest(&name, &url, &brokers);
    assert!(place.output("init", &[]).status.success());
    sql.batch_execute("INSERT INTO orders VALUES (1, repeat('CANARY', 1000))").await.unwrap();
    let mut running = place.run(&[
        "--set",
        "sink.record_bytes_max=2000",
        "--log-level",
        "debug,crabka=trace,librdkafka=trace",
    ]);
    assert_eq!(running.code(), Some(12), "{}", running.log());
    let log = running.log();
    let last = log.lines().last().unwrap();
    assert!(last.starts_with("crabka: data: "), "{last}");
    assert!(!log.contains("CANARY"), "a row's value is in the log");
    sql.batch_execute(&format!("SELECT pg_drop_replication_slot('{name}')")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_01_check_tells_of_a_broker_that_is_away() {
    needs!(postgres);
    let (name, url, _sql) = database().await;
    let place = smallest(&name, &url, "127.0.0.1:1");
    let check = place.output("check", &["--json", "--set", "sink.request_timeout_ms=2000"]);
    assert_eq!(check.status.code(), Some(10), "{}", stderr(&check));
    let report: Value = serde_json::from_str(&stdout(&check)).unwrap();
    let found =
        |id: &str| report["findings"].as_array().unwrap().iter().find(|finding| finding["id"] == id).cloned();
    assert_eq!(found("sink_broker_reachable").unwrap()["severity"], "could_not_look", "{report}");
    assert_eq!(found("wal_level").unwrap()["severity"], "ok", "{report}");
}

#[test]
fn the_demo_shows_changes_and_cleans_up() {
    needs!(postgres);
    let install = crabka_testkit::PgInstall::find(None).unwrap();
    if install.image().is_some() {
        // The demo starts programs that are installed; those of a container image are the testkit's alone.
        return;
    }
    let bin = install.bin().display().to_string();
    let demo = output(&["demo", "--seconds", "2", "--pg-bin", &bin]);
    let text = stdout(&demo);
    assert_eq!(demo.status.code(), Some(0), "{text}{}", stderr(&demo));
    for part in ["librdkafka's mock cluster", "create", "update", "{\"id\":1}"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    let summary = text.lines().last().unwrap();
    let (read, rest) = summary.split_once(" of ").unwrap();
    let read = read.rsplit(' ').next().unwrap();
    assert_eq!(rest.split(' ').next(), Some(read), "{summary}");
    assert_ne!(read, "0", "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_can_be_broken_off_and_cleans_up() {
    needs!(postgres);
    let (_, url, sql) = database().await;
    let directory = tempfile::tempdir().unwrap();
    let (mut running, out) = Running::start(directory.path(), &["demo", "--seconds", "3600", "--pg", &url]);
    running.until("a record", || std::fs::read_to_string(&out).unwrap().contains("create").then_some(()));
    running.terminate();
    assert!(std::fs::read_to_string(&out).unwrap().contains("records read back from Kafka"));
    let left = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()";
    assert_eq!(sql.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_takes_a_server_and_a_broker_and_leaves_nothing_there() {
    needs!(postgres, kafka);
    let (_, url, sql) = database().await;
    let brokers = KafkaBroker::shared().await.unwrap().bootstrap_servers();
    let demo = output(&["demo", "--seconds", "2", "--pg", &url, "--kafka", &brokers]);
    assert_eq!(demo.status.code(), Some(0), "{}{}", stdout(&demo), stderr(&demo));
    assert!(stdout(&demo).contains("a real broker"), "{}", stdout(&demo));
    for left in [
        "pg_replication_slots WHERE database = current_database()",
        "pg_publication",
        "pg_namespace WHERE nspname = 'crabka_demo'",
    ] {
        let count: i64 = sql.query_one(&format!("SELECT count(*) FROM {left}"), &[]).await.unwrap().get(0);
        assert_eq!(count, 0, "{left}");
    }
    let consumer: BaseConsumer = ClientConfig::new().set("bootstrap.servers", &brokers).create().unwrap();
    let metadata = consumer.fetch_metadata(None, Duration::from_secs(10)).unwrap();
    let left: Vec<&str> =
        metadata.topics().iter().map(|topic| topic.name()).filter(|n| n.contains("crabka-demo")).collect();
    assert!(left.is_empty(), "{left:?}");
}
