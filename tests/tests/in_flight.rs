//! What is polled but not durable yet is never told to the server, whatever becomes of the connection meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use crabka_connect_postgres::{PostgresSourceConfig, StreamState};
use crabka_testkit::{PgServer, StopMode, needs};
use crabka_tests::{Database, Reader};
use tokio::time::{Instant, sleep};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v text)";

/// Statuses go out often, so that a wrong one is seen soon.
fn talkative(mut config: PostgresSourceConfig) -> PostgresSourceConfig {
    config.stream.status_interval = Duration::from_millis(100);
    config
}

#[tokio::test]
async fn del_14_a_reconnect_does_not_acknowledge_what_was_only_polled() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let mut reader = Reader::new(talkative(database.config(&["public.t"])));
    reader.started().await;
    database.run("INSERT INTO t SELECT generate_series(1, 10)").await;
    reader.take(10).await;
    reader.acknowledge().await;
    reader.quiet(Duration::from_millis(300)).await;
    let durable = database.confirmed().await;

    database.run("INSERT INTO t SELECT generate_series(11, 20)").await;
    reader.take(10).await;
    let terminate = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1";
    database.sql.query(terminate, &[&database.slot()]).await.unwrap();
    database.run("INSERT INTO t VALUES (21)").await;
    assert_eq!(reader.take(1).await[0].int("id"), 21);
    sleep(Duration::from_millis(500)).await;
    assert_eq!(database.confirmed().await, durable);
    // Nor does the last status of an orderly end.
    reader.close().await;
    assert_eq!(database.confirmed().await, durable);
}

#[tokio::test]
async fn del_35_an_unread_connection_is_closed_and_the_position_kept() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let mut config = talkative(database.config(&["public.t"]));
    config.unread_limit = Duration::from_secs(1);
    config.queue_bytes = 64 * 1024;
    let mut reader = Reader::new(config);
    reader.started().await;
    let before = database.confirmed().await;
    database.run("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 5000) g").await;
    let active = "SELECT active FROM pg_replication_slots WHERE slot_name = $1";
    let mut waited = 0;
    while database.sql.query_one(active, &[&database.slot()]).await.unwrap().get::<_, bool>(0) {
        waited += 1;
        assert!(waited < 200, "the connection is still open");
        sleep(Duration::from_millis(50)).await;
    }
    let ids: Vec<i64> = reader.take(5000).await.iter().map(|record| record.int("id")).collect();
    assert_eq!(ids, (1..=5000).collect::<Vec<_>>());
    reader.quiet(Duration::from_millis(300)).await;
    assert_eq!(database.confirmed().await, before);
    reader.close().await;
}

#[tokio::test]
async fn an_sql_connection_that_ended_long_ago_does_not_shorten_how_long_the_queue_may_be_full() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let mut config = database.config(&["public.t"]);
    config.queue_bytes = 64 * 1024;
    let mut reader = Reader::new(config);
    reader.started().await;
    database.run("INSERT INTO t VALUES (0, 'x')").await;
    reader.take(1).await;
    let terminate = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity \
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    assert_eq!(database.sql.query_one(terminate, &[]).await.unwrap().get::<_, i64>(0), 1);
    sleep(Duration::from_secs(12)).await;

    database.run("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 5000) g").await;
    let figures = reader.source().figures();
    let deadline = Instant::now() + Duration::from_secs(60);
    while figures.snapshot().state != StreamState::WaitingForRoom {
        assert!(Instant::now() < deadline, "{:?}", figures.snapshot().state);
        sleep(Duration::from_millis(20)).await;
    }
    // Past the limit of a server that is stopping.
    sleep(Duration::from_secs(5)).await;
    assert_eq!(figures.snapshot().state, StreamState::WaitingForRoom);
    reader.close().await;
}

#[tokio::test]
async fn del_61_iii_pgc_71_a_fast_shutdown_does_not_wait_for_rows_that_never_become_durable() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let database = Database::on(&server, TABLE).await;
    let mut config = database.config(&["public.t"]);
    config.unread_limit = Duration::from_secs(2);
    let mut reader = Reader::new(config);
    reader.started().await;
    database.run("INSERT INTO t SELECT generate_series(1, 10)").await;
    reader.take(10).await;
    // The host neither polls nor acknowledges: its sink is blocked.
    let stopped = server.stop_within(StopMode::Fast, Duration::from_secs(20)).await.unwrap();
    assert!(stopped.took < Duration::from_secs(6), "{stopped:?}");
}

#[tokio::test]
async fn a_first_change_of_several_records_has_a_position_before_its_last_record() {
    needs!(postgres);
    let database = Database::new(&format!("{TABLE}; INSERT INTO t VALUES (1, 'a')")).await;
    let mut reader = Reader::new(database.config(&["public.t"]));
    reader.started().await;
    database.run("DELETE FROM t WHERE id = 1").await;
    let delete = reader.take(1).await.remove(0);
    assert_eq!(delete.op(), "d");
    let before = delete.offset.expect("a position to save");
    let tombstone = reader.take(1).await.remove(0);
    assert_eq!(tombstone.op(), "x");
    assert_ne!(tombstone.offset, Some(before));
    reader.close().await;
}

#[tokio::test]
async fn changes_of_a_partition_that_was_detached_since_are_delivered() {
    needs!(postgres);
    let setup = "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id);
                 CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (100);
                 CREATE TABLE high PARTITION OF root FOR VALUES FROM (100) TO (200)";
    let database = Database::new(setup).await;
    let config = database.config(&["public.root"]);
    let offset = Reader::offset_behind(&config, &database, "INSERT INTO root VALUES (1)").await;
    database.run("INSERT INTO root VALUES (2), (150)").await;
    database.run("ALTER TABLE root DETACH PARTITION low").await;
    database.run("INSERT INTO root VALUES (151)").await;

    let mut again = Reader::resumed(config, Some(offset)).await.unwrap();
    let ids: Vec<i64> = again.take(3).await.iter().map(|record| record.int("id")).collect();
    assert_eq!(ids, [2, 150, 151]);
    again.close().await;
}

#[tokio::test]
async fn ops_14_a_row_larger_than_the_queue_passes_alone() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let mut config = database.config(&["public.t"]);
    config.queue_bytes = 1 << 20;
    let mut reader = Reader::new(config);
    reader.started().await;
    database.run("INSERT INTO t VALUES (1, 'small'), (2, repeat('x', 20000000)), (3, 'small')").await;
    database.run("INSERT INTO t VALUES (4, repeat('y', 5000000))").await;
    let records = reader.take(4).await;
    let lengths: Vec<usize> = records.iter().map(|r| r.column("v").as_str().unwrap().len()).collect();
    assert_eq!(lengths, [5, 20_000_000, 5, 5_000_000]);
    reader.close().await;
}
