//! Cases DEL-22, 24 to 28, 32, 63, 65: a position or slot that cannot be honoured is refused, wherever it is met.
//!
//! Each is met by two sources of one stream: one that was stopped and seeks its stored offset, and one that lives on
//! and comes back after its connection broke. Neither may deliver anything, however often it is polled.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use crabka_connect::{ConnectError, ErrorClass, Scalar, Source, SourceOffset};
use crabka_connect_postgres::{PostgresSourceConfig, SlotMode, StoredPosition};
use crabka_pgrepl::Lsn;
use crabka_testkit::{FaultProxy, PgServer, StopMode, needs};
use crabka_tests::{Database, Reader};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v text)";

/// One row delivered and acknowledged; then the connection broke, and the slot is free.
struct Broken {
    config: PostgresSourceConfig,
    offset: SourceOffset,
    live: Reader,
}

impl Broken {
    async fn new(database: &Database) -> Self {
        Self::with(database, database.config(&["public.t"])).await
    }

    async fn with(database: &Database, config: PostgresSourceConfig) -> Self {
        let mut live = Reader::new(config.clone());
        live.started().await;
        database.run("INSERT INTO t VALUES (1, 'delivered')").await;
        live.take(1).await;
        let offset = live.acknowledge().await;
        database.confirmed_at_least(&database.slot(), lsn(&offset), Duration::from_secs(10)).await;
        disconnect(database, &mut live).await;
        database.run("INSERT INTO t VALUES (2, 'not delivered')").await;
        Self { config, offset, live }
    }

    /// Both sources are refused with this class and these words.
    async fn refused(mut self, class: ErrorClass, words: &[&str]) {
        for attempt in 0..3 {
            let error = self.live.source().poll().await.expect_err("the live source is refused");
            told(&error, class, words, &format!("live, poll {attempt}"));
        }
        assert_eq!(self.live.checkpoint(), Some(self.offset.clone()), "nothing was delivered");
        self.live.close().await;
        seek_refused(&self.config, &self.offset, class, words).await;
    }
}

fn lsn(offset: &SourceOffset) -> Lsn {
    StoredPosition::from_offset(offset).unwrap().position.resume_lsn
}

/// Ends the source's connection from the server's side, and waits until the slot is free.
async fn disconnect(database: &Database, reader: &mut Reader) {
    let holder = format!("FROM pg_replication_slots WHERE slot_name = '{}' AND active", database.slot());
    database.run(&format!("SELECT pg_terminate_backend(active_pid) {holder}")).await;
    let error = loop {
        match reader.source().poll().await {
            Ok(record) => assert!(record.is_none_or(|record| record.value.is_some()), "a tombstone"),
            Err(error) => break error,
        }
    };
    assert_eq!((error.class(), error.sqlstate()), (ErrorClass::Transient, Some("57P01")), "{error}");
    while !database.sql.query(&format!("SELECT 1 {holder}"), &[]).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What an operator is told: the class, these words, and what to do.
fn told(error: &ConnectError, class: ErrorClass, words: &[&str], what: &str) {
    assert_eq!(error.class(), class, "{what}: {error}");
    for word in words {
        assert!(error.message().contains(word), "{what}: no {word}: {error}");
    }
    assert!(error.fix().is_some_and(|fix| !fix.is_empty()), "{what}: no fix: {error}");
}

/// A new source seeks the offset: refused, and so is every poll after it.
async fn seek_refused(
    config: &PostgresSourceConfig,
    offset: &SourceOffset,
    class: ErrorClass,
    words: &[&str],
) {
    let mut reader = Reader::new(config.clone());
    let error = reader.source().seek(offset.clone()).await.expect_err("the seek is refused");
    told(&error, class, words, "seek");
    for attempt in 0..2 {
        let error = reader.source().poll().await.expect_err("a poll after a refused seek is refused");
        told(&error, class, words, &format!("poll {attempt} after seek"));
    }
    assert_eq!(reader.checkpoint(), None, "nothing was delivered");
    reader.close().await;
}

async fn slots(database: &Database) -> i64 {
    let query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1";
    database.sql.query_one(query, &[&database.slot()]).await.unwrap().get(0)
}

/// Drops the slot and makes another of its name by `arguments` of `function`.
async fn replace_slot(database: &Database, function: &str, arguments: &str) {
    let slot = database.slot();
    database.run(&format!("SELECT pg_drop_replication_slot('{slot}')")).await;
    database.run(&format!("SELECT {function}('{slot}'{arguments})")).await;
}

const LOGICAL: &str = "pg_create_logical_replication_slot";

#[tokio::test]
async fn del_22_an_offset_that_cannot_be_read_is_never_a_fresh_start() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let Broken { config, offset, live } = Broken::new(&database).await;
    live.close().await;
    type Damage = fn(&mut SourceOffset);
    let cases: [(&str, Damage); 8] = [
        ("position.snapshot", |o| drop(o.position.insert("snapshot".into(), Scalar::from("done")))),
        ("partition.shard", |o| drop(o.partition.insert("shard".into(), Scalar::from(1_u64)))),
        ("position.version", |o| drop(o.position.insert("version".into(), Scalar::from(2_u64)))),
        ("position.version", |o| drop(o.position.insert("version".into(), Scalar::from("one")))),
        ("position.lsn", |o| drop(o.position.remove("lsn"))),
        ("position.lsn", |o| drop(o.position.insert("lsn".into(), Scalar::from("somewhere")))),
        ("position.fingerprint", |o| drop(o.position.remove("fingerprint"))),
        ("partition.system_id", |o| drop(o.partition.remove("system_id"))),
    ];
    for (field, damage) in cases {
        let mut damaged = offset.clone();
        damage(&mut damaged);
        seek_refused(&config, &damaged, ErrorClass::LostPosition, &[field]).await;
    }
    // The offset as it was is still good: nothing was consumed meanwhile.
    let mut reader = Reader::resumed(config, Some(offset)).await.unwrap();
    assert_eq!(reader.take(1).await[0].int("id"), 2);
    reader.close().await;
}

