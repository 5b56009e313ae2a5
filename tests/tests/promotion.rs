//! A standby takes over: sources that read from it go on (16 and later), and sources of the primary find their slot
//! there if it is a failover slot (DEL-33, 17 and later).

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crabka_connect::{ErrorClass, Source, SourceOffset};
use crabka_connect_postgres::StoredPosition;
use crabka_pgrepl::Lsn;
use crabka_testkit::{FaultProxy, PgServer, StopMode, needs, pg_available_majors};
use crabka_tests::{Database, Fold, Reader};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

const TABLE: &str = "CREATE TABLE t (id bigint PRIMARY KEY, v text)";

/// Writers of one server; each commits transactions of a few rows until it is told to stop or its server goes away.
struct Load {
    stop: Arc<AtomicBool>,
    writers: Vec<JoinHandle<()>>,
}

impl Load {
    async fn start(server: &PgServer, database: &str, ids: &Arc<AtomicI64>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = Vec::new();
        for _ in 0..3 {
            let session = server.connect(database).await.unwrap();
            writers.push(tokio::spawn(write(session, Arc::clone(&stop), Arc::clone(ids))));
        }
        Self { stop, writers }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        for writer in self.writers {
            writer.await.unwrap();
        }
    }
}

async fn write(session: Client, stop: Arc<AtomicBool>, ids: Arc<AtomicI64>) {
    while !stop.load(Ordering::SeqCst) {
        let id = ids.fetch_add(4, Ordering::SeqCst);
        let transaction = format!(
            "BEGIN; INSERT INTO t VALUES ({id}, 'a'), ({}, 'a'), ({}, 'a'); UPDATE t SET v = 'b' WHERE id = {id}; \
             DELETE FROM t WHERE id = {}; COMMIT",
            id + 1,
            id + 2,
            id + 1
        );
        if session.batch_execute(&transaction).await.is_err() {
            return;
        }
        sleep(Duration::from_millis(2)).await;
    }
}

/// Reads into the fold for a while; each change may come once only.
async fn read_for(reader: &mut Reader, fold: &mut Fold, time: Duration) {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        read_once(reader, fold).await;
    }
}

async fn read_once(reader: &mut Reader, fold: &mut Fold) -> bool {
    let Some(record) = reader.poll().await.unwrap() else { return false };
    if !matches!(record.op(), "h" | "m") {
        fold.apply(&record.key, &record.value, false);
    }
    true
}

/// Reads until the row of this id has come.
async fn read_until(reader: &mut Reader, fold: &mut Fold, id: i64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fold.rows().any(|row| row["id"] == id) {
        read_once(reader, fold).await;
        assert!(Instant::now() < deadline, "row {id} does not come");
    }
}

fn lsn(offset: &SourceOffset) -> Lsn {
    StoredPosition::from_offset(offset).unwrap().position.resume_lsn
}

