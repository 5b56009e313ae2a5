//! KAF-03 on three brokers: a leader that is killed under load takes nothing with it.

use std::collections::BTreeSet;
use std::time::Duration;

use crabka_connect::Sink;
use crabka_connect_kafka::KafkaSink;
use crabka_testkit::{KafkaCluster, needs, unique_name};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::support::{Record, by_key, config, keyed, read, topic_setting, write_retrying};

const BATCHES: usize = 120;
const BATCH: usize = 50;

/// `node.id` of the leader of partition 0.
async fn leader(servers: &str, topic: &str) -> usize {
    let (servers, topic) = (servers.to_owned(), topic.to_owned());
    tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = ClientConfig::new().set("bootstrap.servers", servers).create().unwrap();
        let metadata = consumer.fetch_metadata(Some(&topic), Duration::from_secs(30)).unwrap();
        let partition = &metadata.topics()[0].partitions()[0];
        assert_eq!(partition.replicas().len(), 3, "the topic is replicated");
        usize::try_from(partition.leader()).expect("a leader")
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kaf_03_a_killed_leader_loses_nothing() {
    needs!(kafka);
    let cluster = KafkaCluster::start(3).await.unwrap();
    let servers = cluster.bootstrap_servers();
    let topic = unique_name("kaf03");
    let mut config = config(&servers);
    config.topic.partitions = Some(1);
    config.topic.replication_factor = Some(3);
    let mut sink = KafkaSink::open(config.clone()).await.unwrap();
    sink.prepare(&[&topic]).await.unwrap();
    assert_eq!(topic_setting(&servers, &topic, "min.insync.replicas").await, "2");

    // From another task, while batches are on their way.
    let killed = leader(&servers, &topic).await;
    let kill = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cluster.broker(killed).unwrap().kill9().await.unwrap();
    };
    let load = async {
        let mut failed = 0;
        for batch in 0..BATCHES {
            let records: Vec<Record> = (batch * BATCH..(batch + 1) * BATCH)
                .map(|n| keyed(&topic, &format!("key {}", n % 3), &n.to_string()))
                .collect();
            failed += write_retrying(&mut sink, &config, &records).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        failed
    };
    let ((), failed) = tokio::join!(kill, load);
    sink.close().await.unwrap();
    assert_ne!(leader(&servers, &topic).await, killed, "another broker leads");

    let got = read(&servers, &topic).await;
    let values: BTreeSet<String> = got.iter().map(crate::support::Got::text).collect();
    assert_eq!(values.len(), BATCHES * BATCH, "every acknowledged record is there");
    // A batch is written again only after an error.
    assert!(got.len() <= values.len() + failed * BATCH, "{} records, {failed} deliveries failed", got.len());
    for (key, values) in by_key(&got) {
        let numbers = values.iter().map(|value| value.parse::<usize>().unwrap());
        let mut seen = BTreeSet::new();
        let firsts: Vec<usize> = numbers.filter(|number| seen.insert(*number)).collect();
        assert!(firsts.is_sorted(), "{key}: in the order of the commits");
    }
}
