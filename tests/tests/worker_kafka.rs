//! The worker as a process, under load, against a real server and a real broker: kill -9, restarts of either side.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use crabka_testkit::{Direction, FaultProxy, KafkaBroker, StopMode, needs};
use crabka_tests::{BATCH_RECORDS, KafkaRun, Writers};
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread")]
async fn without_faults_every_row_comes_once_and_wal_is_released() {
    needs!(postgres, kafka);
    let broker = KafkaBroker::shared().await.unwrap();
    let setting = KafkaRun::new(&broker.bootstrap_servers()).await;
    let worker = setting.worker();
    setting.database.slot_made(&setting.slot).await;
    let writers = Writers::start(Arc::clone(&setting.server), &setting.database, 4);
    sleep(Duration::from_secs(4)).await;
    let last = writers.stop().await;
    let ledger = setting.read_ledger(&broker.bootstrap_servers(), last).await;
    assert_eq!(ledger.repeats, 0);
    let written = setting.database.wal_end().await;
    setting.database.confirmed_at_least(&setting.slot, written, Duration::from_secs(10)).await;
    assert!(worker.terminate(Duration::from_secs(20)).success());
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_in_a_loop_loses_nothing_and_repeats_at_most_a_batch_each_time() {
    needs!(postgres, kafka);
    let broker = KafkaBroker::shared().await.unwrap();
    let setting = KafkaRun::new(&broker.bootstrap_servers()).await;
    let first = setting.worker();
    setting.database.slot_made(&setting.slot).await;
    let writers = Writers::start(Arc::clone(&setting.server), &setting.database, 4);
    sleep(Duration::from_secs(1)).await;
    first.kill9();
    let mut kills = 1;
    for pause_ms in [900, 1300, 700, 1700, 1100, 2100, 800, 1500] {
        let worker = setting.worker();
        sleep(Duration::from_millis(pause_ms)).await;
        worker.kill9();
        kills += 1;
    }
    let worker = setting.worker();
    let last = writers.stop().await;
    assert!(last.iter().all(|last| *last > 100), "the load was no load: {last:?}");
    let ledger = setting.read_ledger(&broker.bootstrap_servers(), last).await;
    assert!(ledger.repeats <= kills * BATCH_RECORDS, "{} repeats after {kills} kills", ledger.repeats);
    assert!(worker.terminate(Duration::from_secs(20)).success());
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_restarted_under_load() {
    needs!(postgres, kafka);
    let broker = KafkaBroker::shared().await.unwrap();
    let setting = KafkaRun::new(&broker.bootstrap_servers()).await;
    let mut worker = setting.worker();
    setting.database.slot_made(&setting.slot).await;
    let writers = Writers::start(Arc::clone(&setting.server), &setting.database, 4);
    for mode in [Some(StopMode::Fast), Some(StopMode::Immediate), None, Some(StopMode::Fast)] {
        sleep(Duration::from_millis(1500)).await;
        match mode {
            Some(mode) => {
                let stopped = setting.server.stop_within(mode, Duration::from_secs(20)).await.unwrap();
                assert!(stopped.took < Duration::from_secs(10), "{mode:?} was held up: {stopped:?}");
            }
            None => drop(setting.server.kill9().await.unwrap()),
        }
        setting.server.start_again().await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    let last = writers.stop().await;
    let ledger = setting.read_ledger(&broker.bootstrap_servers(), last).await;
    // The worker never died: what was delivered was checkpointed, so nothing is repeated.
    assert_eq!(ledger.repeats, 0);
    assert!(worker.is_running());
    assert!(worker.terminate(Duration::from_secs(20)).success());
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_restarted_under_load() {
    needs!(postgres, kafka);
    let broker = KafkaBroker::start().await.unwrap();
    let setting = KafkaRun::new(&broker.bootstrap_servers()).await;
    let mut worker = setting.worker();
    setting.database.slot_made(&setting.slot).await;
    let writers = Writers::start(Arc::clone(&setting.server), &setting.database, 4);
    sleep(Duration::from_secs(3)).await;
    broker.stop().await.unwrap();
    sleep(Duration::from_secs(2)).await;
    broker.start_again().await.unwrap();
    sleep(Duration::from_secs(3)).await;
    broker.kill9().await.unwrap();
    broker.start_again().await.unwrap();
    sleep(Duration::from_secs(2)).await;
    let last = writers.stop().await;
    let ledger = setting.read_ledger(&broker.bootstrap_servers(), last).await;
    // A producer that is made anew cannot know what the broker kept of the batch that failed: one batch per outage.
    assert!(ledger.repeats <= 2 * BATCH_RECORDS, "{} repeats", ledger.repeats);
    assert!(worker.is_running());
    assert!(worker.terminate(Duration::from_secs(20)).success());
}

#[tokio::test(flavor = "multi_thread")]
async fn del_13_nothing_is_confirmed_before_the_broker_has_it() {
    needs!(postgres, kafka);
    let proxy = FaultProxy::start("127.0.0.1:1").unwrap();
    let broker = KafkaBroker::builder().advertise(proxy.address()).start().await.unwrap();
    proxy.set_target(broker.proxied_address().unwrap());
    let setting = KafkaRun::new(&proxy.address().to_string()).await;
    let worker = setting.worker();
    setting.database.slot_made(&setting.slot).await;
    setting.database.run("INSERT INTO ledger VALUES (0, 1)").await;
    let first = setting.database.wal_end().await;
    setting.database.confirmed_at_least(&setting.slot, first, Duration::from_secs(30)).await;

    // The broker takes what is sent and answers nothing.
    proxy.blackhole(Direction::ToClient);
    setting.database.run("INSERT INTO ledger SELECT 0, generate_series(2, 501)").await;
    let behind = setting.database.wal_end().await;
    sleep(Duration::from_secs(5)).await;
    let confirmed = setting.database.confirmed_of(&setting.slot).await;
    assert!(confirmed < behind, "confirmed {confirmed} although the broker has not answered for {behind}");
    worker.kill9();
    proxy.heal();

    let worker = setting.worker();
    let ledger = setting.read_ledger(&broker.bootstrap_servers(), vec![501]).await;
    // What the broker had taken without telling comes again: one batch.
    assert!(ledger.repeats <= BATCH_RECORDS, "{} repeats", ledger.repeats);
    assert!(worker.terminate(Duration::from_secs(20)).success());
}
