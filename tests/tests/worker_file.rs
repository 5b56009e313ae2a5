//! The worker with the file sink and the file checkpoint: nothing but a server is needed.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crabka_testkit::{PgServer, StopMode, needs};
use crabka_tests::{Database, Fold, LEDGER_TABLE, Ledger, WORKLOAD_TABLE, Worker, Writers, random_sessions};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

const BATCH_RECORDS: usize = 50;

const CATCH_UP: Duration = Duration::from_secs(60);

struct Setting {
    server: Arc<PgServer>,
    database: Database,
    dir: TempDir,
    config: String,
}

impl Setting {
    async fn new(setup: &str, table: &str) -> Self {
        let server = Arc::new(PgServer::start().await.unwrap());
        let database = Database::on(&server, setup).await;
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            r#"
            name = "{}"
            [source]
            url = "{}"
            tables = ["{table}"]
            heartbeat_interval_ms = 500
            [sink]
            type = "file"
            path = "{}"
            [checkpoint]
            store = "file"
            path = "{}"
            [runtime]
            max_batch_records = {BATCH_RECORDS}
            "#,
            database.name,
            database.url,
            path("changes.jsonl"),
            path("checkpoint"),
        );
        Self { server, database, dir, config }
    }

    fn worker(&self) -> Worker {
        Worker::run(self.dir.path(), &self.config)
    }

    /// The lines of the sink that are no heartbeats, as far as they are complete.
    fn lines(&self) -> Vec<Value> {
        lines(&self.dir.path().join("changes.jsonl"))
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let complete = text.rsplit_once('\n').map_or("", |(complete, _torn)| complete);
    complete
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .filter(|line| !line["topic"].as_str().unwrap().starts_with("__debezium-heartbeat"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_in_a_loop_loses_nothing() {
    needs!(postgres);
    let setting = Setting::new(LEDGER_TABLE, "public.ledger").await;
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
    let deadline = Instant::now() + CATCH_UP;
    let ledger = loop {
        let mut ledger = Ledger::default();
        for line in setting.lines() {
            ledger.take(line["key"]["writer"].as_i64().unwrap(), line["key"]["seq"].as_i64().unwrap());
        }
        if ledger.is_complete(&last) {
            break ledger;
        }
        assert!(
            Instant::now() < deadline,
            "not everything came: {ledger:?}, written {last:?}\n{}",
            worker.log()
        );
        sleep(Duration::from_millis(200)).await;
    };
    assert!(ledger.repeats <= kills * BATCH_RECORDS, "{} repeats after {kills} kills", ledger.repeats);
    assert!(worker.terminate(Duration::from_secs(20)).success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_random_workload_folds_to_what_select_shows() {
    needs!(postgres);
    let setting = Setting::new(WORKLOAD_TABLE, "public.t").await;
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
    let setting = Setting::new(WORKLOAD_TABLE, "public.t").await;
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
    let setting = Setting::new(WORKLOAD_TABLE, "public.t").await;
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