/// The standby has replayed everything of the primary.
async fn caught_up(primary: &Client, standby: &Client) {
    let end: String = primary.query_one("SELECT pg_current_wal_lsn()::text", &[]).await.unwrap().get(0);
    let query = format!("SELECT coalesce(pg_last_wal_replay_lsn() >= '{end}', false)");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !standby.query_one(&query, &[]).await.unwrap().get::<_, bool>(0) {
        assert!(Instant::now() < deadline, "the standby does not reach {end}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Starts a source on a standby. Making its slot there waits for the primary to log its running transactions.
async fn started_on_standby(reader: &mut Reader, primary: &Client) {
    let started = reader.started();
    tokio::pin!(started);
    loop {
        tokio::select! {
            () = &mut started => return,
            () = sleep(Duration::from_millis(200)) => {
                primary.batch_execute("SELECT pg_log_standby_snapshot()").await.unwrap();
            }
        }
    }
}

async fn source_on_a_standby(major: u32) {
    let what = format!("PostgreSQL {major}");
    let primary = PgServer::builder().major(major).start().await.unwrap();
    let database = Database::on(&primary, TABLE).await;
    let name = database.name.clone();
    database.run(&format!("CREATE PUBLICATION \"{name}\" FOR TABLE t")).await;
    let standby = primary.standby("standby").await.unwrap().start().await.unwrap();
    let mut config = database.config(&["public.t"]);
    config.connection = standby.url(&name).parse().unwrap();
    let on_standby = standby.connect(&name).await.unwrap();
    caught_up(&database.sql, &on_standby).await;
    let mut reader = Reader::new(config.clone());
    started_on_standby(&mut reader, &database.sql).await;

    let (ids, mut fold) = (Arc::new(AtomicI64::new(0)), Fold::default());
    let load = Load::start(&primary, &name, &ids).await;
    read_for(&mut reader, &mut fold, Duration::from_secs(2)).await;
    reader.acknowledge().await;
    assert!(fold.rows().count() > 10, "{what}: nothing came from the standby");
    // The primary dies under load; what the standby has not received is nowhere then.
    primary.kill9().await.unwrap();
    load.end().await;
    let (promoted, ()) =
        tokio::join!(standby.promote(), read_for(&mut reader, &mut fold, Duration::from_secs(1)));
    promoted.unwrap();
    let load = Load::start(&standby, &name, &ids).await;
    read_for(&mut reader, &mut fold, Duration::from_secs(1)).await;
    // Whether or not its connection lived through the promotion: now it does not.
    on_standby
        .batch_execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        .await
        .unwrap();
    read_for(&mut reader, &mut fold, Duration::from_secs(1)).await;
    let offset = reader.acknowledge().await;
    drop(reader);
    // And once in a new process, from the stored offset, on the new timeline.
    let mut reader = Reader::resumed(config, Some(offset)).await.unwrap();
    load.end().await;
    let last = ids.fetch_add(1, Ordering::SeqCst);
    on_standby.batch_execute(&format!("INSERT INTO t VALUES ({last}, 'last')")).await.unwrap();
    read_until(&mut reader, &mut fold, last).await;
    fold.assert_equals(&on_standby, "t", "id").await;
    reader.quiet(Duration::from_millis(200)).await;
    reader.close().await;
}

#[tokio::test]
async fn a_source_on_a_standby_goes_on_when_it_is_promoted() {
    needs!(postgres(17));
    for major in pg_available_majors().into_iter().filter(|major| *major >= 16) {
        source_on_a_standby(major).await;
    }
}

/// Has the standby take over the failover slots, until it has this one for good. On an idle primary: the slot must have
/// moved past every transaction that the standby still knows to be running.
async fn synchronised(
    database: &Database,
    reader: &mut Reader,
    fold: &mut Fold,
    on_standby: &Client,
    slot: &str,
) {
    let query = format!("SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}' AND NOT temporary");
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        database
            .run("SELECT pg_log_standby_snapshot(); SELECT pg_logical_emit_message(false, 'm', '')")
            .await;
        while !read_once(reader, fold).await {
            assert!(Instant::now() < deadline, "{slot}: the message does not come");
        }
        let offset = reader.acknowledge().await;
        database.confirmed_at_least(slot, lsn(&offset), Duration::from_secs(10)).await;
        caught_up(&database.sql, on_standby).await;
        on_standby.batch_execute("SELECT pg_sync_replication_slots()").await.unwrap();
        if !on_standby.query(&query, &[]).await.unwrap().is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "the slot is not synchronised");
    }
}

async fn failover(major: u32) {
    let primary = PgServer::builder()
        .major(major)
        // No reader of a failover slot sees what the standby has not.
        .setting("synchronized_standby_slots", "standby")
        .start()
        .await
        .unwrap();
    let database = Database::on(&primary, TABLE).await;
    let (name, plain) = (database.name.clone(), format!("{}_plain", database.name));
    let standby = primary.standby("standby").await.unwrap().start().await.unwrap();
    let on_standby = standby.connect(&name);
    let proxy = FaultProxy::start(format!("127.0.0.1:{}", primary.port())).unwrap();
    database.run(&format!("CREATE PUBLICATION \"{name}\" FOR TABLE t")).await;
    let make = "SELECT pg_create_logical_replication_slot";
    database.run(&format!("{make}('{name}', 'pgoutput', false, false, true)")).await;
    let mut config = database.config(&["public.t"]);
    config.connection = format!("postgres://postgres@127.0.0.1:{}/{name}", proxy.port()).parse().unwrap();
    let mut reader = Reader::new(config.clone());
    let mut without = config.clone();
    without.slot.clone_from(&plain);
    let mut without = Reader::new(without);
    reader.started().await;
    without.started().await;
    let on_standby = on_standby.await.unwrap();

    let (ids, mut fold) = (Arc::new(AtomicI64::new(0)), Fold::default());
    synchronised(&database, &mut reader, &mut fold, &on_standby, &name).await;
    let load = Load::start(&primary, &name, &ids).await;
    read_for(&mut reader, &mut fold, Duration::from_secs(1)).await;
    reader.acknowledge().await;
    on_standby.batch_execute("SELECT pg_sync_replication_slots()").await.unwrap();
    read_for(&mut reader, &mut fold, Duration::from_secs(1)).await;
    without.take(10).await;
    without.acknowledge().await;
    primary.stop(StopMode::Immediate).await.unwrap();
    load.end().await;
    standby.promote().await.unwrap();
    proxy.set_target(format!("127.0.0.1:{}", standby.port()));

    let load = Load::start(&standby, &name, &ids).await;
    read_for(&mut reader, &mut fold, Duration::from_secs(2)).await;
    load.end().await;
    let last = ids.fetch_add(1, Ordering::SeqCst);
    on_standby.batch_execute(&format!("INSERT INTO t VALUES ({last}, 'last')")).await.unwrap();
    read_until(&mut reader, &mut fold, last).await;
    fold.assert_equals(&on_standby, "t", "id").await;
    reader.close().await;

    // The other one's slot stayed behind with the primary: the operator decides, no slot is made.
    let error = loop {
        match without.source().poll().await {
            Ok(_) => {}
            Err(error) if error.is_transient() => sleep(Duration::from_millis(50)).await,
            Err(error) => break error,
        }
    };
    assert_eq!(error.class(), ErrorClass::LostPosition, "{error}");
    assert!(error.message().contains(&plain), "{error}");
    let slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1";
    assert_eq!(on_standby.query_one(slots, &[&plain]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn del_33_failover_with_and_without_a_synchronised_slot() {
    needs!(postgres(17));
    for major in pg_available_majors().into_iter().filter(|major| *major >= 17) {
        failover(major).await;
    }
}