#[tokio::test]
async fn del_24_slot_dropped_and_re_created() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let broken = Broken::new(&database).await;
    replace_slot(&database, LOGICAL, ", 'pgoutput'").await;
    database.run("INSERT INTO t VALUES (3, 'behind the new slot')").await;
    let (stored, available) = (lsn(&broken.offset), database.confirmed().await);
    let words = [&database.slot(), &*stored.to_string(), &*available.to_string()];
    broken.refused(ErrorClass::LostPosition, &words).await;
    assert_eq!(database.confirmed().await, available);
}

#[tokio::test]
async fn del_24_also_before_anything_was_polled() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let mut reader = Reader::new(database.config(&["public.t"]));
    reader.started().await;
    let started = database.confirmed().await;
    disconnect(&database, &mut reader).await;
    database.run("INSERT INTO t VALUES (1, 'only in the first slot')").await;
    replace_slot(&database, LOGICAL, ", 'pgoutput'").await;
    let words = [&database.slot(), &*started.to_string()];
    let error = reader.source().poll().await.unwrap_err();
    told(&error, ErrorClass::LostPosition, &words, "re-created");
    database.run(&format!("SELECT pg_drop_replication_slot('{}')", database.slot())).await;
    let error = reader.source().poll().await.unwrap_err();
    told(&error, ErrorClass::LostPosition, &words, "dropped");
    assert_eq!(slots(&database).await, 0, "no slot is made in its place");
    reader.close().await;
}

#[tokio::test]
async fn a_temporary_slot_is_lost_with_its_connection() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    database.run(&format!("CREATE PUBLICATION \"{}\" FOR TABLE t", database.name)).await;
    let mut config = database.config(&["public.t"]);
    config.slot_mode = SlotMode::Temporary;
    let mut reader = Reader::new(config);
    reader.started().await;
    disconnect(&database, &mut reader).await;
    database.run("INSERT INTO t VALUES (1, 'between two slots')").await;
    for attempt in 0..2 {
        let error = reader.source().poll().await.unwrap_err();
        let words = [&*database.slot(), "temporary"];
        told(&error, ErrorClass::LostPosition, &words, &format!("poll {attempt}"));
    }
    reader.close().await;
}

