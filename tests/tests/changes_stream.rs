//! What the stream is made of besides rows: relation changes, subtransactions, logical messages, origins.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use crabka_testkit::needs;
use crabka_tests::{Database, Reader, Seen};
use serde_json::{Value, json};

/// A started source of the whole publication, which is for these tables.
async fn reader_of(database: &Database, publication: &str) -> Reader {
    database.run(&format!("CREATE PUBLICATION \"{}\" FOR {publication}", database.name)).await;
    let mut reader = Reader::new(database.config(&[]));
    reader.started().await;
    reader
}

fn rows(records: &[Seen]) -> Vec<Value> {
    records.iter().map(|record| record.value["after"].clone()).collect()
}

fn ids(records: &[Seen]) -> Vec<i64> {
    records.iter().map(|record| record.int("id")).collect()
}

#[tokio::test]
async fn pgc_26_relation_changes_between_transactions() {
    needs!(postgres);
    let database = Database::new("CREATE TABLE d (id int PRIMARY KEY, a text); CREATE SCHEMA s2").await;
    let mut reader = reader_of(&database, "TABLE d").await;
    for statement in [
        "INSERT INTO d VALUES (1, 'a')",
        "ALTER TABLE d ADD c int DEFAULT 7",
        "INSERT INTO d VALUES (2, 'b', 8)",
        "UPDATE d SET a = 'a1' WHERE id = 1",
        "ALTER TABLE d DROP a",
        "INSERT INTO d VALUES (3, 9)",
        "ALTER TABLE d RENAME c TO cc",
        "INSERT INTO d VALUES (4, 10)",
        "ALTER TABLE d ALTER cc TYPE text",
        "INSERT INTO d VALUES (5, 11)",
        "ALTER TABLE d RENAME TO d2",
        "INSERT INTO d2 VALUES (6, 12)",
        "ALTER TABLE d2 SET SCHEMA s2",
        "INSERT INTO s2.d2 VALUES (7, 13)",
    ] {
        database.run(statement).await;
    }
    let seen = reader.take(8).await;
    let told: Vec<Value> = seen.iter().map(|r| json!([r.topic, r.op(), r.key, r.value["after"]])).collect();
    let of =
        |table: &str, op: &str, id: i64, after: Value| json!([format!("t.{table}"), op, {"id": id}, after]);
    assert_eq!(
        told,
        [
            of("public.d", "c", 1, json!({"id": 1, "a": "a"})),
            of("public.d", "c", 2, json!({"id": 2, "a": "b", "c": 8})),
            of("public.d", "u", 1, json!({"id": 1, "a": "a1", "c": 7})),
            of("public.d", "c", 3, json!({"id": 3, "c": 9})),
            of("public.d", "c", 4, json!({"id": 4, "cc": 10})),
            of("public.d", "c", 5, json!({"id": 5, "cc": "11"})),
            of("public.d2", "c", 6, json!({"id": 6, "cc": "12"})),
            of("s2.d2", "c", 7, json!({"id": 7, "cc": "13"})),
        ]
    );
    reader.quiet(Duration::from_millis(100)).await;
    reader.close().await;
}

