//! Positions in a compacted topic.

use std::time::Duration;

use crabka_connect::{CheckpointStore, ErrorClass, SourceOffset};
use crabka_connect_kafka::{KafkaCheckpointConfig, KafkaCheckpointStore};
use crabka_testkit::{Direction, FaultProxy, KafkaBroker, Side, needs, unique_name};
use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::support::{create, partitions, read, shared, topic_setting};

fn store_config(servers: &str, topic: &str) -> KafkaCheckpointConfig {
    KafkaCheckpointConfig { topic: topic.to_owned(), ..KafkaCheckpointConfig::new(servers) }
}

async fn store(servers: &str, topic: &str) -> KafkaCheckpointStore {
    KafkaCheckpointStore::open(store_config(servers, topic)).await.unwrap()
}

fn offset(slot: &str, lsn: u64) -> SourceOffset {
    SourceOffset {
        partition: [("slot".to_owned(), slot.into())].into(),
        position: [("lsn".to_owned(), lsn.into())].into(),
    }
}

fn key(connector: &str, slot: &str) -> String {
    format!(r#"{{"connector":"{connector}","partition":{{"slot":"{slot}"}}}}"#)
}

/// Puts an entry into the topic beside the store; no value is a tombstone.
fn put(producer: &BaseProducer, topic: &str, partition: i32, key: Option<&str>, value: Option<&str>) {
    let mut record: BaseRecord<'_, str, str> = BaseRecord::to(topic).partition(partition);
    record.key = key;
    record.payload = value;
    producer.send(record).map_err(|(error, _)| error).unwrap();
    producer.flush(Duration::from_secs(20)).unwrap();
}

fn producer(servers: &str) -> BaseProducer {
    ClientConfig::new().set("bootstrap.servers", servers).create().unwrap()
}

#[tokio::test]
async fn a_missing_topic_is_created_compacted_and_holds_no_position() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("offsets");
    let mut first = store(&servers, &topic).await;
    assert_eq!(first.load("orders").await.unwrap(), None);
    assert_eq!(partitions(&servers, &topic).await, Some(1));
    assert_eq!(topic_setting(&servers, &topic, "cleanup.policy").await, "compact");

    for lsn in 0..50 {
        first.save("orders", &offset("a", lsn)).await.unwrap();
    }
    first.save("billing", &offset("b", 7)).await.unwrap();
    assert_eq!(first.load("orders").await.unwrap(), Some(offset("a", 49)));
    let mut second = store(&servers, &topic).await;
    assert_eq!(second.load("orders").await.unwrap(), Some(offset("a", 49)));
    assert_eq!(second.load("billing").await.unwrap(), Some(offset("b", 7)));
    assert_eq!(second.load("nobody").await.unwrap(), None);
    let entry = &read(&servers, &topic).await[0];
    assert_eq!(entry.key.as_deref(), Some(key("orders", "a").as_str()));
    assert_eq!(entry.text(), offset("a", 0).to_json());
}

#[tokio::test]
async fn ops_24_looking_makes_no_topic_and_the_told_tombstone_removes_an_offset() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("offsets");
    let mut looking = store(&servers, &topic).await;
    assert_eq!(looking.peek("it's").await.unwrap(), None);
    assert_eq!(partitions(&servers, &topic).await, None, "a look made the topic");
    let saved = offset("a", 1);
    store(&servers, &topic).await.save("it's", &saved).await.unwrap();
    assert_eq!(looking.peek("it's").await.unwrap().as_ref(), Some(&saved));

    // The key as a shell would pass it on.
    let command = store_config(&servers, &topic).removal_command("it's", &saved);
    let quoted = command.strip_prefix("printf '%s\\tNULL\\n' ").unwrap().split(" | ").next().unwrap();
    let key = std::process::Command::new("sh").args(["-c", &format!("printf %s {quoted}")]).output().unwrap();
    let key = String::from_utf8(key.stdout).unwrap();
    put(&producer(&servers), &topic, 0, Some(&key), None);
    assert_eq!(looking.peek("it's").await.unwrap(), None);
}

#[tokio::test]
async fn the_newest_entry_wins_whatever_its_source_partition() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("offsets");
    let mut store = store(&servers, &topic).await;
    store.save("orders", &offset("old slot", 900)).await.unwrap();
    store.save("orders", &offset("new slot", 1)).await.unwrap();
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("new slot", 1)));
    store.save("orders", &offset("old slot", 901)).await.unwrap();
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("old slot", 901)));
}

#[tokio::test]
async fn a_tombstone_removes_one_entry() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("offsets");
    let mut store = store(&servers, &topic).await;
    store.save("orders", &offset("a", 1)).await.unwrap();
    store.save("orders", &offset("b", 2)).await.unwrap();
    let operator = producer(&servers);
    put(&operator, &topic, 0, Some(&key("orders", "b")), None);
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("a", 1)));
    put(&operator, &topic, 0, Some(&key("orders", "a")), None);
    assert_eq!(store.load("orders").await.unwrap(), None);
    store.save("orders", &offset("b", 3)).await.unwrap();
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("b", 3)));
}

