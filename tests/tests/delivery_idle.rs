//! Cases DEL-01, 02, 03, 11, 16 and DEL-61 (i): what is acknowledged while little or nothing happens.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use crabka_connect_postgres::StoredPosition;
use crabka_pgrepl::Lsn;
use crabka_testkit::{PgServer, StopMode, needs};
use crabka_tests::{Database, Reader};
use tokio::time::Instant;

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v text)";

fn position(reader: &Reader) -> StoredPosition {
    StoredPosition::from_offset(&reader.checkpoint().expect("a position")).unwrap()
}

/// Polls, and acknowledges whatever comes, until the slot is confirmed at `lsn`.
async fn follow_until_confirmed(reader: &mut Reader, database: &Database, lsn: Lsn, limit: Duration) {
    let deadline = Instant::now() + limit;
    reader.with_heartbeats = true;
    loop {
        if reader.poll().await.unwrap().is_some() {
            reader.acknowledge().await;
        }
        let confirmed = database.confirmed().await;
        if confirmed >= lsn {
            break;
        }
        assert!(Instant::now() < deadline, "confirmed {confirmed}, wanted {lsn}");
    }
    reader.with_heartbeats = false;
}

#[tokio::test]
async fn del_01_a_keepalives_position_is_not_proof_of_delivery() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let mut config = database.config(&["public.t"]);
    config.heartbeat_interval = Duration::from_millis(200);
    let mut reader = Reader::new(config.clone());
    reader.started().await;
    let before = database.confirmed().await;
    for id in 0..100 {
        database.run(&format!("INSERT INTO t VALUES ({id})")).await;
    }
    reader.take(100).await;
    // Keepalives come with every foreign commit.
    database.run("CREATE TABLE other (i int)").await;
    for _ in 0..20 {
        database.run("INSERT INTO other VALUES (1)").await;
        reader.quiet(Duration::from_millis(50)).await;
    }
    assert_eq!(database.confirmed().await, before);
    drop(reader);

    let mut again = Reader::new(config);
    let ids: Vec<i64> = again.take(100).await.iter().map(|record| record.int("id")).collect();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
    again.close().await;
}

async fn quiet_table_beside_busy(writes_to_other_database: bool) {
    let database = Database::new(TABLE).await;
    let elsewhere = Database::new("CREATE TABLE busy (b text)").await;
    database.run("CREATE TABLE busy (b text)").await;
    let mut config = database.config(&["public.t"]);
    config.heartbeat_interval = Duration::from_secs(1);
    let mut reader = Reader::new(config);
    reader.started().await;
    let busy = if writes_to_other_database { &elsewhere } else { &database };
    for _ in 0..8 {
        busy.run("INSERT INTO busy SELECT repeat('x', 2000) FROM generate_series(1, 5000)").await;
        // The host goes on polling; nothing it sees is a row.
        reader.quiet(Duration::from_millis(20)).await;
    }
    let written = database.wal_end().await;
    follow_until_confirmed(&mut reader, &database, written, Duration::from_secs(10)).await;
    // The row after it proves that the stream was alive.
    database.run("INSERT INTO t VALUES (1)").await;
    assert_eq!(reader.take(1).await[0].int("id"), 1);
    reader.close().await;
}

#[tokio::test]
async fn del_02_i_pgc_69_a_quiet_table_beside_busy_tables_of_its_database_releases_wal() {
    needs!(postgres);
    quiet_table_beside_busy(false).await;
}

#[tokio::test]
async fn del_02_ii_a_quiet_table_beside_another_busy_database_releases_wal() {
    needs!(postgres);
    quiet_table_beside_busy(true).await;
}