#[tokio::test]
async fn sch_03_pgc_28_relation_changes_in_mid_transaction() {
    needs!(postgres);
    let database = Database::new("CREATE TABLE d (id int PRIMARY KEY, a text)").await;
    let mut reader = reader_of(&database, "TABLE d").await;
    database
        .run(
            "BEGIN; INSERT INTO d VALUES (9, 'x'); ALTER TABLE d ADD z text; INSERT INTO d VALUES (10, 'y', 'z'); \
             ALTER TABLE d DROP a; INSERT INTO d VALUES (11, 'w'); ALTER TABLE d RENAME z TO \"Z\"; \
             INSERT INTO d VALUES (12, 'v'); ALTER TABLE d RENAME TO e; INSERT INTO e VALUES (13, 'u'); COMMIT",
        )
        .await;
    database.run("ALTER TABLE e REPLICA IDENTITY FULL; UPDATE e SET \"Z\" = 'q' WHERE id = 10").await;
    let seen = reader.take(6).await;
    assert_eq!(
        rows(&seen),
        [
            json!({"id": 9, "a": "x"}),
            json!({"id": 10, "a": "y", "z": "z"}),
            json!({"id": 11, "z": "w"}),
            json!({"id": 12, "Z": "v"}),
            json!({"id": 13, "Z": "u"}),
            json!({"id": 10, "Z": "q"}),
        ]
    );
    let topics: Vec<&str> = seen.iter().map(|record| record.topic.as_str()).collect();
    assert_eq!(topics, ["t.public.d", "t.public.d", "t.public.d", "t.public.d", "t.public.e", "t.public.e"]);
    assert_eq!(seen[5].value["before"], json!({"id": 10, "Z": "z"}));
    reader.close().await;
}

#[tokio::test]
async fn pgc_03_pgc_09_aborted_subtransactions_never_show() {
    needs!(postgres);
    let database = Database::new("CREATE TABLE s (id int PRIMARY KEY)").await;
    let mut reader = reader_of(&database, "TABLE s").await;
    database
        .run(
            "BEGIN; INSERT INTO s VALUES (10); SAVEPOINT a; INSERT INTO s VALUES (11); ROLLBACK TO a; \
             INSERT INTO s VALUES (12); SAVEPOINT b; INSERT INTO s VALUES (13); RELEASE b; COMMIT",
        )
        .await;
    database
        .run(
            "BEGIN; INSERT INTO s VALUES (1); SAVEPOINT a; INSERT INTO s VALUES (2); SAVEPOINT b; \
             INSERT INTO s VALUES (3); RELEASE b; INSERT INTO s VALUES (4); ROLLBACK TO a; \
             INSERT INTO s VALUES (5); COMMIT",
        )
        .await;
    // Two subtransactions in a row, past the 64 that the server keeps at hand.
    database
        .run(
            "DO $$ BEGIN FOR i IN 100..180 LOOP BEGIN INSERT INTO s VALUES (i); \
             IF i % 2 = 1 THEN RAISE EXCEPTION 'no'; END IF; EXCEPTION WHEN raise_exception THEN NULL; END; \
             END LOOP; END $$",
        )
        .await;
    database.run("BEGIN; INSERT INTO s VALUES (500); ROLLBACK").await;
    database.run("INSERT INTO s VALUES (501)").await;
    let seen = reader.take(3 + 2 + 41 + 1).await;
    let mut expected = vec![10, 12, 13, 1, 5];
    expected.extend((100..=180).step_by(2));
    expected.push(501);
    assert_eq!(ids(&seen), expected);
    // Rows of subtransactions carry the id of their transaction.
    let xids: Vec<&Value> = seen[5..46].iter().map(|record| &record.value["source"]["txId"]).collect();
    assert!(xids.iter().all(|xid| *xid == xids[0] && xid.is_number()), "{xids:?}");
    reader.close().await;
}

#[tokio::test]
async fn pgc_29_a_relation_of_an_aborted_subtransaction_is_forgotten() {
    needs!(postgres);
    let database = Database::new("CREATE TABLE tr (id int PRIMARY KEY)").await;
    let mut reader = reader_of(&database, "ALL TABLES").await;
    database
        .run(
            "BEGIN; SAVEPOINT s; CREATE TABLE trd (id int PRIMARY KEY); INSERT INTO trd VALUES (1); \
             ALTER TABLE tr ADD z int; INSERT INTO tr VALUES (1, 1); ROLLBACK TO s; \
             INSERT INTO tr VALUES (2); COMMIT",
        )
        .await;
    assert_eq!(rows(&reader.take(1).await), [json!({"id": 2})]);
    reader.close().await;
}