#[tokio::test]
async fn more_partitions_keep_one_order() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("offsets");
    create(&servers, &topic, 4, &[("cleanup.policy", "compact")]).await;
    // As another program would have left it.
    put(&producer(&servers), &topic, 3, Some(&key("orders", "a")), Some(&offset("a", 1).to_json()));
    let mut store = store(&servers, &topic).await;
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("a", 1)));
    for lsn in 2..10 {
        store.save("orders", &offset("a", lsn)).await.unwrap();
        assert_eq!(store.load("orders").await.unwrap(), Some(offset("a", lsn)));
    }
}

#[tokio::test]
async fn an_unreadable_entry_is_an_error_that_names_its_place() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    for (bad_key, bad_value) in [
        (Some("not json"), Some("{}")),
        (None, Some("{}")),
        (Some(key("orders", "a").as_str()), Some("{\"torn")),
        (Some(key("orders", "a").as_str()), Some(offset("other", 5).to_json().as_str())),
    ] {
        // A compacted topic takes no record without a key: this one became compacted later.
        let topic = unique_name("offsets");
        create(&servers, &topic, 1, &[]).await;
        put(&producer(&servers), &topic, 0, bad_key, bad_value);
        let compact = rdkafka::admin::AlterConfig::new(rdkafka::admin::ResourceSpecifier::Topic(&topic))
            .set("cleanup.policy", "compact");
        let options = rdkafka::admin::AdminOptions::new();
        assert!(
            crate::support::admin(&servers).alter_configs([&compact], &options).await.unwrap()[0].is_ok()
        );
        let mut store = store(&servers, &topic).await;
        let error = store.load("orders").await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::LostPosition, "{error}");
        assert!(error.message().contains(&format!("{topic} [0] at offset 0")), "{error}");
    }
}

#[tokio::test]
async fn a_topic_that_would_lose_positions_is_refused() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("offsets");
    create(&servers, &topic, 1, &[("cleanup.policy", "delete")]).await;
    let mut store = store(&servers, &topic).await;
    for error in
        [store.load("orders").await.unwrap_err(), store.save("orders", &offset("a", 1)).await.unwrap_err()]
    {
        assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
        assert!(error.message().contains(&topic) && error.fix().unwrap().contains("compact"), "{error}");
    }

    let missing = unique_name("offsets");
    let config = KafkaCheckpointConfig { create_topic: false, ..store_config(&servers, &missing) };
    let mut store = KafkaCheckpointStore::open(config).await.unwrap();
    let error = store.load("orders").await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
    assert_eq!(partitions(&servers, &missing).await, None);
}

#[tokio::test]
async fn transactions_in_the_topic_are_read_as_far_as_they_are_committed() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("offsets");
    let mut store = store(&servers, &topic).await;
    store.save("orders", &offset("a", 1)).await.unwrap();
    let transactional: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &servers)
        .set("transactional.id", &topic)
        .create()
        .unwrap();
    let transactional = std::sync::Arc::new(transactional);
    let wait = Duration::from_secs(20);
    let steps = {
        let (producer, topic) = (std::sync::Arc::clone(&transactional), topic.clone());
        move |lsn: u64, commit: bool| {
            producer.begin_transaction().unwrap();
            let json = offset("a", lsn).to_json();
            put(&producer, &topic, 0, Some(&key("orders", "a")), Some(&json));
            if commit {
                producer.commit_transaction(wait).unwrap();
            } else {
                producer.abort_transaction(wait).unwrap();
            }
        }
    };
    transactional.init_transactions(wait).unwrap();
    steps(2, true);
    steps(3, false);
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("a", 2)), "markers at the end, one aborted");
    store.save("orders", &offset("a", 4)).await.unwrap();
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("a", 4)), "a gap in the middle");

    // While a transaction is open, what comes after it cannot be seen: that is never "no newer position".
    transactional.begin_transaction().unwrap();
    put(&transactional, &topic, 0, Some(&key("other", "x")), Some(&offset("x", 1).to_json()));
    store.save("orders", &offset("a", 5)).await.unwrap();
    let config = KafkaCheckpointConfig { timeout_ms: 2_000, ..store_config(&servers, &topic) };
    let mut impatient = KafkaCheckpointStore::open(config).await.unwrap();
    let error = impatient.load("orders").await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient, "{error}");
    let committing = {
        let transactional = std::sync::Arc::clone(&transactional);
        tokio::task::spawn_blocking(move || {
            std::thread::sleep(Duration::from_millis(500));
            transactional.commit_transaction(wait).unwrap();
        })
    };
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("a", 5)), "it waits for the end");
    committing.await.unwrap();
}

