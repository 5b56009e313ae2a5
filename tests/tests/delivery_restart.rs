//! Cases DEL-04 to DEL-10, 12: stop anywhere, resume, nothing missing and nothing repeated.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use crabka_connect::SourceOffset;
use crabka_connect_postgres::PostgresSourceConfig;
use crabka_testkit::{PgServer, needs};
use crabka_tests::{Database, Fold, Reader, Seen, WORKLOAD_TABLE, random_sessions};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v text)";

fn ids(records: &[Seen]) -> Vec<i64> {
    records.iter().map(|record| record.int("id")).collect()
}

/// Reads `count` records and dies without a word; gives what was read and the position to resume at.
async fn read_and_die(
    config: &PostgresSourceConfig,
    offset: Option<SourceOffset>,
    count: usize,
) -> (Vec<Seen>, Option<SourceOffset>) {
    let mut reader = Reader::resumed(config.clone(), offset).await.unwrap();
    let seen = reader.take(count).await;
    let offset = reader.checkpoint();
    (seen, offset)
}

#[tokio::test]
async fn del_04_interleaved_transactions_and_the_resume_guard() {
    needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let database = Database::on(server, TABLE).await;
    let config = database.config(&["public.t"]);
    let mut reader = Reader::new(config.clone());
    reader.started().await;
    let other = server.connect(&database.name).await.unwrap();
    other.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
    database.run("INSERT INTO t VALUES (2)").await;
    assert_eq!(ids(&reader.take(1).await), [2]);
    let offset = reader.acknowledge().await;
    other.batch_execute("COMMIT").await.unwrap();
    drop(reader);

    let mut again = Reader::resumed(config, Some(offset)).await.unwrap();
    assert_eq!(ids(&again.take(1).await), [1]);
    again.quiet(Duration::from_millis(300)).await;
    again.close().await;
}

/// Runs `sql`, stops after the first `stop` of `total` records, resumes, and returns the ids of both runs.
async fn stop_after(sql: &str, stop: usize, total: usize) -> Vec<i64> {
    let database = Database::new(TABLE).await;
    let config = database.config(&["public.t"]);
    let mut reader = Reader::new(config.clone());
    reader.started().await;
    database.run(sql).await;
    let mut seen = ids(&reader.take(stop).await);
    let offset = reader.checkpoint();
    drop(reader);
    let mut again = Reader::resumed(config, offset).await.unwrap();
    seen.extend(ids(&again.take(total - stop).await));
    again.quiet(Duration::from_millis(200)).await;
    again.close().await;
    seen
}

