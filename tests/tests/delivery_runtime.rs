//! Cases DEL-14 and DEL-15: the runtime acknowledges what the store holds, and nothing past a batch that did not land.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crabka_connect::{
    CheckpointStore, ConnectError, ConnectRecord, ConnectorRuntime, Limits, MemoryCheckpointStore,
    RuntimeHandle, Sink, Source, SourceOffset, SystemClock,
};
use crabka_connect_postgres::envelope::{DebeziumConverter, DebeziumOptions};
use crabka_connect_postgres::{ChangeEvent, ChangeKey, PostgresSource, PostgresSourceConfig, StoredPosition};
use crabka_pgrepl::Lsn;
use crabka_testkit::needs;
use crabka_tests::{Database, Reader};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v text)";

/// What the sinks and stores of a test share with it.
#[derive(Clone, Default)]
struct Probe {
    delivered: Arc<AtomicUsize>,
    saved: MemoryCheckpointStore,
}

impl Probe {
    async fn saved_lsn(&self) -> Lsn {
        let offset = self.saved.clone().load("c").await.unwrap();
        offset.map_or(Lsn::ZERO, |offset| StoredPosition::from_offset(&offset).unwrap().position.resume_lsn)
    }
}

/// A sink whose commits wait for a permit each.
struct GatedSink {
    gate: Arc<Semaphore>,
    pending: usize,
    probe: Probe,
}

#[async_trait]
impl Sink<Bytes, Bytes> for GatedSink {
    async fn put(&mut self, records: &mut Vec<ConnectRecord<Bytes, Bytes>>) -> Result<(), ConnectError> {
        self.pending += records.len();
        records.clear();
        Ok(())
    }

    async fn commit(&mut self, _offset: Option<&SourceOffset>) -> Result<(), ConnectError> {
        self.gate.acquire().await.expect("the gate stays").forget();
        self.probe.delivered.fetch_add(std::mem::take(&mut self.pending), Ordering::SeqCst);
        Ok(())
    }
}

/// A store that takes its time, and fails when told to.
struct SlowStore {
    delay: Duration,
    fails: Arc<AtomicBool>,
    probe: Probe,
}

#[async_trait]
impl CheckpointStore for SlowStore {
    async fn load(&mut self, connector: &str) -> Result<Option<SourceOffset>, ConnectError> {
        self.probe.saved.load(connector).await
    }

    async fn save(&mut self, connector: &str, offset: &SourceOffset) -> Result<(), ConnectError> {
        sleep(self.delay).await;
        if self.fails.load(Ordering::SeqCst) {
            return Err(ConnectError::transient("the store is away"));
        }
        self.probe.saved.save(connector, offset).await
    }
}

type Run = (RuntimeHandle, JoinHandle<Result<(), ConnectError>>);

fn run(config: PostgresSourceConfig, gate: Arc<Semaphore>, probe: &Probe, store: SlowStore) -> Run {
    let probe = probe.clone();
    let runtime = ConnectorRuntime::<ChangeKey, ChangeEvent>::builder("c")
        .source(move || {
            let source = PostgresSource::new(config.clone());
            async move { Ok(Box::new(source?) as Box<dyn Source<_, _>>) }
        })
        .sink(move || {
            let sink = GatedSink { gate: Arc::clone(&gate), pending: 0, probe: probe.clone() };
            async move { Ok(Box::new(sink) as Box<dyn Sink<_, _>>) }
        })
        .converter(DebeziumConverter::new(DebeziumOptions::default(), Arc::new(SystemClock)).unwrap())
        .checkpoint_store(store)
        .limits(Limits { max_batch_records: 10, ..Limits::default() })
        .build()
        .unwrap();
    (runtime.handle(), tokio::spawn(runtime.run()))
}

