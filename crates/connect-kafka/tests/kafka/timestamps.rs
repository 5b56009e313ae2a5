//! Kafka's timestamp of a record: the time of production, unless the source's is asked for.

use crabka_connect::{Clock, SystemClock};
use crabka_connect_kafka::{KafkaSink, KafkaSinkConfig};
use crabka_testkit::{needs, unique_name};

use crate::support::{config, create, keyed, read, shared, write};

const LONG_AGO_MS: i64 = 1_500_000_000_000;

async fn stored_timestamp(source_timestamps: bool) -> i64 {
    let broker = shared().await;
    let (servers, topic) = (broker.bootstrap_servers(), unique_name("timestamps"));
    // The broker would delete an old record at its next round, which may come before the reader.
    create(&servers, &topic, 1, &[("retention.ms", "-1")]).await;
    let config = KafkaSinkConfig { source_timestamps, ..config(&servers) };
    let mut sink = KafkaSink::open(config).await.unwrap();
    let mut record = keyed(&topic, "k", "v");
    record.timestamp_ms = Some(LONG_AGO_MS);
    write(&mut sink, vec![record]).await.unwrap();
    read(&servers, &topic).await[0].timestamp_ms.unwrap()
}

#[tokio::test]
async fn what_is_caught_up_with_is_not_old_to_the_broker() {
    needs!(kafka);
    let before = SystemClock.now_ms();
    assert!(stored_timestamp(false).await >= before);
    assert_eq!(stored_timestamp(true).await, LONG_AGO_MS);
}