#[tokio::test]
async fn del_05_many_rows_one_lsn() {
    needs!(postgres);
    for stop in [1, 4] {
        let seen = stop_after("COPY t FROM PROGRAM 'seq 1 5 | sed s/$/\\\\tx/'", stop, 5).await;
        assert_eq!(seen, [1, 2, 3, 4, 5], "COPY, stop after {stop}");
    }
    let values: Vec<String> = (1..=500).map(|id| format!("({id}, 'x')")).collect();
    let insert = format!("INSERT INTO t VALUES {}", values.join(", "));
    for stop in [1, 4, 250, 499] {
        let seen = stop_after(&insert, stop, 500).await;
        assert_eq!(seen, (1..=500).collect::<Vec<_>>(), "INSERT, stop after {stop}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn del_06_change_lsns_fall_between_transactions() {
    needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let database = Database::on(server, WORKLOAD_TABLE).await;
    let config = database.config(&["public.t"]);
    let mut reader = Reader::new(config.clone());
    reader.started().await;
    let name = database.name.clone();
    let until = Instant::now() + Duration::from_secs(8);
    let load = tokio::spawn(async move { random_sessions(server, &name, until, 6).await });
    let mut fold = Fold::default();
    let mut random = StdRng::seed_from_u64(6);
    let mut restarts = 0;
    // The marker is written when the load has ended: everything before it must have come.
    let mut marked = false;
    loop {
        if load.is_finished() && !marked {
            marked = true;
            database.run("INSERT INTO t VALUES (-1, 'end')").await;
        }
        let before = reader.checkpoint();
        let Some(record) = reader.poll().await.unwrap() else { continue };
        if record.op() == "h" {
            continue;
        }
        fold.apply(&record.key, &record.value, false);
        if record.key["id"] == -1 {
            break;
        }
        match random.random_range(0..200) {
            // Not between the records of one change, where the first would repeat: that is DEL-12.
            0 if record.offset != before => {
                let offset = reader.checkpoint();
                drop(reader);
                reader = Reader::resumed(config.clone(), offset).await.unwrap();
                restarts += 1;
            }
            1..20 => drop(reader.acknowledge().await),
            _ => {}
        }
    }
    load.await.unwrap();
    assert!(restarts > 3, "{restarts} restarts");
    fold.assert_equals(&database.sql, "t", "id").await;
    reader.close().await;
}

#[tokio::test]
async fn del_07_commit_ends_where_the_next_begin_starts() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let config = database.config(&["public.t"]);
    let mut reader = Reader::new(config.clone());
    reader.started().await;
    for id in 0..30 {
        database.run(&format!("INSERT INTO t VALUES ({id})")).await;
    }
    let (mut seen, mut offset) = (ids(&reader.take(1).await), reader.checkpoint());
    drop(reader);
    while seen.len() < 30 {
        let (next, position) = read_and_die(&config, offset, 1).await;
        seen.extend(ids(&next));
        offset = position;
    }
    assert_eq!(seen, (0..30).collect::<Vec<_>>());
}

/// A transaction of 1 000 changes over two tables; gives (topic, op, id) of each record it must become.
async fn mixed_transaction(database: &Database) -> Vec<(String, String, i64)> {
    let mut sql = String::from("BEGIN;");
    let mut expected = Vec::new();
    let mut expect =
        |table: &str, op: &str, id: i64| expected.push((format!("t.public.{table}"), op.to_owned(), id));
    for n in 0..1000_i64 {
        let table = if n % 2 == 0 { "t" } else { "u" };
        let id = n / 4;
        match n % 4 {
            0 | 1 => {
                sql.push_str(&format!("INSERT INTO {table} VALUES ({id}, 'a');"));
                expect(table, "c", id);
            }
            2 => {
                sql.push_str(&format!("UPDATE {table} SET v = 'b' WHERE id = {id};"));
                expect(table, "u", id);
            }
            _ => {
                sql.push_str(&format!("DELETE FROM {table} WHERE id = {id};"));
                expect(table, "d", id);
                expect(table, "x", id);
            }
        }
    }
    database.run(&format!("{sql} COMMIT")).await;
    expected
}

fn told(records: &[Seen]) -> Vec<(String, String, i64)> {
    records
        .iter()
        .map(|record| (record.topic.clone(), record.op().to_owned(), record.key["id"].as_i64().unwrap()))
        .collect()
}

#[tokio::test]
async fn del_08_stop_anywhere_inside_a_transaction() {
    needs!(postgres);
    let database = Database::new(&format!("{TABLE}; CREATE TABLE u (id int PRIMARY KEY, v text)")).await;
    let config = database.config(&["public.t", "public.u"]);
    let mut reader = Reader::new(config.clone());
    reader.started().await;
    // Once before its COMMIT is written: nothing of it may show.
    let open = "BEGIN; INSERT INTO t VALUES (9999, 'x')";
    database.run(open).await;
    reader.quiet(Duration::from_millis(200)).await;
    database.run("ROLLBACK").await;
    let expected = mixed_transaction(&database).await;
    drop(reader);

    let mut random = StdRng::seed_from_u64(8);
    let stops: Vec<usize> =
        (1..=50).chain((0..12).map(|_| random.random_range(51..expected.len() - 1))).collect();
    for stop in stops {
        let (first, offset) = read_and_die(&config, None, stop).await;
        let mut records = told(&first);
        let complete = offset.is_some();
        let mut again = Reader::resumed(config.clone(), offset).await.unwrap();
        let resumed = told(&again.take(1).await).remove(0);
        // A stop between a delete and its tombstone repeats the delete; nothing else repeats.
        let cut = records.last().is_some_and(|last| last.1 == "d");
        if cut || !complete {
            assert_eq!(records.pop(), Some(resumed.clone()), "stop after {stop}");
        }
        records.push(resumed);
        let rest = expected.len() - records.len();
        records.extend(told(&again.take(rest).await));
        assert_eq!(records, expected, "stop after {stop}");
    }
}

#[tokio::test]
async fn del_09_resume_is_bounded() {
    needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let database = Database::on(server, &format!("{TABLE}; CREATE TABLE busy (b text)")).await;
    let config = database.config(&["public.t"]);
    let offset = Reader::offset_behind(&config, &database, "INSERT INTO t VALUES (1)").await;
    let open = server.connect(&database.name).await.unwrap();
    open.batch_execute("BEGIN; INSERT INTO t VALUES (2)").await.unwrap();
    for _ in 0..10 {
        database.run("INSERT INTO busy SELECT repeat('x', 2000) FROM generate_series(1, 10000)").await;
    }

    let started = Instant::now();
    let mut again = Reader::resumed(config, Some(offset)).await.unwrap();
    database.run("INSERT INTO t VALUES (3)").await;
    assert_eq!(ids(&again.take(1).await), [3]);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    open.batch_execute("COMMIT").await.unwrap();
    assert_eq!(ids(&again.take(1).await), [2]);
    again.close().await;
}

#[tokio::test]
async fn del_10_two_reads_of_the_same_wal_are_not_alike() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let config = database.config(&["public.t"]);
    let offset = Reader::offset_behind(&config, &database, "INSERT INTO t VALUES (1, 'a')").await;

    database.run("SELECT pg_logical_emit_message(false, 'm', 'one')").await;
    database.run("CREATE TABLE other (i int); ").await;
    let publication = database.name.clone();
    database.run(&format!("ALTER PUBLICATION \"{publication}\" ADD TABLE other")).await;
    database.run("ALTER TABLE t ADD COLUMN w int DEFAULT 7").await;
    database.run("INSERT INTO t VALUES (2, 'b', 8)").await;
    database.run("SELECT pg_logical_emit_message(false, 'm', 'two')").await;
    database.run("ALTER TABLE t DROP COLUMN v").await;
    database.run("INSERT INTO t VALUES (3, 9)").await;

    // Cut while catching up, at every record.
    let (mut offset, mut seen) = (Some(offset), Vec::new());
    while seen.len() < 4 {
        let (next, position) = read_and_die(&config, offset, 1).await;
        seen.extend(next);
        offset = position;
    }
    let kinds: Vec<&str> = seen.iter().map(Seen::op).collect();
    assert_eq!(kinds, ["m", "c", "m", "c"]);
    assert_eq!(seen[1].value["after"], serde_json::json!({"id": 2, "v": "b", "w": 8}));
    assert_eq!(seen[3].value["after"], serde_json::json!({"id": 3, "w": 9}));
}

#[tokio::test]
async fn del_12_delete_and_its_tombstone() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let config = database.config(&["public.t"]);
    let mut reader = Reader::new(config.clone());
    reader.started().await;
    database.run("INSERT INTO t VALUES (1, 'a')").await;
    reader.take(1).await;
    let before = reader.acknowledge().await;
    database.run("DELETE FROM t WHERE id = 1").await;
    // The batch limit is one record: the delete is durable, and its position is what was taken then.
    let delete = reader.take(1).await.remove(0);
    assert_eq!(delete.op(), "d");
    assert_eq!(reader.checkpoint(), Some(before));
    let offset = reader.checkpoint();
    drop(reader);

    let mut again = Reader::resumed(config, offset).await.unwrap();
    let repeated = again.take(2).await;
    assert_eq!((repeated[0].op(), repeated[1].op()), ("d", "x"));
    assert_eq!((&repeated[0].key, &repeated[1].key), (&delete.key, &delete.key));
    again.quiet(Duration::from_millis(200)).await;
    again.close().await;
}
