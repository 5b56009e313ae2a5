//! What each kind of change becomes: operations, keys, replica identities, values stored out of line.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use crabka_testkit::needs;
use crabka_tests::{Database, Reader, Seen};
use serde_json::{Value, json};

/// A started source of these tables, on a publication that is there already: no table is refused for its identity.
async fn reader_of(database: &Database, tables: &[&str]) -> Reader {
    database.run(&format!("CREATE PUBLICATION \"{}\" FOR TABLE {}", database.name, tables.join(", "))).await;
    let mut config = database.config(tables);
    config.truncate_events = true;
    let mut reader = Reader::new(config);
    reader.started().await;
    reader
}

/// Runs the statements, each a transaction of its own.
async fn run_all(database: &Database, statements: &[&str]) {
    for statement in statements {
        database.run(statement).await;
    }
}

/// The records that come must be these, and no more.
async fn expect(reader: &mut Reader, expected: &[Value]) -> Vec<Seen> {
    let seen = reader.take(expected.len()).await;
    for (index, (record, expected)) in seen.iter().zip(expected).enumerate() {
        assert_eq!(&record.told(), expected, "record {index}");
    }
    reader.quiet(Duration::from_millis(100)).await;
    seen
}

#[tokio::test]
async fn sch_13_pgc_12_operations_and_key_changes_under_the_default_identity() {
    needs!(postgres);
    let database = Database::new("CREATE TABLE rd (id int PRIMARY KEY, a text, b text)").await;
    let mut reader = reader_of(&database, &["public.rd"]).await;
    let statements = [
        "INSERT INTO rd VALUES (1, 'a', 'b')",
        "UPDATE rd SET a = 'a2'",
        "UPDATE rd SET id = 2",
        "UPDATE rd SET id = 3, b = NULL",
        "UPDATE rd SET id = id",
        "DELETE FROM rd",
    ];
    run_all(&database, &statements).await;
    let t = "public.rd";
    let seen = expect(
        &mut reader,
        &[
            json!([t, "c", {"id": 1}, null, {"id": 1, "a": "a", "b": "b"}]),
            json!([t, "u", {"id": 1}, null, {"id": 1, "a": "a2", "b": "b"}]),
            json!([t, "d", {"id": 1}, {"id": 1, "a": null, "b": null}, null]),
            json!([t, "x", {"id": 1}, null, null]),
            json!([t, "c", {"id": 2}, null, {"id": 2, "a": "a2", "b": "b"}]),
            json!([t, "d", {"id": 2}, {"id": 2, "a": null, "b": null}, null]),
            json!([t, "x", {"id": 2}, null, null]),
            json!([t, "c", {"id": 3}, null, {"id": 3, "a": "a2", "b": null}]),
            json!([t, "u", {"id": 3}, null, {"id": 3, "a": "a2", "b": null}]),
            json!([t, "d", {"id": 3}, {"id": 3, "a": null, "b": null}, null]),
            json!([t, "x", {"id": 3}, null, null]),
        ],
    )
    .await;
    let header = |index: usize, name: &str| {
        seen[index].header(name).map(|text| serde_json::from_str::<Value>(text).unwrap())
    };
    assert_eq!(header(2, "__debezium.newkey"), Some(json!({"id": 2})));
    assert_eq!(header(4, "__debezium.oldkey"), Some(json!({"id": 1})));
    assert_eq!(header(5, "__debezium.newkey"), Some(json!({"id": 3})));
    assert_eq!(header(7, "__debezium.oldkey"), Some(json!({"id": 2})));
    for index in [0, 1, 8, 9, 10] {
        assert_eq!((header(index, "__debezium.newkey"), header(index, "__debezium.oldkey")), (None, None));
    }
    assert_eq!(seen[2].value["source"], seen[4].value["source"], "one change, one source block");
    assert_eq!(seen[0].value["source"]["db"], json!(database.name));
    reader.close().await;
}

#[tokio::test]
async fn sch_14_full_identity_with_a_key_tells_the_whole_old_row() {
    needs!(postgres);
    let database =
        Database::new("CREATE TABLE f (id int PRIMARY KEY, a text); ALTER TABLE f REPLICA IDENTITY FULL")
            .await;
    let mut reader = reader_of(&database, &["public.f"]).await;
    let statements =
        ["INSERT INTO f VALUES (1, NULL)", "UPDATE f SET a = 'x'", "UPDATE f SET id = 2", "DELETE FROM f"];
    run_all(&database, &statements).await;
    let t = "public.f";
    let row = |id: i32, a: Value| json!({"id": id, "a": a});
    let key = |id: i32| json!({"id": id});
    expect(
        &mut reader,
        &[
            json!([t, "c", key(1), null, row(1, Value::Null)]),
            json!([t, "u", key(1), row(1, Value::Null), row(1, "x".into())]),
            json!([t, "d", key(1), row(1, "x".into()), null]),
            json!([t, "x", key(1), null, null]),
            json!([t, "c", key(2), null, row(2, "x".into())]),
            json!([t, "d", key(2), row(2, "x".into()), null]),
            json!([t, "x", key(2), null, null]),
        ],
    )
    .await;
    reader.close().await;
}

