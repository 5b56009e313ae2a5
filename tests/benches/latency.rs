//! How long a commit takes until a reader of its topic has it, next to the broker's own produce round trip.
//!
//! Run by `cargo xtask bench`, which starts the servers and the worker:
//! `cargo bench -p crabka-tests --bench latency -- PG-URL BOOTSTRAP-SERVERS TOPIC RATE SECONDS`.
//!
//! The load is open: transactions are sent when they are due, whether or not earlier ones have come through. A
//! transaction's time runs from its commit timestamp, which the server takes before it writes the commit record, to the
//! moment when a `read_committed` consumer has the record: the way through the broker to the reader is a part of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rdkafka::Message;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::util::Timeout;
use serde_json::{Value, json};

/// At the beginning, not counted: Java compiles what it runs often.
const WARM_UP: Duration = Duration::from_secs(5);
/// How long the last records may take.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);
/// Between two produce round trips.
const ROUND_TRIP_EVERY: Duration = Duration::from_millis(5);
/// About what an event of the load has.
const ROUND_TRIP_BYTES: usize = 500;
/// Sessions that the transactions are spread over.
const SESSIONS: usize = 4;
const LONG: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Load {
    url: String,
    servers: String,
    topic: String,
    rate: u32,
    seconds: u32,
}

impl Load {
    fn parse() -> Option<Self> {
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        Some(Self {
            url: words.next()?,
            servers: words.next()?,
            topic: words.next()?,
            rate: words.next()?.parse().ok()?,
            seconds: words.next()?.parse().ok()?,
        })
    }

    fn length(&self) -> Duration {
        WARM_UP + Duration::from_secs(self.seconds.into())
    }

