//! Brokers that go away: nothing lost, order kept, nothing expires in silence (KAF-13).

use std::sync::Arc;
use std::time::Duration;

use crabka_connect::{ErrorClass, Sink};
use crabka_connect_kafka::KafkaSink;
use crabka_testkit::{Direction, FaultProxy, KafkaBroker, needs, unique_name};

use crate::support::{Record, by_key, config, create, keyed, read, write, write_retrying};

/// Writes batches until told to stop; gives the number of records.
async fn load(
    mut sink: KafkaSink,
    config: crabka_connect_kafka::KafkaSinkConfig,
    topic: String,
    stop: Arc<std::sync::atomic::AtomicBool>,
) -> u64 {
    let mut next = 0;
    while !stop.load(std::sync::atomic::Ordering::SeqCst) {
        let batch: Vec<Record> =
            (next..next + 200).map(|n| keyed(&topic, &format!("k{}", n % 5), &n.to_string())).collect();
        write_retrying(&mut sink, &config, &batch).await;
        next += 200;
    }
    sink.close().await.unwrap();
    next
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kaf_13_a_broker_restarted_under_load() {
    needs!(kafka);
    let broker = KafkaBroker::start().await.unwrap();
    let servers = broker.bootstrap_servers();
    let topic = unique_name("kaf13");
    create(&servers, &topic, 2, &[]).await;
    let config = config(&servers);
    let sink = KafkaSink::open(config.clone()).await.unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let loading = tokio::spawn(load(sink, config, topic.clone(), Arc::clone(&stop)));
    tokio::time::sleep(Duration::from_millis(700)).await;
    broker.stop().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    broker.start_again().await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    broker.kill9().await.unwrap();
    broker.start_again().await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    let written = loading.await.unwrap();
    assert!(written >= 1_000, "{written}");

    let values = by_key(&read(&servers, &topic).await);
    for key in 0..5 {
        let got: Vec<u64> = values[&format!("k{key}")].iter().map(|value| value.parse().unwrap()).collect();
        let wanted: Vec<u64> = (0..written).filter(|n| n % 5 == key).collect();
        assert_eq!(got.len(), wanted.len(), "k{key}: each once");
        assert!(got == wanted, "k{key}: in order");
    }
}

#[tokio::test]
async fn kaf_13_nothing_expires_in_silence() {
    needs!(kafka);
    let proxy = FaultProxy::start("127.0.0.1:1").unwrap();
    let broker = KafkaBroker::builder().advertise(proxy.address()).start().await.unwrap();
    proxy.set_target(broker.proxied_address().unwrap());
    let topic = unique_name("kaf13");
    let mut config = config(proxy.address().to_string());
    config.delivery_timeout_ms = 1_000;
    config.flush_timeout_ms = 500;
    let mut sink = KafkaSink::open(config.clone()).await.unwrap();
    write(&mut sink, vec![keyed(&topic, "k", "1")]).await.unwrap();

    proxy.blackhole(Direction::ToServer);
    let error = write(&mut sink, vec![keyed(&topic, "k", "2")]).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient, "{error}");
    assert!(error.message().contains("outstanding: 1"), "{error}");
    assert!(sink.commit(None).await.is_err(), "the batch stays open");
    sink.close().await.unwrap();
    config.request_timeout_ms = 1_000;
    let error = KafkaSink::open(config.clone()).await.err().unwrap();
    assert_eq!(error.class(), ErrorClass::Transient, "{error}");

    proxy.heal();
    let mut sink = KafkaSink::open(config).await.unwrap();
    write(&mut sink, vec![keyed(&topic, "k", "2")]).await.unwrap();
    let values = by_key(&read(&broker.bootstrap_servers(), &topic).await);
    assert_eq!(values["k"].first().map(String::as_str), Some("1"));
    assert_eq!(values["k"].last().map(String::as_str), Some("2"));
}

#[tokio::test]
async fn an_aborted_batch_can_be_followed_by_another() {
    needs!(kafka);
    let servers = crate::support::shared().await.bootstrap_servers();
    let topic = unique_name("aborted");
    let mut sink = KafkaSink::open(config(&servers)).await.unwrap();
    sink.begin().await.unwrap();
    sink.put(&mut (0..500).map(|n| keyed(&topic, "k", &format!("given up {n}"))).collect()).await.unwrap();
    sink.abort().await.unwrap();
    write(&mut sink, vec![keyed(&topic, "k", "kept")]).await.unwrap();
    let got = read(&servers, &topic).await;
    assert_eq!(got.last().unwrap().text(), "kept");
    assert_eq!(got.iter().filter(|got| got.text() == "kept").count(), 1);
    assert_eq!(sink.counters().delivered(), 1);
}