#[tokio::test]
async fn sch_17_pgc_13_a_table_without_a_key_has_null_keys_and_no_tombstones() {
    needs!(postgres);
    let database =
        Database::new("CREATE TABLE n (id int, a text); ALTER TABLE n REPLICA IDENTITY FULL").await;
    let mut reader = reader_of(&database, &["public.n"]).await;
    let statements =
        ["INSERT INTO n VALUES (1, 'a')", "UPDATE n SET id = 2", "UPDATE n SET a = a", "DELETE FROM n"];
    run_all(&database, &statements).await;
    let row = |id: i32| json!({"id": id, "a": "a"});
    let t = "public.n";
    let seen = expect(
        &mut reader,
        &[
            json!([t, "c", null, null, row(1)]),
            json!([t, "u", null, row(1), row(2)]),
            json!([t, "u", null, row(2), row(2)]),
            json!([t, "d", null, row(2), null]),
        ],
    )
    .await;
    assert!(seen.iter().all(|record| record.key_text.is_empty()), "no key at all, not the word null");
    reader.close().await;
}

#[tokio::test]
async fn pgc_14_identity_by_an_index() {
    needs!(postgres);
    let database = Database::new(
        "CREATE TABLE i (a int, k text NOT NULL, b text); CREATE UNIQUE INDEX ik ON i (k); \
         ALTER TABLE i REPLICA IDENTITY USING INDEX ik",
    )
    .await;
    let mut reader = reader_of(&database, &["public.i"]).await;
    let statements = [
        "INSERT INTO i VALUES (1, 'k', 'b')",
        "UPDATE i SET b = 'b2'",
        "UPDATE i SET k = 'k2'",
        "DELETE FROM i",
    ];
    run_all(&database, &statements).await;
    let t = "public.i";
    expect(
        &mut reader,
        &[
            json!([t, "c", {"k": "k"}, null, {"a": 1, "k": "k", "b": "b"}]),
            json!([t, "u", {"k": "k"}, null, {"a": 1, "k": "k", "b": "b2"}]),
            json!([t, "d", {"k": "k"}, {"a": null, "k": "k", "b": null}, null]),
            json!([t, "x", {"k": "k"}, null, null]),
            json!([t, "c", {"k": "k2"}, null, {"a": 1, "k": "k2", "b": "b2"}]),
            json!([t, "d", {"k": "k2"}, {"a": null, "k": "k2", "b": null}, null]),
            json!([t, "x", {"k": "k2"}, null, null]),
        ],
    )
    .await;
    reader.close().await;
}

#[tokio::test]
async fn pgc_15_identity_nothing_lets_inserts_through() {
    needs!(postgres);
    let database =
        Database::new("CREATE TABLE o (id int PRIMARY KEY, v text); ALTER TABLE o REPLICA IDENTITY NOTHING")
            .await;
    let mut reader = reader_of(&database, &["public.o"]).await;
    database.run("INSERT INTO o VALUES (1, 'a')").await;
    let refused = database.sql.batch_execute("UPDATE o SET v = 'b'").await.unwrap_err();
    assert_eq!(
        refused.code().map(|code| code.code()),
        Some("55000"),
        "the server keeps the application from it"
    );
    database.run("INSERT INTO o VALUES (2, 'c')").await;
    let t = "public.o";
    expect(
        &mut reader,
        &[
            json!([t, "c", {"id": 1}, null, {"id": 1, "v": "a"}]),
            json!([t, "c", {"id": 2}, null, {"id": 2, "v": "c"}]),
        ],
    )
    .await;
    reader.close().await;
}

