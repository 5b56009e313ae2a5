//! Records that a topic never takes: KAF-01, KAF-02, KAF-09.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use bytes::Bytes;
use crabka_connect::{
    BytesConverter, Clock, ConnectError, ConnectorRuntime, ErrorClass, Limits, MemoryCheckpointStore, Sink,
    Source, SourceOffset, SystemClock,
};
use crabka_connect_kafka::{
    CleanupPolicy, Compression, KafkaSink, KafkaSinkConfig, Rejected, TopicSettings, dead_letter_header,
};
use crabka_testkit::{KafkaBroker, needs, unique_name};

use crate::support::{Record, by_key, config, create, keyed, read, record, shared, topic_setting, write};

const LARGE: usize = 2_000_000;

fn large(topic: &str) -> Record {
    let mut large = keyed(topic, r#"{"id":4711,"region":"eu"}"#, &"x".repeat(LARGE));
    large.headers.push("trace", Some(Bytes::from_static(b"abc")));
    large.timestamp_ms = Some(1_700_000_000_000);
    large
}

/// Small records of the same key around a large one.
fn among_small_ones(topic: &str) -> Vec<Record> {
    let small = |n: usize| keyed(topic, "k", &format!("small {n}"));
    (0..20).map(small).chain([large(topic)]).chain((20..40).map(small)).collect()
}

fn dead_lettering(servers: &str, topic: &str) -> KafkaSinkConfig {
    KafkaSinkConfig {
        on_too_large: Rejected::DeadLetter,
        dead_letter_topic: Some(topic.to_owned()),
        source_timestamps: true,
        ..config(servers)
    }
}

#[tokio::test]
async fn kaf_01_a_failed_batch_is_never_covered_by_a_later_one() {
    needs!(kafka);
    let broker = shared().await;
    let (servers, topic) = (broker.bootstrap_servers(), unique_name("kaf01"));
    let mut sink = KafkaSink::open(config(&servers)).await.unwrap();

    let error = write(&mut sink, vec![large(&topic)]).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Data, "{error}");
    assert!(sink.begin().await.is_err(), "a second batch is not begun");
    let mut second = vec![keyed(&topic, "k", "second")];
    assert!(sink.put(&mut second).await.is_err());
    assert!(sink.commit(None).await.is_err(), "nor committed");
    sink.close().await.unwrap();
    assert_eq!(read(&servers, &topic).await, []);

    let mut again = KafkaSink::open(config(&servers)).await.unwrap();
    write(&mut again, vec![keyed(&topic, "k", "second")]).await.unwrap();
    assert_eq!(read(&servers, &topic).await.len(), 1);
}

/// Batch 1 holds a record that no topic takes, batch 2 would succeed.
struct TwoBatches {
    topic: String,
    polled: u64,
    acknowledged: Arc<AtomicU64>,
}

#[async_trait::async_trait]
impl Source<Bytes, Bytes> for TwoBatches {
    async fn poll(&mut self) -> Result<Option<Record>, ConnectError> {
        self.polled += 1;
        Ok(match self.polled {
            1 => Some(large(&self.topic)),
            2 => Some(keyed(&self.topic, "k", "second")),
            _ => None,
        })
    }

    fn checkpoint(&self) -> Option<SourceOffset> {
        let position = [("polled".to_owned(), self.polled.min(2).into())].into();
        Some(SourceOffset { position, ..SourceOffset::default() })
    }

    async fn seek(&mut self, _: SourceOffset) -> Result<(), ConnectError> {
        Err(ConnectError::bug("nothing was ever saved"))
    }