#[tokio::test]
async fn del_03_idle_progress_survives_a_restart() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let mut config = database.config(&["public.t"]);
    config.heartbeat_interval = Duration::from_millis(200);
    let mut reader = Reader::new(config.clone());
    database.run("CREATE TABLE busy (b text)").await;
    reader.started().await;
    database.run("INSERT INTO t VALUES (1)").await;
    reader.take(1).await;
    reader.acknowledge().await;
    let delivered = position(&reader).position.resume_lsn;
    database.run("INSERT INTO busy SELECT repeat('x', 1000) FROM generate_series(1, 5000)").await;
    let written = database.wal_end().await;
    follow_until_confirmed(&mut reader, &database, written, Duration::from_secs(10)).await;
    let offset = reader.acknowledge().await;
    assert!(position(&reader).position.resume_lsn > delivered);
    reader.close().await;

    let mut again = Reader::resumed(config, Some(offset)).await.unwrap();
    database.run("INSERT INTO t VALUES (2)").await;
    assert_eq!(again.take(1).await[0].int("id"), 2);
    again.quiet(Duration::from_millis(300)).await;
    again.close().await;
}

#[tokio::test]
async fn del_11_a_non_transactional_message_as_the_last_event() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let config = database.config(&["public.t"]);
    let mut reader = Reader::new(config.clone());
    reader.started().await;
    database.run("INSERT INTO t VALUES (1)").await;
    database.run("SELECT pg_logical_emit_message(false, 'hb', 'x')").await;
    let seen = reader.take(2).await;
    assert_eq!((seen[0].int("id"), seen[1].topic.as_str()), (1, "t.message"));
    assert_eq!(seen[1].value["message"]["prefix"], "hb");
    let offset = reader.acknowledge().await;
    reader.close().await;

    let mut again = Reader::resumed(config, Some(offset)).await.unwrap();
    database.run("INSERT INTO t VALUES (2)").await;
    assert_eq!(again.take(1).await[0].int("id"), 2);
    again.quiet(Duration::from_millis(300)).await;
    again.close().await;
}

#[tokio::test]
async fn del_16_a_restart_when_idle_repeats_nothing() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let config = database.config(&["public.t"]);
    let mut reader = Reader::new(config.clone());
    reader.started().await;
    database.run("INSERT INTO t SELECT generate_series(1, 50)").await;
    reader.take(50).await;
    let mut offset = reader.acknowledge().await;
    let end = position(&reader);
    assert_eq!(end.position.open, None);
    assert_eq!(end.position.last_commit_end_lsn, Some(end.position.resume_lsn));
    reader.close().await;
    for round in 0..3 {
        assert!(database.confirmed().await >= end.position.resume_lsn, "round {round}");
        let mut again = Reader::resumed(config.clone(), Some(offset)).await.unwrap();
        again.quiet(Duration::from_millis(300)).await;
        offset = again.acknowledge().await;
        again.close().await;
    }
    let mut last = Reader::resumed(config, Some(offset)).await.unwrap();
    database.run("INSERT INTO t VALUES (1000)").await;
    assert_eq!(last.take(1).await[0].int("id"), 1000);
    last.close().await;
}

#[tokio::test]
async fn del_61_i_pgc_71_a_fast_shutdown_is_not_held_up_when_nothing_is_in_flight() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let database = Database::on(&server, TABLE).await;
    let mut reader = Reader::new(database.config(&["public.t"]));
    reader.with_heartbeats = true;
    reader.started().await;
    database.run("INSERT INTO t VALUES (1)").await;
    database.run("CREATE TABLE other (i int); INSERT INTO other VALUES (1)").await;
    reader.take(1).await;
    reader.acknowledge().await;
    let host = tokio::spawn(async move {
        // A host that makes durable and acknowledges what comes, until the stream ends.
        loop {
            match reader.poll_and_acknowledge().await {
                Ok(_) => {}
                Err(error) => break error,
            }
        }
    });
    let stopped = server.stop_within(StopMode::Fast, Duration::from_secs(10)).await.unwrap();
    assert!(stopped.took < Duration::from_secs(2), "{stopped:?}");
    assert!(host.await.unwrap().is_transient());
}