#[tokio::test]
async fn sch_15_a_change_of_the_identity_alone_does_not_change_the_key() {
    needs!(postgres);
    let database = Database::new(
        "CREATE TABLE r (id int PRIMARY KEY, k int NOT NULL, v text); CREATE UNIQUE INDEX rk ON r (k)",
    )
    .await;
    let mut reader = reader_of(&database, &["public.r"]).await;
    let statements = [
        "INSERT INTO r VALUES (1, 1, 'a')",
        "ALTER TABLE r REPLICA IDENTITY FULL; UPDATE r SET v = 'b'",
        "ALTER TABLE r REPLICA IDENTITY USING INDEX rk; UPDATE r SET v = 'c'",
        "UPDATE r SET k = 2",
        "ALTER TABLE r REPLICA IDENTITY DEFAULT; UPDATE r SET k = 3",
    ];
    run_all(&database, &statements).await;
    let seen = reader.take(5).await;
    let ops: Vec<&str> = seen.iter().map(Seen::op).collect();
    assert_eq!(ops, ["c", "u", "u", "u", "u"]);
    assert!(seen.iter().all(|record| record.key == json!({"id": 1})), "{seen:?}");
    assert_eq!(seen[1].value["before"], json!({"id": 1, "k": 1, "v": "a"}));
    assert_eq!(seen[4].value["after"], json!({"id": 1, "k": 3, "v": "c"}));
    reader.close().await;
}