#[tokio::test]
async fn a_position_survives_the_broker() {
    needs!(kafka);
    let broker = KafkaBroker::start().await.unwrap();
    let servers = broker.bootstrap_servers();
    let mut store = store(&servers, "offsets").await;
    store.save("orders", &offset("a", 1)).await.unwrap();
    broker.kill9().await.unwrap();
    let saving = tokio::spawn(async move {
        let outcome = store.save("orders", &offset("a", 2)).await;
        (store, outcome)
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    broker.start_again().await.unwrap();
    let (mut same, outcome) = saving.await.unwrap();
    outcome.unwrap();
    assert_eq!(same.load("orders").await.unwrap(), Some(offset("a", 2)));
    assert_eq!(self::store(&servers, "offsets").await.load("orders").await.unwrap(), Some(offset("a", 2)));
}

/// No broker refuses a sequence number on demand, so librdkafka's own one does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_that_ends_the_producer_does_not_end_the_store() {
    let broker = MockCluster::new(1).unwrap();
    broker.create_topic("offsets", 1, 1).unwrap();
    let mut config = store_config(&broker.bootstrap_servers(), "offsets");
    (config.create_topic, config.describe_topic, config.timeout_ms) = (false, false, 5_000);
    let mut store = KafkaCheckpointStore::open(config).await.unwrap();
    store.save("orders", &offset("a", 1)).await.unwrap();
    broker.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
    );
    let error = store.save("orders", &offset("a", 2)).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient, "{error}");
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("a", 1)));
    store.save("orders", &offset("a", 3)).await.unwrap();
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("a", 3)));
}

/// A broker that is reached through the proxy alone.
async fn behind_a_proxy() -> (KafkaBroker, FaultProxy) {
    let proxy = FaultProxy::start("127.0.0.1:1").unwrap();
    let broker = KafkaBroker::builder().advertise(proxy.address()).start().await.unwrap();
    proxy.set_target(broker.proxied_address().unwrap());
    (broker, proxy)
}

fn impatient(proxy: &FaultProxy) -> KafkaCheckpointConfig {
    let mut config = store_config(&proxy.address().to_string(), "offsets");
    config.timeout_ms = 1_500;
    // Longer than a save waits: the offset is sent again when nobody expects it any more.
    config.properties.insert("socket.timeout.ms".to_owned(), "4000".to_owned());
    config
}

/// Loads until it is answered, and makes sure that nothing lands in the topic afterwards.
async fn load_for_good(store: &mut KafkaCheckpointStore, proxy: &FaultProxy) -> Option<SourceOffset> {
    let servers = proxy.address().to_string();
    let end = std::time::Instant::now() + Duration::from_secs(40);
    let loaded = loop {
        match store.load("orders").await {
            Ok(loaded) => break loaded,
            Err(error) => assert!(error.is_transient() && std::time::Instant::now() < end, "{error}"),
        }
    };
    let entries = read(&servers, "offsets").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(read(&servers, "offsets").await, entries, "landed after {loaded:?} was loaded");
    let mut another = self::store(&servers, "offsets").await;
    assert_eq!(another.load("orders").await.unwrap(), loaded);
    loaded
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_whose_connection_died_in_silence_does_not_land_after_a_load() {
    needs!(kafka);
    let (_broker, proxy) = behind_a_proxy().await;
    let mut store = KafkaCheckpointStore::open(impatient(&proxy)).await.unwrap();
    store.save("orders", &offset("a", 1)).await.unwrap();
    // What is sent on the connections of now goes nowhere; new ones work.
    proxy.half_open(Side::Server);
    let error = store.save("orders", &offset("a", 2)).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient, "{error}");
    load_for_good(&mut store, &proxy).await;
    store.save("orders", &offset("a", 3)).await.unwrap();
    assert_eq!(load_for_good(&mut store, &proxy).await, Some(offset("a", 3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_that_was_held_up_does_not_land_after_a_load() {
    needs!(kafka);
    let (_broker, proxy) = behind_a_proxy().await;
    let mut store = KafkaCheckpointStore::open(impatient(&proxy)).await.unwrap();
    store.save("orders", &offset("a", 1)).await.unwrap();
    proxy.blackhole(Direction::ToServer);
    let error = store.save("orders", &offset("a", 2)).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient, "{error}");
    let error = store.load("orders").await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient, "{error}");
    assert!(error.to_string().contains("an earlier position may still land"), "{error}");
    proxy.heal();
    load_for_good(&mut store, &proxy).await;
    store.save("orders", &offset("a", 3)).await.unwrap();
    assert_eq!(load_for_good(&mut store, &proxy).await, Some(offset("a", 3)));
}