    async fn acknowledge(&mut self, _: &SourceOffset) -> Result<(), ConnectError> {
        self.acknowledged.fetch_add(1, SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn kaf_01_the_runtime_stops_and_acknowledges_nothing() {
    needs!(kafka);
    let (servers, topic) = (shared().await.bootstrap_servers(), unique_name("kaf01"));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let store = MemoryCheckpointStore::new();
    let source = {
        let (topic, acknowledged) = (topic.clone(), Arc::clone(&acknowledged));
        move || {
            let source =
                TwoBatches { topic: topic.clone(), polled: 0, acknowledged: Arc::clone(&acknowledged) };
            async move { Ok(Box::new(source) as Box<dyn Source<Bytes, Bytes>>) }
        }
    };
    let sink = {
        let config = config(&servers);
        move || {
            let config = config.clone();
            async move { Ok(Box::new(KafkaSink::open(config).await?) as Box<dyn Sink<Bytes, Bytes>>) }
        }
    };
    let runtime = ConnectorRuntime::builder("orders")
        .source(source)
        .sink(sink)
        .converter(BytesConverter)
        .checkpoint_store(store.clone())
        .limits(Limits { max_batch_records: 1, ..Limits::default() })
        .build()
        .unwrap();
    let error = runtime.run().await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Data, "{error}");
    assert_eq!(acknowledged.load(SeqCst), 0);
    assert_eq!(store.get("orders"), None);
    assert_eq!(read(&servers, &topic).await, []);
}

async fn stops(servers: &str, topic: &str, compression: Compression) {
    let mut sink = KafkaSink::open(KafkaSinkConfig { compression, ..config(servers) }).await.unwrap();
    let error = write(&mut sink, among_small_ones(topic)).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Data, "{error}");
    let text = error.to_string();
    for part in [topic, "id, region", "limit: ", &(LARGE + 33).to_string()[..3]] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert!(!text.contains("4711"), "values stay out of it: {text}");
    sink.close().await.unwrap();
}

#[tokio::test]
async fn kaf_02_over_the_brokers_limit_stops() {
    needs!(kafka);
    let broker = shared().await;
    stops(&broker.bootstrap_servers(), &unique_name("kaf02"), Compression::None).await;
}

#[tokio::test]
async fn kaf_02_over_one_topics_limit_stops() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("kaf02");
    create(&servers, &topic, 1, &[("max.message.bytes", "30000")]).await;
    stops(&servers, &topic, Compression::None).await;
}

async fn dead_letters(servers: &str, topic: &str, compression: Compression) {
    let (letters, before) = (unique_name("dead"), SystemClock.now_ms());
    let config = KafkaSinkConfig { compression, ..dead_lettering(servers, &letters) };
    let mut sink = KafkaSink::open(config).await.unwrap();
    let counters = sink.counters();
    let offset =
        SourceOffset { position: [("lsn".to_owned(), 42_u64.into())].into(), ..SourceOffset::default() };
    let mut records = among_small_ones(topic);
    // Bytes that no codec makes smaller.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(LARGE)
    .collect();
    records[20].value = Some(Bytes::from(noise.clone()));
    sink.begin().await.unwrap();
    sink.put(&mut records).await.unwrap();
    sink.commit(Some(&offset)).await.unwrap();

    assert_eq!((counters.delivered(), counters.dead_lettered()), (40, 1));
    let neighbours: Vec<String> = (0..40).map(|n| format!("small {n}")).collect();
    assert_eq!(by_key(&read(servers, topic).await)["k"], neighbours, "in order, each once");
    let found = read(servers, &letters).await;
    assert_eq!(found.len(), 1);
    let letter = &found[0];
    assert!(letter.value.as_deref() == Some(&noise[..]), "the original bytes");
    assert_eq!(letter.key.as_deref(), Some(r#"{"id":4711,"region":"eu"}"#));
    assert!(letter.timestamp_ms.unwrap() >= before, "retention counts from now");
    assert_eq!(letter.header(dead_letter_header::TIMESTAMP), Some("1700000000000"));
    assert_eq!(letter.header("trace"), Some("abc"));
    assert_eq!(letter.header(dead_letter_header::ERROR_CLASS), Some("data"));
    assert_eq!(letter.header(dead_letter_header::TOPIC), Some(topic));
    assert_eq!(letter.header(dead_letter_header::OFFSET), Some(offset.to_json().as_str()));

    write(&mut sink, vec![keyed(topic, "k", "after")]).await.unwrap();
    assert_eq!(read(servers, topic).await.len(), 41);
}

#[tokio::test]
async fn kaf_02_over_the_limit_becomes_a_dead_letter() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    dead_letters(&servers, &unique_name("kaf02"), Compression::None).await;
}

#[tokio::test]
async fn kaf_02_refused_by_the_broker_becomes_a_dead_letter() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("kaf02");
    create(&servers, &topic, 1, &[("max.message.bytes", "30000")]).await;
    // With a codec the size is known only to the broker.
    dead_letters(&servers, &topic, Compression::Lz4).await;
}