#[tokio::test]
async fn sch_16_pgc_18_a_composite_key_keeps_its_own_order() {
    needs!(postgres);
    let database = Database::new("CREATE TABLE k (a int, b int, v text, PRIMARY KEY (b, a))").await;
    let mut reader = reader_of(&database, &["public.k"]).await;
    let statements = [
        "INSERT INTO k VALUES (1, 1, 'x')",
        "UPDATE k SET v = 'y'",
        "UPDATE k SET a = 2",
        "UPDATE k SET b = b, a = a",
        "UPDATE k SET a = a + 10, b = b + 10, v = 'z'",
        "DELETE FROM k",
    ];
    run_all(&database, &statements).await;
    let told: Vec<(String, String)> = reader
        .take(11)
        .await
        .iter()
        .map(|record| (record.op().to_owned(), record.key_text.clone()))
        .collect();
    let expected = [
        ("c", r#"{"b":1,"a":1}"#),
        ("u", r#"{"b":1,"a":1}"#),
        ("d", r#"{"b":1,"a":1}"#),
        ("x", r#"{"b":1,"a":1}"#),
        ("c", r#"{"b":1,"a":2}"#),
        ("u", r#"{"b":1,"a":2}"#),
        ("d", r#"{"b":1,"a":2}"#),
        ("x", r#"{"b":1,"a":2}"#),
        ("c", r#"{"b":11,"a":12}"#),
        ("d", r#"{"b":11,"a":12}"#),
        ("x", r#"{"b":11,"a":12}"#),
    ];
    assert_eq!(told, expected.map(|(op, key)| (op.to_owned(), key.to_owned())));
    reader.close().await;
}

#[tokio::test]
async fn sch_24_pgc_34_truncate() {
    needs!(postgres);
    let database = Database::new(
        "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a); \
         CREATE TABLE c (id int PRIMARY KEY); CREATE TABLE other (id int PRIMARY KEY)",
    )
    .await;
    let mut reader = reader_of(&database, &["public.a", "public.b", "public.c"]).await;
    let mut without = database.config(&["public.c"]);
    without.slot = format!("{}_off", database.slot());
    let mut without = Reader::new(without);
    without.started().await;
    let statements = [
        "TRUNCATE a CASCADE",
        "TRUNCATE c, other RESTART IDENTITY",
        "BEGIN; INSERT INTO c VALUES (1); TRUNCATE c; INSERT INTO c VALUES (2); COMMIT",
        "BEGIN; TRUNCATE c; ROLLBACK",
        "INSERT INTO c VALUES (3)",
    ];
    run_all(&database, &statements).await;
    let row = |id: i32| json!(["public.c", "c", {"id": id}, null, {"id": id}]);
    let truncated = |table: &str| json!([format!("public.{table}"), "t", null, null, null]);
    let expected = [truncated("a"), truncated("b"), truncated("c"), row(1), truncated("c"), row(2), row(3)];
    expect(&mut reader, &expected).await;
    // Off by default.
    expect(&mut without, &[row(1), row(2), row(3)]).await;
    reader.close().await;
    without.close().await;
}

const TOAST: &str = "CREATE TABLE toast (id int PRIMARY KEY, big text, v int); \
    ALTER TABLE toast ALTER big SET STORAGE EXTERNAL";
const PLACEHOLDER: &str = "__debezium_unavailable_value";

#[tokio::test]
async fn pgc_21_an_unchanged_value_out_of_line_is_unavailable_and_says_so() {
    needs!(postgres);
    let database = Database::new(TOAST).await;
    let mut reader = reader_of(&database, &["public.toast"]).await;
    let statements = [
        "INSERT INTO toast VALUES (1, repeat('x', 3000), 1)",
        "UPDATE toast SET v = 2",
        "UPDATE toast SET big = repeat('y', 3000)",
        "UPDATE toast SET id = 5",
        "DELETE FROM toast",
    ];
    run_all(&database, &statements).await;
    let (t, x, y) = ("public.toast", "x".repeat(3000), "y".repeat(3000));
    let seen = expect(
        &mut reader,
        &[
            json!([t, "c", {"id": 1}, null, {"id": 1, "big": x, "v": 1}]),
            json!([t, "u", {"id": 1}, null, {"id": 1, "big": PLACEHOLDER, "v": 2}]),
            json!([t, "u", {"id": 1}, null, {"id": 1, "big": y, "v": 2}]),
            json!([t, "d", {"id": 1}, {"id": 1, "big": null, "v": null}, null]),
            json!([t, "x", {"id": 1}, null, null]),
            json!([t, "c", {"id": 5}, null, {"id": 5, "big": PLACEHOLDER, "v": 2}]),
            json!([t, "d", {"id": 5}, {"id": 5, "big": null, "v": null}, null]),
            json!([t, "x", {"id": 5}, null, null]),
        ],
    )
    .await;
    let unavailable: Vec<Option<&str>> = seen.iter().map(|record| record.header("__unavailable")).collect();
    let big = Some(r#"["big"]"#);
    assert_eq!(unavailable, [None, big, None, None, None, big, None, None]);
    reader.close().await;
}

#[tokio::test]
async fn pgc_22_under_full_the_old_row_has_the_value() {
    needs!(postgres);
    let database = Database::new(&format!("{TOAST}; ALTER TABLE toast REPLICA IDENTITY FULL")).await;
    let mut reader = reader_of(&database, &["public.toast"]).await;
    let statements = [
        "INSERT INTO toast VALUES (1, repeat('x', 3000), 1)",
        "UPDATE toast SET v = 2",
        "UPDATE toast SET id = 2",
        "DELETE FROM toast",
    ];
    run_all(&database, &statements).await;
    let (t, x) = ("public.toast", "x".repeat(3000));
    let row = |id: i32, v: i32| json!({"id": id, "big": x, "v": v});
    let seen = expect(
        &mut reader,
        &[
            json!([t, "c", {"id": 1}, null, row(1, 1)]),
            json!([t, "u", {"id": 1}, row(1, 1), row(1, 2)]),
            json!([t, "d", {"id": 1}, row(1, 2), null]),
            json!([t, "x", {"id": 1}, null, null]),
            json!([t, "c", {"id": 2}, null, row(2, 2)]),
            json!([t, "d", {"id": 2}, row(2, 2), null]),
            json!([t, "x", {"id": 2}, null, null]),
        ],
    )
    .await;
    assert!(seen.iter().all(|record| record.header("__unavailable").is_none()));
    reader.close().await;
}

#[tokio::test]
async fn pgc_23_a_key_out_of_line_is_not_a_key_change() {
    needs!(postgres);
    let database = Database::new(
        "CREATE TABLE lk (k text NOT NULL, n int); ALTER TABLE lk ALTER k SET STORAGE EXTERNAL; \
         CREATE UNIQUE INDEX lkk ON lk (k); ALTER TABLE lk REPLICA IDENTITY USING INDEX lkk",
    )
    .await;
    let mut reader = reader_of(&database, &["public.lk"]).await;
    let statements = [
        "INSERT INTO lk VALUES (repeat('k', 2500), 1)",
        "UPDATE lk SET n = 2",
        "UPDATE lk SET k = repeat('l', 2500)",
        "DELETE FROM lk",
    ];
    run_all(&database, &statements).await;
    let (t, k, l) = ("public.lk", "k".repeat(2500), "l".repeat(2500));
    let seen = expect(
        &mut reader,
        &[
            json!([t, "c", {"k": k}, null, {"k": k, "n": 1}]),
            json!([t, "u", {"k": k}, {"k": k, "n": null}, {"k": k, "n": 2}]),
            json!([t, "d", {"k": k}, {"k": k, "n": null}, null]),
            json!([t, "x", {"k": k}, null, null]),
            json!([t, "c", {"k": l}, null, {"k": l, "n": 2}]),
            json!([t, "d", {"k": l}, {"k": l, "n": null}, null]),
            json!([t, "x", {"k": l}, null, null]),
        ],
    )
    .await;
    assert!(seen.iter().all(|record| record.header("__unavailable").is_none()));
    reader.close().await;
}