#[tokio::test]
async fn del_25_a_stored_offset_and_no_slot() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let broken = Broken::new(&database).await;
    database.run(&format!("SELECT pg_drop_replication_slot('{}')", database.slot())).await;
    let stored = lsn(&broken.offset).to_string();
    broken.refused(ErrorClass::LostPosition, &[&database.slot(), &stored]).await;
    assert_eq!(slots(&database).await, 0, "only `init` makes a slot where an offset is stored");
}

#[tokio::test]
async fn del_26_slot_advanced_from_sql_past_the_offset() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let broken = Broken::new(&database).await;
    let slot = database.slot();
    database.run(&format!("SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")).await;
    let (stored, available) = (lsn(&broken.offset), database.confirmed().await);
    assert!(available > stored);
    let words = [&slot, &*stored.to_string(), &*available.to_string()];
    broken.refused(ErrorClass::LostPosition, &words).await;
}

#[tokio::test]
async fn del_28_slot_in_an_odd_state() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let elsewhere = Database::new(TABLE).await;
    let slot = database.slot();
    let drop_slot = format!("SELECT pg_drop_replication_slot('{slot}')");
    for (state, words) in [
        ("physical", vec!["physical"]),
        ("other plugin", vec!["test_decoding", "pgoutput"]),
        ("other database", vec!["another database", &elsewhere.name]),
    ] {
        let broken = Broken::new(&database).await;
        match state {
            "physical" => replace_slot(&database, "pg_create_physical_replication_slot", "").await,
            "other plugin" => replace_slot(&database, LOGICAL, ", 'test_decoding'").await,
            _ => {
                database.run(&drop_slot).await;
                elsewhere.run(&format!("SELECT {LOGICAL}('{slot}', 'pgoutput')")).await;
            }
        }
        let mut words = words;
        words.push(&slot);
        // Also without a stored offset.
        let mut fresh = Reader::new(broken.config.clone());
        let error = fresh.source().poll().await.expect_err("refused without an offset");
        told(&error, ErrorClass::Configuration, &words, state);
        fresh.close().await;
        broken.refused(ErrorClass::Configuration, &words).await;
        assert_eq!(slots(&database).await, 1, "{state}: the slot is left alone");
        let owner = if state == "other database" { &elsewhere } else { &database };
        owner.run(&drop_slot).await;
        database.run("DELETE FROM t").await;
    }
}

#[tokio::test]
async fn del_65_a_slot_that_is_two_phase() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let broken = Broken::new(&database).await;
    replace_slot(&database, LOGICAL, ", 'pgoutput', false, true").await;
    database.run("BEGIN; INSERT INTO t VALUES (10, 'p'); PREPARE TRANSACTION 'gid'").await;
    let mut fresh = Reader::new(broken.config.clone());
    let words = [&*database.slot(), "two-phase"];
    let error = fresh.source().poll().await.expect_err("refused without an offset");
    told(&error, ErrorClass::Configuration, &words, "fresh");
    fresh.close().await;
    broken.refused(ErrorClass::Configuration, &words).await;
    database.run("ROLLBACK PREPARED 'gid'").await;
}

#[tokio::test]
async fn del_32_another_cluster_at_the_same_address() {
    needs!(postgres);
    let (ours, other) = (PgServer::start().await.unwrap(), PgServer::start().await.unwrap());
    let proxy = FaultProxy::start(format!("127.0.0.1:{}", ours.port())).unwrap();
    let database = Database::on(&ours, TABLE).await;
    let name = database.name.clone();
    let mut config = database.config(&["public.t"]);
    config.connection = format!("postgres://postgres@127.0.0.1:{}/{name}", proxy.port()).parse().unwrap();
    let broken = Broken::with(&database, config).await;

    // The same names, and more WAL than ours had, so that only the identity can tell.
    let admin = other.connect("postgres").await.unwrap();
    admin.batch_execute(&format!("CREATE DATABASE \"{name}\"")).await.unwrap();
    let there = other.connect(&name).await.unwrap();
    there.batch_execute(&format!("{TABLE}; CREATE PUBLICATION \"{name}\" FOR TABLE t")).await.unwrap();
    there.batch_execute(&format!("SELECT {LOGICAL}('{name}', 'pgoutput')")).await.unwrap();
    there.batch_execute("INSERT INTO t VALUES (7, 'another history')").await.unwrap();
    let id = "SELECT system_identifier::text FROM pg_control_system()";
    let mut words = vec!["system identifier".to_owned()];
    for sql in [&database.sql, &there] {
        words.push(sql.query_one(id, &[]).await.unwrap().get(0));
    }
    proxy.set_target(format!("127.0.0.1:{}", other.port()));
    let confirmed =
        format!("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{name}'");
    let before: String = there.query_one(&confirmed, &[]).await.unwrap().get(0);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    broken.refused(ErrorClass::LostPosition, &words).await;
    let after: String = there.query_one(&confirmed, &[]).await.unwrap().get(0);
    assert_eq!(after, before, "the other cluster's slot is not touched");
}

