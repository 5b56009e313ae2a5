//! Binary and text values: the same records from both, and a stream that goes over to text where it must.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use crabka_connect::ErrorClass;
use crabka_connect_postgres::{BinaryMode, PostgresSourceConfig, SlotMode};
use crabka_testkit::needs;
use crabka_tests::{Database, Reader, Seen};
use serde_json::{Value, json};

async fn started(database: &Database, mode: BinaryMode, tables: &[&str]) -> Reader {
    let mut config: PostgresSourceConfig = database.config(tables);
    config.slot = format!("{}_{}", database.name, format!("{mode:?}").to_lowercase());
    config.binary = mode;
    config.truncate_events = true;
    let mut reader = Reader::new(config);
    reader.started().await;
    reader
}

/// All of a record but the clock.
fn comparable(record: &Seen) -> Value {
    let mut value = record.value.clone();
    if let Some(members) = value.as_object_mut() {
        members.retain(|name, _| !name.starts_with("ts_"));
    }
    let headers: Vec<_> = record.headers.iter().map(|(name, text)| json!([name, text])).collect();
    json!([record.topic, record.key_text, value, headers])
}

fn ids(records: &[Seen]) -> Vec<i64> {
    records.iter().map(|record| record.int("id")).collect()
}

const TYPES: &str = "CREATE TYPE mood AS ENUM ('sad', 'so so'); \
    CREATE DOMAIN pct AS numeric(5,2) CHECK (value >= 0); \
    CREATE TABLE t (id int PRIMARY KEY, s smallint, b bigint, r real, d double precision, n numeric, \
        n52 numeric(5,2), ok boolean, c char(6), v varchar(20), x text, y bytea, da date, ti time, tz timetz(2), \
        ts timestamp(3), tstz timestamptz, i interval, u uuid, j json, jb jsonb, ip inet, net cidr, mac macaddr, \
        bits bit(5), vb varbit, m money, p point, bx box, ir int4range, nr tstzrange, m_ood mood, dom pct, \
        ai int[], at text[], an numeric[], am mood[], o oid, nm name, tv tsvector, lsn pg_lsn, z int[][])";

const ROW: &str = "(1, -3, 9007199254740993, 3.3, 1e-300, 12345678901234567890.0123456789, 3.30, true, 'ab', 'vé', \
    E'tab\\t\"q\"', '\\x00ff10', '2024-02-29', '13:51:30.123456', '13:51:30.12+02', '2016-11-04 13:51:30.123456', \
    '2020-04-01 13:51:02+02', '1 year 2 mons -3 days 04:05:06.789', 'b68a35a7-17ad-35b3-af2a-ae46edb4545a', \
    '{\"a\": 1, \"a\": 2}', '{\"b\": [1, 2.50]}', '192.168.2.1/24', '192.168.2.0/24', '08:00:2b:01:02:03', \
    B'10110', B'101', '-$1,234.11', '(1.5,-2)', '((1,1),(0,0))', '[1,5)', \
    '[2020-01-01 00:00+00,infinity)', 'so so', 99.5, '{1,NULL,3}', '{\"a b\",NULL,\"\"}', '{1.10,NaN}', \
    '{sad}', 4294967295, 'nm', 'a:1 b', '16/B374D848', '{{1,2},{3,4}}')";

#[tokio::test]
async fn binary_and_text_give_the_same_records() {
    needs!(postgres);
    let database = Database::new(TYPES).await;
    let mut text = started(&database, BinaryMode::Text, &["public.t"]).await;
    let mut binary = started(&database, BinaryMode::Binary, &["public.t"]).await;
    for statement in [
        &*format!("INSERT INTO t VALUES {ROW}"),
        "INSERT INTO t (id) VALUES (2)",
        "INSERT INTO t (id, r, d, n, da, ts, tstz) VALUES \
            (3, 'NaN', '-Infinity', 'NaN', 'infinity', '-infinity', 'infinity')",
        "UPDATE t SET id = 10 WHERE id = 1",
        "ALTER TABLE t REPLICA IDENTITY FULL; UPDATE t SET x = NULL, s = 5 WHERE id = 10",
        "DELETE FROM t WHERE id = 10",
        "ALTER TABLE t ALTER x SET STORAGE EXTERNAL, REPLICA IDENTITY DEFAULT",
        "INSERT INTO t (id, x) VALUES (4, repeat('x', 5000))",
        "UPDATE t SET s = 1 WHERE id = 4",
        "TRUNCATE t",
    ] {
        database.run(statement).await;
    }
    let (text_seen, binary_seen) = (text.take(12).await, binary.take(12).await);
    for (index, (text, binary)) in text_seen.iter().zip(&binary_seen).enumerate() {
        assert_eq!(comparable(text), comparable(binary), "record {index}");
    }
    let ops: Vec<&str> = binary_seen.iter().map(Seen::op).collect();
    assert_eq!(ops, ["c", "c", "c", "d", "x", "c", "u", "d", "x", "c", "u", "t"]);
    assert_eq!(binary_seen[0].column("b"), &json!(9_007_199_254_740_993_i64));
    text.close().await;
    binary.close().await;
}

