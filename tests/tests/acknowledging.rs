//! Cases DEL-17, 19, 20, 21 and 23: acknowledges arrive, at the end too, go on under load, and cost nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crabka_connect::{CheckpointStore, ConnectRecord, FileCheckpointStore, Source};
use crabka_connect_postgres::{ChangeEvent, ChangeKey, PostgresSource, StoredPosition};
use crabka_pgrepl::Lsn;
use crabka_testkit::{FaultProxy, PgServer, needs};
use crabka_tests::{Database, FileRun, LEDGER_TABLE, Reader, Writers};
use tokio::time::{Instant, sleep};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v text)";

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn del_17_an_acknowledge_before_close_reaches_the_server() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let mut offset = None;
    for id in 0..10 {
        let mut config = database.config(&["public.t"]);
        // So long that the acknowledge alone, right after a status, would still wait for its turn when close begins.
        config.stream.coalesce_interval = Duration::from_secs(3600);
        let mut reader = Reader::resumed(config, offset).await.unwrap();
        if id == 0 {
            reader.started().await;
        }
        database.run(&format!("INSERT INTO t VALUES ({id})")).await;
        assert_eq!(reader.take(1).await[0].int("id"), id);
        let acknowledged = reader.acknowledge().await;
        reader.close().await;
        let position = StoredPosition::from_offset(&acknowledged).unwrap().position;
        assert_eq!(database.confirmed().await, position.resume_lsn, "round {id}");
        offset = Some(acknowledged);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn del_17_sigterm_right_after_a_delivery_leaves_the_slot_at_the_checkpoint() {
    needs!(postgres);
    let run = FileRun::new(TABLE, "public.t").await;
    for id in 0..4 {
        let worker = run.worker();
        if id == 0 {
            run.database.slot_made(&run.database.slot()).await;
        }
        run.database.run(&format!("INSERT INTO t VALUES ({id})")).await;
        let deadline = Instant::now() + LIMIT;
        while run.lines().len() <= id {
            assert!(Instant::now() < deadline, "{}", worker.log());
            sleep(Duration::from_millis(1)).await;
        }
        assert!(worker.terminate(LIMIT).success());
        let stored =
            FileCheckpointStore::open(run.checkpoint()).await.unwrap().load(&run.database.name).await;
        let stored = StoredPosition::from_offset(&stored.unwrap().expect("a checkpoint")).unwrap();
        assert_eq!(run.database.confirmed().await, stored.position.resume_lsn, "round {id}");
        assert_eq!(run.lines().len(), id + 1, "nothing is repeated");
    }
}

#[tokio::test]
async fn del_19_what_a_filter_leaves_out_moves_the_position_like_anything_else() {
    needs!(postgres);
    let database = Database::new(&format!("{TABLE}; CREATE TABLE loud (id int, v text)")).await;
    database.run(&format!("CREATE PUBLICATION \"{}\" FOR ALL TABLES", database.name)).await;
    let mut config = database.config(&["public.t"]);
    config.heartbeat_interval = Duration::from_millis(200);
    let mut reader = Reader::new(config.clone());
    reader.started().await;
    let first = database.confirmed().await;
    for _ in 0..5 {
        database.run("INSERT INTO loud SELECT g, repeat('x', 500) FROM generate_series(1, 4000) g").await;
    }
    let written = database.wal_end().await;
    assert!(written.as_u64() - first.as_u64() > 5_000_000, "{first} to {written} is no load");
    reader.with_heartbeats = true;
    let deadline = Instant::now() + LIMIT;
    while database.confirmed().await < written {
        assert!(Instant::now() < deadline, "confirmed {}, written {written}", database.confirmed().await);
        if let Some(record) = reader.poll().await.unwrap() {
            assert_eq!(record.op(), "h", "only the quiet table is captured");
            reader.acknowledge().await;
        }
    }
    reader.with_heartbeats = false;
    database.run("INSERT INTO t VALUES (1)").await;
    assert_eq!(reader.take(1).await[0].int("id"), 1);
    let offset = reader.acknowledge().await;
    reader.close().await;

    // A table that joins later begins where it joins; what it had before is not taken for delivered or missed.
    config.tables.push("public.loud".parse().unwrap());
    let mut wider = Reader::resumed(config, Some(offset)).await.unwrap();
    database.run("INSERT INTO loud VALUES (-1, 'joined')").await;
    assert_eq!(wider.take(1).await[0].int("id"), -1);
    wider.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn del_20_a_checkpoint_that_has_to_lose_the_slot_is_not_blocked_by_an_unread_connection() {
    needs!(postgres);
    let server = PgServer::builder()
        .setting("max_slot_wal_keep_size", "16MB")
        .setting("max_wal_size", "48MB")
        .setting("min_wal_size", "32MB")
        .start()
        .await
        .unwrap();
    let database = Database::on(&server, TABLE).await;
    let mut config = database.config(&["public.t"]);
    config.message_events = false;
    config.queue_bytes = 64 << 10;
    config.unread_limit = Duration::from_secs(4);
    let mut reader = Reader::new(config);
    reader.started().await;
    // Nobody polls: the queue is full and the sockets between are.
    database.run("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 20000) g").await;
    let lost = async {
        let status = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1";
        for _ in 0..40 {
            database.run("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 8000000))").await;
            database.run("SELECT pg_switch_wal()").await;
            database.run("CHECKPOINT").await;
            let row = database.sql.query_one(status, &[&database.slot()]).await.unwrap();
            if row.get::<_, String>(0) == "lost" {
                return;
            }
        }
        panic!("the slot outlived 320 MB of WAL");
    };
    // A checkpointer that waits for the walsender would wait for as long as the socket stays open.
    tokio::time::timeout(LIMIT, lost).await.expect("the CHECKPOINT ends");
    drop(reader);
}

/// Takes `count` one-row transactions, acknowledging after every `every` records.
async fn take_all(source: &mut PostgresSource, count: usize, every: usize) -> Duration {
    let began = Instant::now();
    let mut records: Vec<ConnectRecord<ChangeKey, ChangeEvent>> = Vec::new();
    let (mut taken, mut unacknowledged) = (0, 0);
    while taken < count {
        records.clear();
        source.poll_batch(every, &mut records).await.unwrap();
        let rows = records.iter().filter(|record| record.key.is_some()).count();
        taken += rows;
        unacknowledged += records.len();
        if unacknowledged >= every || taken >= count {
            unacknowledged = 0;
            let offset = source.checkpoint().expect("a position");
            source.acknowledge(&offset).await.unwrap();
        }
        assert!(began.elapsed() < 3 * LIMIT, "{taken} of {count}");
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn del_21_acknowledging_each_record_costs_nothing() {
    needs!(postgres);
    let rows: usize = std::env::var("CRABKA_TEST_ACK_ROWS").map_or(20_000, |rows| rows.parse().unwrap());
    let server = PgServer::shared_default().await.unwrap();
    let mut runs = Vec::new();
    for every in [1024, 1] {
        let database = Database::on(server, TABLE).await;
        let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap();
        let mut config = database.config(&["public.t"]);
        config.connection =
            format!("postgres://postgres@127.0.0.1:{}/{}", proxy.port(), database.name).parse().unwrap();
        config.heartbeat_interval = Duration::from_secs(3600);
        let mut source = PostgresSource::new(config).unwrap();
        assert!(source.poll().await.unwrap().is_none());
        let insert =
            format!("DO $$ BEGIN FOR i IN 1..{rows} LOOP INSERT INTO t VALUES (i); COMMIT; END LOOP; END $$");
        database.run(&insert).await;
        let before = proxy.counters().bytes_to_server;
        let took = take_all(&mut source, rows, every).await;
        let sent = proxy.counters().bytes_to_server - before;
        source.close().await.unwrap();
        println!("acknowledged every {every}: {rows} rows in {took:?}, {sent} bytes sent");
        // A status has 39 bytes, and there is at most one in 10 ms; the rest is for the questions about the table. One
        // for each acknowledge would be 39 bytes a row.
        let sent_max = took.as_millis() / 10 * 39 + 50_000;
        assert!(u128::from(sent) <= sent_max, "{sent} bytes in {took:?}");
        runs.push(took);
    }
    // Measured by itself the difference is within a tenth; here the machine may be busy with other tests.
    assert!(runs[1] < runs[0] * 3 + Duration::from_secs(2), "{runs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn del_23_acknowledges_are_continuous() {
    needs!(postgres);
    let seconds = std::env::var("CRABKA_TEST_SOAK_SECONDS").map_or(15, |seconds| seconds.parse().unwrap());
    let run = FileRun::new(LEDGER_TABLE, "public.ledger").await;
    let worker = run.worker();
    let slot = run.database.slot();
    run.database.slot_made(&slot).await;
    let writers = Writers::start(Arc::clone(&run.server), &run.database, 4);
    // What was saved some seconds ago must be confirmed now: a status goes out at every acknowledge.
    let slack = Duration::from_secs(10);
    let mut saved: VecDeque<(Instant, Lsn)> = VecDeque::new();
    let (mut compared, mut moved, mut last_confirmed) = (0, 0, Lsn::ZERO);
    let (until, deadline) = (Instant::now() + Duration::from_secs(seconds), Instant::now() + 2 * LIMIT);
    // On a slow machine a round takes long: the time is the least, and the counts say when it is enough.
    while Instant::now() < until || compared <= 3 || moved <= 10 {
        assert!(Instant::now() < deadline, "{compared} compared, moved {moved} times");
        if let Some(line) = run.lines().last() {
            let offset = serde_json::from_value(line["offset"].clone()).unwrap();
            let position = StoredPosition::from_offset(&offset).unwrap().position;
            saved.push_back((Instant::now(), position.resume_lsn));
        }
        sleep(Duration::from_millis(200)).await;
        let confirmed = run.database.confirmed_of(&slot).await;
        moved += u32::from(confirmed > last_confirmed);
        last_confirmed = confirmed;
        while let Some((at, lsn)) = saved.front().copied()
            && at.elapsed() > slack
        {
            assert!(confirmed >= lsn, "{lsn} was delivered {:?} ago, confirmed is {confirmed}", at.elapsed());
            saved.pop_front();
            compared += 1;
        }
    }
    let last = writers.stop().await;
    assert_eq!(run.read_ledger(&last).await.repeats, 0);
    assert!(worker.terminate(LIMIT).success());
}
