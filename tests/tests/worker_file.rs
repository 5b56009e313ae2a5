//! The worker with the file sink and the file checkpoint: nothing but a server is needed.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use crabka_testkit::{StopMode, needs};
use crabka_tests::{BATCH_RECORDS, FileRun, Fold, LEDGER_TABLE, WORKLOAD_TABLE, Writers, random_sessions};
use tokio::time::{Instant, sleep};

const CATCH_UP: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_in_a_loop_loses_nothing() {
    needs!(postgres);
    let setting = FileRun::new(LEDGER_TABLE, "public.ledger").await;
    let first = setting.worker();
    setting.database.slot_made(&setting.database.slot()).await;
    let writers = Writers::start(Arc::clone(&setting.server), &setting.database, 4);
    sleep(Duration::from_millis(500)).await;
    first.kill9();
    let mut kills = 1;
    for pause_ms in [300, 500, 250, 800, 400, 1000, 350, 600, 450, 700] {
        let worker = setting.worker();
        sleep(Duration::from_millis(pause_ms)).await;
        worker.kill9();
        kills += 1;
    }
    let worker = setting.worker();
    let last = writers.stop().await;
    assert!(last.iter().all(|last| *last > 100), "the load was no load: {last:?}");
    let ledger = setting.read_ledger(&last).await;
    assert!(ledger.repeats <= kills * BATCH_RECORDS, "{} repeats after {kills} kills", ledger.repeats);
    assert!(worker.terminate(Duration::from_secs(20)).success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_random_workload_folds_to_what_select_shows() {
    needs!(postgres);
    let setting = FileRun::new(WORKLOAD_TABLE, "public.t").await;
    let worker = setting.worker();
    setting.database.slot_made(&setting.database.slot()).await;
    let until = Instant::now() + Duration::from_secs(6);
    random_sessions(&setting.server, &setting.database.name, until, 1).await;
    setting.database.run("INSERT INTO t VALUES (-1, 'end')").await;
    let deadline = Instant::now() + CATCH_UP;
    let fold = loop {
        let lines = setting.lines();
        if lines.iter().any(|line| line["key"]["id"] == -1) {
            let mut fold = Fold::default();
            for line in &lines {
                fold.apply(&line["key"], &line["value"], false);
            }
            break fold;
        }
        assert!(Instant::now() < deadline, "the end did not come:\n{}", worker.log());
        sleep(Duration::from_millis(100)).await;
    };
    fold.assert_equals(&setting.database.sql, "t", "id").await;
    assert!(worker.terminate(Duration::from_secs(20)).success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fast_shutdown_of_the_server_is_not_held_up_and_the_worker_comes_back() {
    needs!(postgres);
    let setting = FileRun::new(WORKLOAD_TABLE, "public.t").await;
    let mut worker = setting.worker();
    setting.database.slot_made(&setting.database.slot()).await;
    setting.database.run("INSERT INTO t VALUES (1, 'a'); CREATE TABLE other (i int)").await;
    setting.database.run("INSERT INTO other VALUES (1)").await;
    let stopped = setting.server.stop_within(StopMode::Fast, Duration::from_secs(20)).await.unwrap();
    assert!(stopped.took < Duration::from_secs(2), "{stopped:?}");
    sleep(Duration::from_millis(500)).await;
    assert!(worker.is_running());
    setting.server.start_again().await.unwrap();
    let sql = setting.server.connect(&setting.database.name).await.unwrap();
    sql.batch_execute("INSERT INTO t VALUES (2, 'b')").await.unwrap();
    let deadline = Instant::now() + CATCH_UP;
    while setting.lines().len() < 2 {
        assert!(Instant::now() < deadline, "{}", worker.log());
        sleep(Duration::from_millis(100)).await;
    }
    let ids: Vec<_> = setting.lines().iter().map(|line| line["key"]["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, [1, 2]);
    assert!(worker.terminate(Duration::from_secs(20)).success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_table_beside_a_busy_database_releases_wal() {
    needs!(postgres);
    let setting = FileRun::new(WORKLOAD_TABLE, "public.t").await;
    let worker = setting.worker();
    let slot = setting.database.slot();
    setting.database.slot_made(&slot).await;
    setting.database.run("CREATE TABLE busy (b text)").await;
    for _ in 0..5 {
        setting.database.run("INSERT INTO busy SELECT repeat('x', 2000) FROM generate_series(1, 5000)").await;
    }
    let written = setting.database.wal_end().await;
    setting.database.confirmed_at_least(&slot, written, Duration::from_secs(10)).await;
    assert!(setting.lines().is_empty());
    assert!(worker.terminate(Duration::from_secs(20)).success());
}
