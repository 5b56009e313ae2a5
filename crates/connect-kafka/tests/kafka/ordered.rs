//! Order, keys and partitions: KAF-03 to KAF-07, KAF-15.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crabka_connect::{ErrorClass, Sink};
use crabka_connect_kafka::{CleanupPolicy, KafkaSink, TopicSettings};
use crabka_testkit::{Direction, FaultProxy, KafkaBroker, needs, unique_name};
use rdkafka::admin::{AdminOptions, AlterConfig, ResourceSpecifier};

use crate::support::{
    Record, by_key, config, create, hex, java, java_is_here, keyed, partitions, read, record, shared,
    topic_setting, write, write_retrying,
};

#[tokio::test]
async fn kaf_03_durable_by_default() {
    needs!(kafka);
    if !java_is_here() {
        return;
    }
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("kaf03");
    create(&servers, &topic, 1, &[]).await;
    let mut sink = KafkaSink::open(config(&servers)).await.unwrap();
    let settings = sink.effective_settings().unwrap();
    for (name, value) in [
        ("acks", "-1"),
        ("enable.idempotence", "true"),
        ("max.in.flight.requests.per.connection", "5"),
        ("message.send.max.retries", "2147483647"),
        ("message.timeout.ms", "0"),
        ("allow.auto.create.topics", "false"),
    ] {
        assert_eq!(settings[name], value, "{name}");
    }
    write(&mut sink, vec![keyed(&topic, "k", "v")]).await.unwrap();
    // The broker keeps a sequence only for an idempotent producer.
    assert_eq!(java(&["producers", &servers, &topic], String::new()).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kaf_04_order_per_key_while_connections_are_cut() {
    needs!(kafka);
    let proxy = Arc::new(FaultProxy::start("127.0.0.1:1").unwrap());
    let broker = KafkaBroker::builder().advertise(proxy.address()).start().await.unwrap();
    proxy.set_target(broker.proxied_address().unwrap());
    let topic = unique_name("kaf04");
    create(&broker.bootstrap_servers(), &topic, 3, &[]).await;
    let mut config = config(proxy.address().to_string());
    config.properties.insert("reconnect.backoff.ms".into(), "10".into());
    config.properties.insert("reconnect.backoff.max.ms".into(), "50".into());
    // Many small requests, so that several are in flight when a connection ends.
    config.properties.insert("batch.num.messages".into(), "10".into());
    let mut sink = KafkaSink::open(config.clone()).await.unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let cutter = {
        let (proxy, stop) = (Arc::clone(&proxy), Arc::clone(&stop));
        tokio::spawn(async move {
            for n in 0.. {
                tokio::time::sleep(Duration::from_millis(40)).await;
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                if n % 2 == 0 { proxy.cut() } else { proxy.reset() }
            }
        })
    };
    write_updates(&mut sink, &topic, 20).await;
    stop.store(true, Ordering::SeqCst);
    cutter.await.unwrap();
    let connections = proxy.counters().accepted;
    assert!(connections > 10, "the connections were cut: {connections}");

    assert_in_order(&broker.bootstrap_servers(), &topic, 20).await;
}

/// Batches of 100 updates of two keys.
async fn write_updates(sink: &mut KafkaSink, topic: &str, batches: u32) {
    for first in (0..batches).map(|batch| batch * 100) {
        let update = |n: u32| keyed(topic, &format!("key {}", n % 2), &n.to_string());
        write(sink, (first..first + 100).map(update).collect()).await.unwrap();
    }
}

async fn assert_in_order(servers: &str, topic: &str, batches: u32) {
    let values = by_key(&read(servers, topic).await);
    for key in 0..2 {
        let wanted: Vec<String> =
            (0..batches * 100).filter(|n| n % 2 == key).map(|n| n.to_string()).collect();
        assert!(values[&format!("key {key}")] == wanted, "key {key}: each once and in order");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kaf_04_order_per_key_under_retriable_errors() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("kaf04");
    create(&servers, &topic, 1, &[]).await;
    let mut config = config(&servers);
    config.properties.insert("batch.num.messages".into(), "5".into());
    config.properties.insert("retry.backoff.ms".into(), "1".into());
    config.properties.insert("retry.backoff.max.ms".into(), "20".into());
    let mut sink = KafkaSink::open(config).await.unwrap();
    sink.prepare(&[&topic]).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let refusals = {
        let (servers, topic, stop) = (servers.clone(), topic.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let admin = crate::support::admin(&servers);
            let mut changes = 0;
            while !stop.load(Ordering::SeqCst) {
                // One replica is not enough for two: the broker refuses with a retriable error.
                for wanted in ["2", "1"] {
                    let change =
                        AlterConfig::new(ResourceSpecifier::Topic(&topic)).set("min.insync.replicas", wanted);
                    assert!(admin.alter_configs([&change], &AdminOptions::new()).await.unwrap()[0].is_ok());
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
                changes += 1;
            }
            changes
        })
    };
    write_updates(&mut sink, &topic, 100).await;
    stop.store(true, Ordering::SeqCst);
    assert!(refusals.await.unwrap() > 3, "the broker refused now and then");
    assert_in_order(&servers, &topic, 100).await;
}

#[tokio::test]
async fn kaf_05_topics_are_made_on_purpose() {
    needs!(kafka);
    let broker = KafkaBroker::builder().setting("auto.create.topics.enable", true).start().await.unwrap();
    let servers = broker.bootstrap_servers();
    let missing = unique_name("kaf05");
    let mut refusing = config(&servers);
    refusing.create_topics = false;
    let mut sink = KafkaSink::open(refusing).await.unwrap();
    let error = write(&mut sink, vec![keyed(&missing, "k", "v")]).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Configuration);
    assert!(error.message().contains(&missing) && error.fix().unwrap().contains("--create"), "{error}");
    sink.close().await.unwrap();
    assert_eq!(partitions(&servers, &missing).await, None, "the broker would have created it");

    let mut creating = config(&servers);
    creating.topic.partitions = Some(3);
    creating.topic.cleanup_policy = Some(CleanupPolicy::CompactDelete);
    creating.topic.config.insert("retention.ms".into(), "123456".into());
    let heartbeat = unique_name("heartbeat");
    let one = TopicSettings { partitions: Some(1), ..TopicSettings::default() };
    creating.topics.insert(heartbeat.clone(), one);
    let mut sink = KafkaSink::open(creating.clone()).await.unwrap();
    write(&mut sink, vec![keyed(&missing, "k", "v"), keyed(&heartbeat, "k", "v")]).await.unwrap();
    assert_eq!(partitions(&servers, &missing).await, Some(3));
    assert_eq!(partitions(&servers, &heartbeat).await, Some(1));
    assert_eq!(topic_setting(&servers, &missing, "cleanup.policy").await, "compact,delete");
    assert_eq!(topic_setting(&servers, &missing, "retention.ms").await, "123456");
    assert_eq!(sink.findings(), []);

    // Deleted under way, it is not created by a broker that would.
    let options = rdkafka::admin::AdminOptions::new();
    crate::support::admin(&servers).delete_topics(&[&missing], &options).await.unwrap()[0].as_ref().unwrap();
    let outcome =
        tokio::time::timeout(Duration::from_secs(5), write(&mut sink, vec![keyed(&missing, "k", "w")]));
    assert!(!matches!(outcome.await, Ok(Ok(()))));
    assert_eq!(partitions(&servers, &missing).await, None);
}

#[tokio::test]
async fn kaf_05_existing_topics_are_compared_and_never_changed() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("kaf05");
    create(&servers, &topic, 1, &[("cleanup.policy", "delete")]).await;
    let mut config = config(&servers);
    config.topic.partitions = Some(4);
    config.topic.replication_factor = Some(3);
    config.topic.cleanup_policy = Some(CleanupPolicy::Compact);
    let mut sink = KafkaSink::open(config.clone()).await.unwrap();
    write(&mut sink, vec![keyed(&topic, "k", "v")]).await.unwrap();
    let names: Vec<&str> = sink.findings().iter().map(|finding| finding.name).collect();
    assert_eq!(names, ["topic_partitions", "topic_replication", "topic_cleanup_policy"]);
    assert!(sink.findings().iter().all(|finding| finding.fix.is_some()));
    assert_eq!(partitions(&servers, &topic).await, Some(1));
    assert_eq!(topic_setting(&servers, &topic, "cleanup.policy").await, "delete");

    // One broker cannot hold three replicas.
    let error = sink.prepare(&[&unique_name("kaf05")]).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
    assert!(error.fix().unwrap().contains("replication_factor"), "{error}");
}

#[tokio::test]
async fn kaf_06_keys_spread_and_keep_order() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("kaf06");
    let mut sink = KafkaSink::open(config(&servers)).await.unwrap();
    for round in 0..3 {
        let records = (0..10_000).map(|id| keyed(&topic, &format!(r#"{{"id":{id}}}"#), &round.to_string()));
        write(&mut sink, records.collect()).await.unwrap();
    }
    let got = read(&servers, &topic).await;
    assert_eq!(got.len(), 30_000);
    let mut homes: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    let mut keys: BTreeMap<i32, BTreeSet<&str>> = BTreeMap::new();
    for record in &got {
        let key = record.key.as_deref().unwrap();
        homes.entry(key).or_default().insert(record.partition);
        keys.entry(record.partition).or_default().insert(key);
    }
    assert!(homes.values().all(|partitions| partitions.len() == 1), "one key stays in one partition");
    assert_eq!(keys.len(), 6, "the default number of partitions");
    for (partition, keys) in keys {
        assert!((1_500..1_850).contains(&keys.len()), "partition {partition} has {} keys", keys.len());
    }
    assert!(by_key(&got).values().all(|values| *values == ["0", "1", "2"]));
}

#[tokio::test]
async fn kaf_06_records_without_a_key_are_spread() {
    needs!(kafka);
    let servers = shared().await.bootstrap_servers();
    let topic = unique_name("kaf06");
    let mut config = config(&servers);
    config.properties.insert("sticky.partitioning.linger.ms".into(), "1".into());
    let mut sink = KafkaSink::open(config).await.unwrap();
    for _ in 0..200 {
        write(&mut sink, vec![record(&topic, None, Some("v"))]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let used: BTreeSet<i32> = read(&servers, &topic).await.iter().map(|got| got.partition).collect();
    assert_eq!(used.len(), 6, "{used:?}");
}

#[tokio::test]
async fn kaf_07_same_partition_as_a_java_producer() {
    needs!(kafka);
    if !java_is_here() {
        return;
    }
    let servers = shared().await.bootstrap_servers();
    let (ours, theirs) = (unique_name("kaf07"), unique_name("kaf07"));
    create(&servers, &ours, 7, &[]).await;
    create(&servers, &theirs, 7, &[]).await;
    let mut keys: Vec<String> = (0..500).map(|id| format!(r#"{{"id":{id}}}"#)).collect();
    // Every remainder of four bytes, which murmur2 treats apart; bytes above 127, which Java signs; nothing.
    keys.extend((0..40).map(|n| "ÿéx"[..].repeat(n)));
    keys.extend(["a", "ab", "abc", "abcd"].map(str::to_owned));
    let mut sink = KafkaSink::open(config(&servers)).await.unwrap();
    let records = keys.iter().enumerate().map(|(n, key)| keyed(&ours, key, &n.to_string())).collect();
    write(&mut sink, records).await.unwrap();
    let input = keys.iter().map(|key| hex(key.as_bytes()) + "\n").collect();
    let java: Vec<i32> =
        java(&["produce", &servers, &theirs], input).await.iter().map(|line| line.parse().unwrap()).collect();

    let mut rust = vec![-1; keys.len()];
    for got in read(&servers, &ours).await {
        rust[got.text().parse::<usize>().unwrap()] = got.partition;
    }
    assert_eq!(java.len(), keys.len());
    for ((key, java), rust) in keys.iter().zip(java).zip(rust) {
        assert_eq!(rust, java, "partition of {key}");
    }
}

#[tokio::test]
async fn kaf_15_deletes_for_every_kind_of_consumer() {
    needs!(kafka);
    if !java_is_here() {
        return;
    }
    let broker = KafkaBroker::builder()
        .setting("log.cleaner.backoff.ms", 300)
        .setting("log.retention.check.interval.ms", 500)
        .start()
        .await
        .unwrap();
    let servers = broker.bootstrap_servers();
    let topic = unique_name("kaf15");
    let mut config = config(&servers);
    config.topic.partitions = Some(3);
    config.topic.cleanup_policy = Some(CleanupPolicy::Compact);
    for (name, value) in
        [("segment.ms", "100"), ("min.cleanable.dirty.ratio", "0.001"), ("delete.retention.ms", "100")]
    {
        config.topic.config.insert(name.into(), value.into());
    }
    let mut sink = KafkaSink::open(config.clone()).await.unwrap();
    let tombstone = |key: &str| record(&topic, Some(key), None);
    write_retrying(
        &mut sink,
        &config,
        &[
            keyed(&topic, "deleted", "insert"),
            keyed(&topic, "old key", "insert"),
            keyed(&topic, "stays", "insert"),
            keyed(&topic, "deleted", "delete"),
            tombstone("deleted"),
            keyed(&topic, "old key", "delete"),
            tombstone("old key"),
            keyed(&topic, "new key", "create"),
        ],
    )
    .await;
    let got = read(&servers, &topic).await;
    assert_eq!(got.len(), 8);
    for key in ["deleted", "old key"] {
        let of_key: Vec<_> = got.iter().filter(|got| got.key.as_deref() == Some(key)).collect();
        let last = &of_key[of_key.len() - 2..];
        assert_eq!((last[0].text().as_str(), &last[1].value), ("delete", &None), "{key}");
        assert!(of_key.iter().all(|got| got.partition == last[0].partition));
    }

    // A segment is closed, and so can be compacted, when a later record comes.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        for key in 0..12 {
            write(&mut sink, vec![keyed(&topic, &format!("later {key}"), "v")]).await.unwrap();
        }
        let got = read(&servers, &topic).await;
        let keys: BTreeSet<&str> =
            got.iter().filter_map(|got| got.key.as_deref()).filter(|key| !key.starts_with("later")).collect();
        if keys == BTreeSet::from(["stays", "new key"]) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "not compacted in time: {keys:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    // What an independent client sees is the same.
    let lines = java(&["consume", &servers, &topic], String::new()).await;
    assert!(lines.iter().any(|line| line.ends_with(&format!("{} {}", hex(b"new key"), hex(b"create")))));
    assert!(!lines.iter().any(|line| line.contains(&format!(" {} ", hex(b"deleted")))));
}

#[tokio::test]
async fn a_sink_that_waits_for_the_broker_lets_others_run() {
    needs!(kafka);
    let proxy = FaultProxy::start("127.0.0.1:1").unwrap();
    let broker = KafkaBroker::builder().advertise(proxy.address()).start().await.unwrap();
    proxy.set_target(broker.proxied_address().unwrap());
    let topic = unique_name("full");
    let mut config = config(proxy.address().to_string());
    config.queue_records_max = 1_000;
    config.delivery_timeout_ms = 1_500;
    let mut sink = KafkaSink::open(config.clone()).await.unwrap();
    sink.prepare(&[&topic]).await.unwrap();
    proxy.blackhole(Direction::ToServer);

    sink.begin().await.unwrap();
    let mut records: Vec<Record> = (0..5_000).map(|n| keyed(&topic, "k", &n.to_string())).collect();
    let kept = records.clone();
    let began = tokio::time::Instant::now();
    let error = sink.put(&mut records).await.unwrap_err();
    assert_eq!(
        error.class(),
        ErrorClass::Transient,
        "nothing is dropped and nothing goes on for ever: {error}"
    );
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    sink.close().await.unwrap();

    proxy.heal();
    let mut sink = KafkaSink::open(config.clone()).await.unwrap();
    let longest = Arc::new(std::sync::Mutex::new(Duration::ZERO));
    proxy.delay(Direction::ToServer, Duration::from_millis(30));
    let ticker = {
        let longest = Arc::clone(&longest);
        tokio::spawn(async move {
            loop {
                let turn = std::time::Instant::now();
                tokio::time::sleep(Duration::from_millis(5)).await;
                let mut longest = longest.lock().unwrap();
                *longest = turn.elapsed().max(*longest);
            }
        })
    };
    let began = std::time::Instant::now();
    write_retrying(&mut sink, &config, &kept).await;
    let took = began.elapsed();
    ticker.abort();
    // One thread runs both: a wait that blocks it would show as a turn as long as the wait.
    let longest = *longest.lock().unwrap();
    assert!(took > Duration::from_millis(120), "the queue was full: {took:?}");
    assert!(longest < took / 2, "another task waited {longest:?} of {took:?} for its turn");
    let mut first_seen: Vec<String> = Vec::new();
    for value in &by_key(&read(&broker.bootstrap_servers(), &topic).await)["k"] {
        if !first_seen.contains(value) {
            first_seen.push(value.clone());
        }
    }
    assert!(first_seen == (0..5_000).map(|n| n.to_string()).collect::<Vec<_>>(), "all, in order");
}