#[tokio::test]
async fn pgc_06_pgc_07_what_is_not_logged_does_not_come_and_what_is_made_on_the_way_does() {
    needs!(postgres);
    let database = Database::new(
        "CREATE TABLE p (id int PRIMARY KEY); CREATE UNLOGGED TABLE u (id int PRIMARY KEY); \
         CREATE MATERIALIZED VIEW m AS SELECT * FROM p; CREATE SEQUENCE q",
    )
    .await;
    let mut reader = reader_of(&database, "ALL TABLES").await;
    for statement in [
        "CREATE TEMPORARY TABLE tmp (id int); INSERT INTO tmp VALUES (1)",
        "INSERT INTO u VALUES (1)",
        "REFRESH MATERIALIZED VIEW m",
        "SELECT nextval('q')",
        "VACUUM FULL p",
        "CREATE TABLE ctas AS SELECT 1 AS x, 'y'::text AS y",
        "INSERT INTO ctas VALUES (2, 'z')",
        "SELECT * INTO sinto FROM ctas",
        "DROP TABLE ctas",
        "INSERT INTO p VALUES (1)",
    ] {
        database.run(statement).await;
    }
    let seen = reader.take(5).await;
    let told: Vec<Value> = seen.iter().map(|record| json!([record.topic, record.value["after"]])).collect();
    let row = |table: &str, x: i32, y: &str| json!([format!("t.public.{table}"), {"x": x, "y": y}]);
    assert_eq!(
        told,
        [
            row("ctas", 1, "y"),
            row("ctas", 2, "z"),
            row("sinto", 1, "y"),
            row("sinto", 2, "z"),
            json!(["t.public.p", {"id": 1}]),
        ]
    );
    reader.close().await;
}

#[tokio::test]
async fn pgc_49_logical_messages_transactional_and_not() {
    needs!(postgres);
    let database = Database::new("CREATE TABLE m (id int PRIMARY KEY)").await;
    let mut reader = reader_of(&database, "TABLE m").await;
    let mut without = database.config(&[]);
    without.slot = format!("{}_off", database.slot());
    without.message_events = false;
    let mut without = Reader::new(without);
    without.started().await;
    for statement in [
        "BEGIN; INSERT INTO m VALUES (1); SAVEPOINT s; SELECT pg_logical_emit_message(true, 'a', 'lost'); \
         SELECT pg_logical_emit_message(false, 'a', 'kept'); ROLLBACK TO s; INSERT INTO m VALUES (2); COMMIT",
        "SELECT pg_logical_emit_message(true, 'b', 'alone')",
        "BEGIN; SELECT pg_logical_emit_message(false, 'b', '\\x00ff'::bytea); ROLLBACK",
        "BEGIN; INSERT INTO m VALUES (3); SELECT pg_logical_emit_message(true, 'c', ''); \
         INSERT INTO m VALUES (4); COMMIT",
    ] {
        database.run(statement).await;
    }
    let seen = reader.take(8).await;
    let told: Vec<Value> = seen
        .iter()
        .map(|record| match record.op() {
            "m" => json!(["m", record.topic, record.key["prefix"], record.value["message"]["content"]]),
            op => json!([op, record.value["after"]["id"]]),
        })
        .collect();
    let message = |prefix: &str, content: &str| json!(["m", "t.message", prefix, content]);
    assert_eq!(
        told,
        [
            message("a", "a2VwdA=="),
            json!(["c", 1]),
            json!(["c", 2]),
            message("b", "YWxvbmU="),
            message("b", "AP8="),
            json!(["c", 3]),
            message("c", ""),
            json!(["c", 4]),
        ]
    );
    let xid = |index: usize| &seen[index].value["source"]["txId"];
    assert_eq!((xid(0), xid(4)), (&Value::Null, &Value::Null), "outside any transaction");
    assert!(xid(3).is_number());
    assert_eq!((xid(5), xid(6)), (xid(7), xid(7)), "in its place inside its transaction");
    assert_eq!(ids(&without.take(4).await), [1, 2, 3, 4]);
    reader.close().await;
    without.close().await;
}