#[tokio::test(flavor = "multi_thread")]
async fn del_14_the_acknowledged_offset_is_the_checkpointed_one() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let config = database.config(&["public.t"]);
    let probe = Probe::default();
    let fails = Arc::new(AtomicBool::new(false));
    let store =
        SlowStore { delay: Duration::from_millis(400), fails: Arc::clone(&fails), probe: probe.clone() };
    let (handle, running) = run(config.clone(), Arc::new(Semaphore::new(10_000)), &probe, store);
    handle.until(|status| status.phase == crabka_connect::Phase::Running).await;
    database.slot_made(&database.slot()).await;
    let first = database.confirmed().await;
    let until = Instant::now() + Duration::from_secs(5);
    let (mut id, mut moved) = (0, false);
    while Instant::now() < until {
        database.run(&format!("INSERT INTO t VALUES ({id})")).await;
        id += 1;
        // The slot first, then the store, which only grows: what was confirmed must already be stored.
        let confirmed = database.confirmed().await;
        let saved = probe.saved_lsn().await;
        assert!(confirmed == first || confirmed <= saved, "confirmed {confirmed}, saved {saved}");
        moved |= confirmed > first;
        if until - Instant::now() < Duration::from_secs(2) {
            fails.store(true, Ordering::SeqCst);
        }
    }
    assert!(moved, "nothing was ever acknowledged");
    let saved = probe.saved_lsn().await;
    handle.abort();
    // How an abort ends depends on what it interrupts.
    let _ = running.await.unwrap();
    assert!(database.confirmed().await <= saved);

    // What was not checkpointed comes again, to the last row.
    let offset = probe.saved.clone().load("c").await.unwrap();
    let mut again = Reader::resumed(config, offset).await.unwrap();
    loop {
        let record = again.take(1).await.remove(0);
        if record.int("id") == id - 1 {
            break;
        }
    }
    again.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn del_15_nothing_past_a_batch_that_has_not_landed_is_acknowledged() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let config = database.config(&["public.t"]);
    let probe = Probe::default();
    let gate = Arc::new(Semaphore::new(0));
    let fails = Arc::new(AtomicBool::new(false));
    let store = SlowStore { delay: Duration::ZERO, fails, probe: probe.clone() };
    let (handle, running) = run(config, Arc::clone(&gate), &probe, store);
    database.slot_made(&database.slot()).await;
    let before = database.confirmed().await;
    for id in 0..200 {
        database.run(&format!("INSERT INTO t VALUES ({id})")).await;
    }
    sleep(Duration::from_secs(2)).await;
    assert_eq!((database.confirmed().await, probe.saved_lsn().await), (before, Lsn::ZERO));
    gate.add_permits(1);
    handle.until(|status| status.batches == 1).await;
    sleep(Duration::from_millis(500)).await;
    let (confirmed, saved) = (database.confirmed().await, probe.saved_lsn().await);
    assert!(confirmed > before && confirmed <= saved, "confirmed {confirmed}, saved {saved}");
    assert!(probe.delivered.load(Ordering::SeqCst) <= 10 + 1024);
    gate.add_permits(10_000);
    handle.until(|status| status.records_acknowledged >= 200).await;
    handle.stop();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn del_15_an_older_offset_changes_nothing_and_del_62_a_newer_one_is_refused() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let mut reader = Reader::new(database.config(&["public.t"]));
    reader.started().await;
    database.run("INSERT INTO t VALUES (1)").await;
    reader.take(1).await;
    let older = reader.acknowledge().await;
    database.run("INSERT INTO t VALUES (2)").await;
    reader.take(1).await;
    let newer = reader.acknowledge().await;
    let newest = StoredPosition::from_offset(&newer).unwrap();
    database.confirmed_at_least(&database.slot(), newest.position.resume_lsn, Duration::from_secs(2)).await;
    reader.source().acknowledge(&older).await.unwrap();
    reader.quiet(Duration::from_millis(300)).await;
    assert!(database.confirmed().await >= newest.position.resume_lsn);

    let mut ahead = newest.clone();
    ahead.position.resume_lsn = Lsn::new(newest.position.resume_lsn.as_u64() + (1 << 20));
    let refused = reader.source().acknowledge(&ahead.to_offset()).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Offset(_)));
    assert!(refused.message().contains(&ahead.position.resume_lsn.to_string()), "{refused}");
    database.run("INSERT INTO t VALUES (3)").await;
    assert_eq!(reader.take(1).await[0].int("id"), 3);
    reader.close().await;
}