#[tokio::test]
async fn kaf_02_a_lower_limit_of_the_broker() {
    needs!(kafka);
    let broker = KafkaBroker::builder().setting("message.max.bytes", 200_000).start().await.unwrap();
    let servers = broker.bootstrap_servers();
    stops(&servers, &unique_name("kaf02"), Compression::None).await;
    dead_letters(&servers, &unique_name("kaf02"), Compression::None).await;
}

#[tokio::test]
async fn kaf_02_many_small_records_fit_a_topic_with_a_small_limit() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("kaf02");
    create(&servers, &topic, 1, &[("max.message.bytes", "10000")]).await;
    let mut sink = KafkaSink::open(config(&servers)).await.unwrap();
    // Another topic before it: the limit is met in the middle of a batch.
    let other = unique_name("kaf02");
    let value = "v".repeat(300);
    let records =
        (0..500).map(|_| keyed(&other, "k", &value)).chain((0..2_000).map(|_| keyed(&topic, "k", &value)));
    write(&mut sink, records.collect()).await.unwrap();
    assert_eq!(read(&servers, &other).await.len(), 500);
    assert_eq!(read(&servers, &topic).await.len(), 2_000);
    assert_eq!(sink.effective_settings().unwrap()["batch.size"], "10000");
    assert_eq!(sink.counters().delivered(), 2_500);
}

#[tokio::test]
async fn kaf_02_a_limit_that_is_lowered_while_running_loses_nothing() {
    needs!(kafka);
    use rdkafka::admin::{AdminOptions, AlterConfig, ResourceSpecifier};
    let servers = shared().await.bootstrap_servers();
    let (topic, letters) = (unique_name("kaf02"), unique_name("dead"));
    create(&servers, &topic, 1, &[]).await;
    let config = dead_lettering(&servers, &letters);
    let mut sink = KafkaSink::open(config.clone()).await.unwrap();
    write(&mut sink, vec![keyed(&topic, "k", "first")]).await.unwrap();
    let lower = AlterConfig::new(ResourceSpecifier::Topic(&topic)).set("max.message.bytes", "5000");
    let changed =
        crate::support::admin(&servers).alter_configs([&lower], &AdminOptions::new()).await.unwrap();
    assert!(changed[0].is_ok());

    let records: Vec<Record> =
        (0..200).map(|n| keyed(&topic, "k", &format!("{n} {}", "v".repeat(100)))).collect();
    let error = write(&mut sink, records.clone()).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient, "no record is over the limit: {error}");
    sink.close().await.unwrap();
    let mut sink = KafkaSink::open(config).await.unwrap();
    write(&mut sink, records).await.unwrap();
    let found = read(&servers, &topic).await;
    for n in 0..200 {
        assert!(found.iter().any(|got| got.text().starts_with(&format!("{n} "))), "{n} is missing");
    }
    assert_eq!(read(&servers, &letters).await, []);
}

#[tokio::test]
async fn kaf_09_a_record_without_a_key_never_reaches_a_compacted_topic() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("kaf09");
    let settings = TopicSettings { cleanup_policy: Some(CleanupPolicy::Compact), ..TopicSettings::default() };
    let mut config = config(&servers);
    config.topics.insert(topic.clone(), settings);
    let mut sink = KafkaSink::open(config.clone()).await.unwrap();
    let records = vec![keyed(&topic, "k", "kept"), record(&topic, None, Some("no key"))];
    let error = write(&mut sink, records).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Data, "{error}");
    assert!(error.to_string().contains(&topic) && error.fix().is_some(), "{error}");
    sink.close().await.unwrap();
    assert_eq!(topic_setting(&servers, &topic, "cleanup.policy").await, "compact");
    assert_eq!(read(&servers, &topic).await.len(), 1, "what was before it is there");

    // Without compaction Kafka takes it.
    let plain = unique_name("kaf09");
    let mut sink = KafkaSink::open(config).await.unwrap();
    write(&mut sink, vec![record(&plain, None, Some("no key"))]).await.unwrap();
    assert_eq!(read(&servers, &plain).await[0].key, None);
}