#[tokio::test]
async fn pgc_50_replication_origin() {
    needs!(postgres);
    let database = Database::new("CREATE TABLE o (id int PRIMARY KEY)").await;
    let mut reader = reader_of(&database, "TABLE o").await;
    let node = format!("node_{}", database.name);
    for statement in [
        "INSERT INTO o VALUES (1)".to_owned(),
        format!("SELECT pg_replication_origin_create('{node}')"),
        format!("SELECT pg_replication_origin_session_setup('{node}')"),
        "BEGIN; SELECT pg_replication_origin_xact_setup('0/AABBCCDD', '2013-01-01 00:00+00'); \
         INSERT INTO o VALUES (2); INSERT INTO o VALUES (3); COMMIT"
            .to_owned(),
        "INSERT INTO o VALUES (4)".to_owned(),
        "SELECT pg_replication_origin_session_reset()".to_owned(),
        "INSERT INTO o VALUES (5)".to_owned(),
        format!("SELECT pg_replication_origin_drop('{node}')"),
    ] {
        database.run(&statement).await;
    }
    let seen = reader.take(5).await;
    assert_eq!(ids(&seen), [1, 2, 3, 4, 5]);
    let origin: Vec<&Value> = seen.iter().map(|record| &record.value["source"]["origin"]).collect();
    assert_eq!(origin, [&Value::Null, &json!(node), &json!(node), &json!(node), &Value::Null]);
    for index in [1, 2] {
        let source = &seen[index].value["source"];
        assert_eq!(source["origin_lsn"], json!(0xAABB_CCDD_u64), "{source}");
        assert_eq!(source["ts_ms"], json!(1_356_998_400_000_u64), "the commit time of the origin: {source}");
    }
    assert_eq!(seen[4].value["source"]["origin_lsn"], Value::Null);
    reader.close().await;
}

#[tokio::test]
async fn pgc_05_copy() {
    needs!(postgres);
    let database = Database::new("CREATE TABLE c (id int PRIMARY KEY, v text)").await;
    let mut reader = reader_of(&database, "TABLE c").await;
    let sink = database.sql.copy_in("COPY c FROM STDIN").await.unwrap();
    {
        use futures_util::SinkExt;
        tokio::pin!(sink);
        sink.send(bytes::Bytes::from_static(b"1\ta\n2\tb\\tb\n3\t\\N\n")).await.unwrap();
        sink.close().await.unwrap();
    }
    let seen = reader.take(3).await;
    assert_eq!(
        rows(&seen),
        [json!({"id": 1, "v": "a"}), json!({"id": 2, "v": "b\tb"}), json!({"id": 3, "v": null})]
    );
    let lsns: Vec<&Value> = seen.iter().map(|record| &record.value["source"]["lsn"]).collect();
    assert!(lsns.iter().all(|lsn| *lsn == lsns[0]), "one WAL record holds them: {lsns:?}");
    reader.close().await;
}

#[tokio::test]
async fn pgc_11_a_wide_table() {
    needs!(postgres);
    let columns: Vec<String> = (1..=1499).map(|n| format!("c{n} int")).collect();
    let database = Database::new(&format!("CREATE TABLE w ({})", columns.join(", "))).await;
    let mut reader = reader_of(&database, "TABLE w").await;
    database.run("INSERT INTO w (c1, c1499) VALUES (11, 1499)").await;
    let record = reader.take(1).await.remove(0);
    let row = record.value["after"].as_object().unwrap();
    assert_eq!((row.len(), &row["c1"], &row["c1499"]), (1499, &json!(11), &json!(1499)));
    assert_eq!(row.values().filter(|value| !value.is_null()).count(), 2);
    reader.close().await;
}