    fn transactions(&self) -> u64 {
        (self.length().as_secs_f64() * f64::from(self.rate)) as u64
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() {
    // `cargo test --all-targets` runs this too, without servers.
    let Some(load) = Load::parse() else { return };
    first_transaction(&load).await;
    // The worker has made the topic with the first record.
    let consumer = consumer(&load);
    let began = SystemTime::now();
    let reader = std::thread::spawn({
        let load = load.clone();
        move || read(&load, &consumer, began + WARM_UP)
    });
    let end = Arc::new(AtomicBool::new(false));
    let round_trips = tokio::spawn(round_trips(load.clone(), Arc::clone(&end)));
    let longest_commit = commit_at_rate(&load).await;
    end.store(true, Ordering::Relaxed);
    let round_trips = quantiles(round_trips.await.expect("round trips"));
    let commits = tokio::task::spawn_blocking(|| reader.join().expect("a reader")).await.expect("a reader");
    let told = json!({
        "rate": load.rate,
        "seconds": load.seconds,
        "transactions": commits.len(),
        "longest_commit_ms": longest_commit.as_secs_f64() * 1e3,
        "commit_to_reader_ms": quantiles(commits),
        "round_trip_ms": round_trips,
    });
    println!("{told}");
}

async fn session(load: &Load) -> (tokio_postgres::Client, tokio_postgres::Statement) {
    let (client, connection) =
        tokio_postgres::connect(&load.url, tokio_postgres::NoTls).await.expect("a session");
    tokio::spawn(connection);
    let insert = client.prepare("INSERT INTO load VALUES ($1, $2, $3)").await.expect("a statement");
    (client, insert)
}

/// Makes the topic come into being.
async fn first_transaction(load: &Load) {
    let (client, insert) = session(load).await;
    client.execute(&insert, &[&0_i64, &0_i32, &"first"]).await.expect("a commit");
}

/// Sends each transaction when it is due, pipelined, and tells the longest time that one took to commit.
async fn commit_at_rate(load: &Load) -> Duration {
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(session(load).await);
    }
    let began = Instant::now();
    let (mut sent, all) = (0, load.transactions());
    let mut running = FuturesUnordered::new();
    let mut longest = Duration::ZERO;
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    while sent < all || !running.is_empty() {
        tokio::select! {
            _ = tick.tick(), if sent < all => {
                let due = ((began.elapsed().as_secs_f64() * f64::from(load.rate)) as u64).min(all);
                for id in sent + 1..=due {
                    let (client, insert) = &sessions[id as usize % SESSIONS];
                    running.push(async move {
                        let began = Instant::now();
                        let (id, customer) = (id as i64, (id % 10_000) as i32);
                        let note = "a note of some length, as such rows have them";
                        client.execute(insert, &[&id, &customer, &note]).await.expect("a commit");
                        began.elapsed()
                    });
                }
                sent = due;
            }
            Some(took) = running.next() => longest = longest.max(took),
        }
    }
    longest
}

fn consumer(load: &Load) -> BaseConsumer {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &load.servers)
        .set("group.id", format!("{}-latency", load.topic))
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("allow.auto.create.topics", "false")
        .set("fetch.wait.max.ms", "500")
        .create()
        .expect("a consumer");
    let deadline = Instant::now() + LONG;
    let partitions = loop {
        let metadata = consumer.fetch_metadata(Some(&load.topic), LONG);
        let partitions = metadata.ok().and_then(|m| m.topics().first().map(|topic| topic.partitions().len()));
        match partitions {
            Some(partitions) if partitions > 0 => break partitions,
            _ => assert!(Instant::now() < deadline, "no topic {}", load.topic),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        assignment.add_partition_offset(&load.topic, partition as i32, Offset::Beginning).expect("an offset");
    }
    consumer.assign(&assignment).expect("assigned");
    consumer
}

/// Reads until every transaction has come once, and tells the times of those that committed after `from`, in ms.
fn read(load: &Load, consumer: &BaseConsumer, from: SystemTime) -> Vec<f64> {
    let from_us = unix_us(from);
    let deadline = Instant::now() + load.length() + DRAIN_LIMIT;
    let mut seen = vec![false; load.transactions() as usize + 1];
    let (mut left, mut times) = (seen.len(), Vec::new());
    while left > 0 {
        assert!(Instant::now() < deadline, "{left} transactions did not come");
        let Some(message) = consumer.poll(Duration::from_millis(200)) else { continue };
        let now_us = unix_us(SystemTime::now());
        let message = message.expect("a record");
        let event: Value = serde_json::from_slice(message.payload().expect("a value")).expect("JSON");
        let id = event["after"]["id"].as_u64().expect("an id") as usize;
        assert!(!std::mem::replace(&mut seen[id], true), "transaction {id} came twice");
        left -= 1;
        let commit_us = event["source"]["ts_us"].as_i64().expect("a commit time");
        if commit_us >= from_us {
            times.push((now_us - commit_us) as f64 / 1e3);
        }
    }
    times
}

/// Produces single records to a topic of its own until the end, as durably as the worker does, and tells how long each
/// took after the warm-up, in ms.
async fn round_trips(load: Load, end: Arc<AtomicBool>) -> Vec<f64> {
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", &load.servers)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "0")
        .create()
        .expect("a producer");
    // Beside the load's own topic, which holds nothing but the load: the reader counts.
    let topic = format!("{}.round-trip", load.topic);
    create_topic(&load.servers, &topic).await;
    let payload = vec![b'x'; ROUND_TRIP_BYTES];
    let began = Instant::now();
    let mut times = Vec::new();
    let mut tick = tokio::time::interval(ROUND_TRIP_EVERY);
    while !end.load(Ordering::Relaxed) {
        tick.tick().await;
        let sent = Instant::now();
        let record = FutureRecord::<(), [u8]>::to(&topic).payload(&payload);
        producer.send(record, Timeout::Never).await.expect("a delivery");
        if began.elapsed() > WARM_UP {
            times.push(sent.elapsed().as_secs_f64() * 1e3);
        }
    }
    times
}

async fn create_topic(servers: &str, topic: &str) {
    use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
    use rdkafka::client::DefaultClientContext;
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", servers).create().expect("an admin client");
    let new = NewTopic::new(topic, 1, TopicReplication::Fixed(-1));
    let made = admin.create_topics([&new], &AdminOptions::new()).await.expect("an answer");
    made.into_iter().for_each(|topic| drop(topic.expect("a topic")));
}

fn unix_us(time: SystemTime) -> i64 {
    time.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_micros() as i64
}

/// By nearest rank.
fn quantiles(mut times: Vec<f64>) -> Value {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let rank = (share * times.len() as f64).ceil() as usize;
        times.get(rank.max(1) - 1).copied()
    };
    json!({ "p50": at(0.5), "p99": at(0.99), "p99_9": at(0.999), "max": at(1.0) })
}