/// What the connections of the source have asked of the slot's walsender: the last START_REPLICATION.
async fn is_binary(database: &Database) -> bool {
    let query = "SELECT query FROM pg_stat_activity a JOIN pg_replication_slots s ON s.active_pid = a.pid \
        WHERE s.slot_name = $1";
    let slot = format!("{}_binary", database.name);
    let row = database.sql.query_one(query, &[&slot]).await.unwrap();
    let query: String = row.get(0);
    assert!(query.contains("START_REPLICATION"), "{query}");
    query.contains("\"binary\" 'true'")
}

#[tokio::test]
async fn a_column_without_a_known_binary_form_switches_to_text_without_loss() {
    needs!(postgres);
    let database = Database::new(
        "CREATE TABLE t (id int PRIMARY KEY, v bytea); CREATE TYPE pair AS (a int, b text); \
         CREATE TABLE late (id int PRIMARY KEY, p pair)",
    )
    .await;
    let mut reader = started(&database, BinaryMode::Binary, &["public.t", "public.late"]).await;
    assert!(is_binary(&database).await, "binary to begin with");
    database
        .run(
            "BEGIN; INSERT INTO t SELECT g, '\\x01' FROM generate_series(1, 3000) g; \
             ALTER TABLE t ADD p pair; INSERT INTO t SELECT g, '\\x02', ROW(g, 'x y')::pair FROM generate_series(3001, 5000) g; \
             INSERT INTO late VALUES (5001, ROW(1, NULL)::pair); INSERT INTO t VALUES (5002, NULL, NULL); COMMIT",
        )
        .await;
    database.run("INSERT INTO t VALUES (5003, '\\xff', ROW(7, 'last')::pair)").await;
    let seen = reader.take(5003).await;
    assert_eq!(ids(&seen), (1..=5003).collect::<Vec<_>>());
    assert_eq!(seen[0].value["after"], json!({"id": 1, "v": "AQ=="}));
    assert_eq!(seen[3000].value["after"], json!({"id": 3001, "v": "Ag==", "p": "(3001,\"x y\")"}));
    assert_eq!(seen[5000].value["after"], json!({"id": 5001, "p": "(1,)"}));
    assert_eq!(seen[5002].value["after"], json!({"id": 5003, "v": "/w==", "p": "(7,last)"}));
    assert!(!is_binary(&database).await, "text from then on");
    reader.quiet(Duration::from_millis(100)).await;
    reader.close().await;
}

#[tokio::test]
async fn a_value_that_the_server_cannot_send_in_binary_switches_to_text_without_loss() {
    needs!(postgres);
    // An array of a type without a binary form: the server fails where it would have to send it, in a table that is
    // not even captured.
    let database = Database::new(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int PRIMARY KEY, acl aclitem[])",
    )
    .await;
    database.run(&format!("CREATE PUBLICATION \"{}\" FOR ALL TABLES", database.name)).await;
    let mut reader = started(&database, BinaryMode::Binary, &["public.t"]).await;
    assert!(is_binary(&database).await, "binary to begin with");
    database.run("INSERT INTO t VALUES (1)").await;
    database
        .run(
            "BEGIN; INSERT INTO t VALUES (2); INSERT INTO other VALUES (1, '{postgres=r/postgres}'); \
             INSERT INTO t VALUES (3); COMMIT",
        )
        .await;
    database.run("INSERT INTO t VALUES (4)").await;
    assert_eq!(ids(&reader.take(4).await), [1, 2, 3, 4]);
    assert!(!is_binary(&database).await, "text from then on");
    reader.quiet(Duration::from_millis(100)).await;
    reader.close().await;
}

#[tokio::test]
async fn a_temporary_slot_cannot_go_over_to_text() {
    needs!(postgres);
    let database =
        Database::new("CREATE TYPE pair AS (a int, b text); CREATE TABLE t (id int PRIMARY KEY, p pair)")
            .await;
    database.run(&format!("CREATE PUBLICATION \"{}\" FOR TABLE t", database.name)).await;
    let mut config: PostgresSourceConfig = database.config(&["public.t"]);
    config.slot_mode = SlotMode::Temporary;
    config.binary = BinaryMode::Binary;
    let mut reader = Reader::new(config);
    reader.started().await;
    database.run("INSERT INTO t VALUES (1, ROW(1, 'x')::pair)").await;
    let error = loop {
        match reader.poll().await {
            Ok(record) => assert!(record.as_ref().is_none_or(|record| record.op() == "h"), "{record:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
    assert!(error.fix().is_some_and(|fix| fix.contains("source.binary")), "{error}");
    reader.close().await;
}