#[tokio::test]
async fn del_32_another_database_or_another_slot() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let elsewhere = Database::new(TABLE).await;
    let Broken { config, offset, live } = Broken::new(&database).await;
    live.close().await;
    let mut moved = config.clone();
    moved.connection = elsewhere.url.parse().unwrap();
    let words = ["database", &database.name, &elsewhere.name];
    seek_refused(&moved, &offset, ErrorClass::LostPosition, &words).await;
    let mut renamed = config;
    renamed.slot = format!("{}_b", database.slot());
    database.run(&format!("SELECT {LOGICAL}('{}', 'pgoutput')", renamed.slot)).await;
    let words = ["replication slot", &*database.slot(), &*renamed.slot];
    seek_refused(&renamed, &offset, ErrorClass::LostPosition, &words).await;
    database.run(&format!("SELECT pg_drop_replication_slot('{}')", renamed.slot)).await;
}

#[tokio::test]
async fn del_63_an_offset_ahead_of_the_servers_wal() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let Broken { config, offset, live } = Broken::new(&database).await;
    live.close().await;
    let mut ahead = StoredPosition::from_offset(&offset).unwrap();
    ahead.position.resume_lsn = Lsn::new(database.wal_end().await.as_u64() + (1 << 30));
    let before = database.confirmed().await;
    let words = [&*ahead.position.resume_lsn.to_string(), "server at"];
    seek_refused(&config, &ahead.to_offset(), ErrorClass::LostPosition, &words).await;
    assert_eq!(database.confirmed().await, before, "nothing is acknowledged");
    let mut reader = Reader::resumed(config, Some(offset)).await.unwrap();
    assert_eq!(reader.take(1).await[0].int("id"), 2, "the row between is still there");
    reader.close().await;
}

/// The source has read on; then the cluster is put back to an older copy of its files, with the slot in it.
#[tokio::test]
async fn del_63_a_server_restored_from_an_older_copy() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let database = Database::on(&server, TABLE).await;
    let config = database.config(&["public.t"]);
    let mut live = Reader::new(config.clone());
    live.started().await;
    // Idle: a fast shutdown waits for the acknowledgement of what was sent.
    disconnect(&database, &mut live).await;
    let copy = tempfile::tempdir().unwrap();
    let kept = copy.path().join("data");
    server.stop(StopMode::Fast).await.unwrap();
    copy_files(&server.data_dir(), &kept);
    server.start_again().await.unwrap();

    let sql = server.connect(&database.name).await.unwrap();
    sql.batch_execute("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 2000) g")
        .await
        .unwrap();
    live.take(2000).await;
    let offset = live.acknowledge().await;
    server.stop(StopMode::Immediate).await.unwrap();
    std::fs::remove_dir_all(server.data_dir()).unwrap();
    copy_files(&kept, &server.data_dir());
    server.start_again().await.unwrap();

    let error = loop {
        // The end of the old connection comes first.
        match live.source().poll().await {
            Ok(_) => {}
            Err(error) if error.is_transient() => {}
            Err(error) => break error,
        }
    };
    assert_eq!(live.checkpoint(), Some(offset.clone()), "nothing was delivered");
    let stored = lsn(&offset).to_string();
    let words = [&*stored, "server at"];
    told(&error, ErrorClass::LostPosition, &words, "live");
    live.close().await;
    seek_refused(&config, &offset, ErrorClass::LostPosition, &words).await;
}

fn copy_files(from: &std::path::Path, to: &std::path::Path) {
    let status = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(status.success());
}
