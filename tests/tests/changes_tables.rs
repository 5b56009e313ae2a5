//! Which tables come, and under which names: partitions, filters, odd names, topics, publications.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use crabka_connect::{ErrorClass, Source};
use crabka_connect_postgres::PostgresSourceConfig;
use crabka_testkit::{PgServer, needs, pg_available_majors};
use crabka_tests::{Database, Reader, Seen};
use serde_json::{Value, json};

async fn started(config: PostgresSourceConfig) -> Reader {
    let mut reader = Reader::new(config);
    reader.started().await;
    reader
}

fn told(records: &[Seen]) -> Vec<Value> {
    records.iter().map(Seen::told).collect()
}

const PARTITIONED: &str = "CREATE TABLE m (id int, region text, v int, PRIMARY KEY (id, region)) \
        PARTITION BY LIST (region); \
    CREATE TABLE m_eu PARTITION OF m FOR VALUES IN ('de', 'fr'); \
    CREATE TABLE m_us PARTITION OF m FOR VALUES IN ('us') PARTITION BY RANGE (id); \
    CREATE TABLE m_us1 (v int, region text NOT NULL, id int NOT NULL, PRIMARY KEY (id, region)); \
    ALTER TABLE m_us ATTACH PARTITION m_us1 FOR VALUES FROM (0) TO (100); \
    CREATE TABLE m_us2 PARTITION OF m_us FOR VALUES FROM (100) TO (200)";

const WRITES: [&str; 7] = [
    "INSERT INTO m VALUES (1, 'de', 0), (2, 'us', 0), (150, 'us', 0)",
    "UPDATE m SET v = 1 WHERE id = 1",
    "UPDATE m SET id = 120 WHERE id = 2",
    "UPDATE m SET region = 'fr' WHERE id = 1",
    "DELETE FROM m WHERE id = 150",
    "TRUNCATE m_us",
    "TRUNCATE m",
];

/// What they become, each record under the name that `name` gives the leaf, without the truncates.
fn partition_records(name: fn(&'static str) -> &'static str) -> Vec<Value> {
    let row = |id: i32, region: &str, v: Option<i32>| json!({"id": id, "region": region, "v": v});
    let key = |id: i32, region: &str| json!({"id": id, "region": region});
    let of = |leaf: &'static str, op: &str, key: Value, before: Value, after: Value| {
        json!([format!("public.{}", name(leaf)), op, key, before, after])
    };
    let none = || Value::Null;
    vec![
        of("m_eu", "c", key(1, "de"), none(), row(1, "de", Some(0))),
        of("m_us1", "c", key(2, "us"), none(), row(2, "us", Some(0))),
        of("m_us2", "c", key(150, "us"), none(), row(150, "us", Some(0))),
        of("m_eu", "u", key(1, "de"), none(), row(1, "de", Some(1))),
        of("m_us1", "d", key(2, "us"), row(2, "us", None), none()),
        of("m_us1", "x", key(2, "us"), none(), none()),
        of("m_us2", "c", key(120, "us"), none(), row(120, "us", Some(0))),
        of("m_eu", "d", key(1, "de"), row(1, "de", None), none()),
        of("m_eu", "x", key(1, "de"), none(), none()),
        of("m_eu", "c", key(1, "fr"), none(), row(1, "fr", Some(1))),
        of("m_us2", "d", key(150, "us"), row(150, "us", None), none()),
        of("m_us2", "x", key(150, "us"), none(), none()),
    ]
}

async fn partitions(via_root: bool, expected: Vec<Value>) {
    let database = Database::new(PARTITIONED).await;
    let mut config = database.config(&["public.m"]);
    config.publish_via_partition_root = via_root;
    config.truncate_events = true;
    let mut reader = started(config).await;
    for statement in WRITES {
        database.run(statement).await;
    }
    assert_eq!(told(&reader.take(expected.len()).await), expected);
    // Each partition that joins is captured with its root.
    database
        .run("CREATE TABLE m_as PARTITION OF m FOR VALUES IN ('jp'); INSERT INTO m VALUES (9, 'jp', 9)")
        .await;
    let topic = if via_root { "t.public.m" } else { "t.public.m_as" };
    assert_eq!(reader.take(1).await[0].topic, topic);
    reader.quiet(Duration::from_millis(100)).await;
    reader.close().await;
}

#[tokio::test]
async fn sch_22_pgc_35_a_listed_root_captures_its_leaves() {
    needs!(postgres);
    let truncated = |leaf: &str| json!([format!("public.{leaf}"), "t", null, null, null]);
    let mut expected = partition_records(|leaf| leaf);
    for leaf in ["m_us1", "m_us2", "m_eu", "m_us1", "m_us2"] {
        expected.push(truncated(leaf));
    }
    partitions(false, expected).await;
}

#[tokio::test]
async fn sch_22_pgc_36_via_the_root_all_come_under_its_name() {
    needs!(postgres);
    let mut expected = partition_records(|_| "m");
    // A partition truncated by itself is not sent by the server.
    expected.push(json!(["public.m", "t", null, null, null]));
    partitions(true, expected).await;
}

#[tokio::test]
async fn sch_09_a_filter_on_a_wider_publication() {
    needs!(postgres);
    let database = Database::new(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE other (id int PRIMARY KEY, b text); \
         CREATE UNLOGGED TABLE u (id int PRIMARY KEY)",
    )
    .await;
    database.run(&format!("CREATE PUBLICATION \"{}\" FOR ALL TABLES", database.name)).await;
    let mut config = database.config(&["public.t"]);
    config.heartbeat_interval = Duration::from_millis(100);
    let mut reader = started(config.clone()).await;
    for statement in [
        "INSERT INTO other VALUES (1, 'x')",
        "BEGIN; INSERT INTO other VALUES (2, 'y'); INSERT INTO t VALUES (1); UPDATE other SET b = 'z'; \
         INSERT INTO t VALUES (2); DELETE FROM other; COMMIT",
        "TRUNCATE other",
        "CREATE TABLE late (id int PRIMARY KEY); INSERT INTO late VALUES (1)",
        "INSERT INTO t VALUES (3)",
    ] {
        database.run(statement).await;
    }
    let ids: Vec<i64> = reader.take(3).await.iter().map(|record| record.int("id")).collect();
    assert_eq!(ids, [1, 2, 3]);
    // What is left out does not hold WAL.
    database.run("INSERT INTO other SELECT g, 'x' FROM generate_series(10, 2000) g").await;
    let end = database.wal_end().await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while database.confirmed().await < end {
        reader.poll_and_acknowledge().await.unwrap();
        assert!(tokio::time::Instant::now() < deadline, "the slot stays behind {end}");
    }
    reader.close().await;
}

#[tokio::test]
async fn sch_09_without_a_list_the_publication_decides() {
    needs!(postgres);
    let database = Database::new(
        "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); \
         CREATE UNLOGGED TABLE u (id int PRIMARY KEY)",
    )
    .await;
    database.run(&format!("CREATE PUBLICATION \"{}\" FOR TABLE a", database.name)).await;
    let mut reader = started(database.config(&[])).await;
    for statement in [
        "INSERT INTO b VALUES (1)",
        "INSERT INTO a VALUES (1)",
        &format!("ALTER PUBLICATION \"{}\" ADD TABLE b", database.name),
        "INSERT INTO b VALUES (2)",
        &format!("ALTER PUBLICATION \"{}\" DROP TABLE a", database.name),
        "INSERT INTO a VALUES (2)",
        "INSERT INTO b VALUES (3)",
    ] {
        database.run(statement).await;
    }
    let seen = reader.take(3).await;
    let rows: Vec<(&str, i64)> = seen.iter().map(|r| (r.topic.as_str(), r.int("id"))).collect();
    assert_eq!(rows, [("t.public.a", 1), ("t.public.b", 2), ("t.public.b", 3)]);
    reader.quiet(Duration::from_millis(100)).await;
    reader.close().await;
}

#[tokio::test]
async fn sch_07_names_that_need_quoting_everywhere() {
    needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let database_name = format!("We\"ird.Näme'{}", std::process::id());
    let quoted = database_name.replace('"', "\"\"");
    let admin = server.connect("postgres").await.unwrap();
    admin.batch_execute(&format!("CREATE DATABASE \"{quoted}\" TEMPLATE template0")).await.unwrap();
    let sql = server.connect(&database_name).await.unwrap();
    sql.batch_execute(
        r#"CREATE SCHEMA "We""ird"; CREATE TYPE "We""ird"."Mo'od" AS ENUM ('so so', '"good"');
           CREATE TABLE "We""ird"."Näme" ("I""d" int, "back\slash" text, " sel ect" "We""ird"."Mo'od",
               PRIMARY KEY ("I""d"));
           ALTER TABLE "We""ird"."Näme" REPLICA IDENTITY FULL"#,
    )
    .await
    .unwrap();
    let slot = format!("names_{}", std::process::id());
    for publication in [r#"We"ird.Näme"#, "'quoted'", "1#2/3, x", " lead", "UPPER"] {
        let mut config = PostgresSourceConfig::new("t", server.url(&database_name).parse().unwrap()).unwrap();
        config.slot.clone_from(&slot);
        config.publication = publication.to_owned();
        config.tables = vec![r#""We""ird"."Näme""#.parse().unwrap()];
        let mut reader = started(config).await;
        sql.batch_execute(
            r#"INSERT INTO "We""ird"."Näme" VALUES (1, 'a\b', 'so so');
               UPDATE "We""ird"."Näme" SET " sel ect" = '"good"'"#,
        )
        .await
        .unwrap();
        sql.batch_execute(r#"DELETE FROM "We""ird"."Näme""#).await.unwrap();
        let seen = reader.take(4).await;
        let row = |mood: &str| json!({"I\"d": 1, "back\\slash": "a\\b", " sel ect": mood});
        let (key, topic) = (json!({"I\"d": 1}), "We_ird.N_me");
        assert_eq!(
            told(&seen),
            [
                json!([topic, "c", key, null, row("so so")]),
                json!([topic, "u", key, row("so so"), row("\"good\"")]),
                json!([topic, "d", key, row("\"good\""), null]),
                json!([topic, "x", key, null, null]),
            ],
            "publication {publication}"
        );
        let source = &seen[0].value["source"];
        assert_eq!(
            (&source["schema"], &source["table"], &source["db"]),
            (&json!("We\"ird"), &json!("Näme"), &json!(database_name))
        );
        reader.close().await;
        sql.batch_execute(&format!("SELECT pg_drop_replication_slot('{slot}')")).await.unwrap();
    }
}

#[tokio::test]
async fn kaf_08_tables_that_share_a_topic() {
    needs!(postgres);
    let setup = r#"CREATE TABLE "a b" (id int PRIMARY KEY); CREATE TABLE a_b (id int PRIMARY KEY)"#;
    let database = Database::new(setup).await;
    let refused = |error: &crabka_connect::ConnectError| {
        assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
        for word in [r#"public."a b""#, "public.a_b", "t.public.a_b"] {
            assert!(error.message().contains(word), "no {word}: {error}");
        }
        assert!(error.fix().is_some());
    };
    let mut at_start = Reader::new(database.config(&[r#"public."a b""#, "public.a_b"]));
    refused(&at_start.source().poll().await.unwrap_err());

    // One of the pair joins later: what came before it is delivered, its own rows are not.
    let later = Database::new("CREATE TABLE a_b (id int PRIMARY KEY)").await;
    later.run(&format!("CREATE PUBLICATION \"{}\" FOR ALL TABLES", later.name)).await;
    let mut reader = started(later.config(&[])).await;
    later.run("INSERT INTO a_b VALUES (1)").await;
    later.run(r#"CREATE TABLE "a b" (id int PRIMARY KEY); INSERT INTO "a b" VALUES (2)"#).await;
    let mut seen = Vec::new();
    let error = loop {
        match reader.poll().await {
            Ok(record) => seen.extend(record),
            Err(error) => break error,
        }
    };
    seen.retain(|record| record.op() != "h");
    assert_eq!(told(&seen), [json!(["public.a_b", "c", {"id": 1}, null, {"id": 1}])]);
    refused(&error);
    refused(&reader.source().poll().await.unwrap_err());
}

/// Polls until an error that is not transient, delivering nothing but heartbeats.
async fn refused_while_polling(reader: &mut Reader, what: &str) {
    let error = loop {
        match reader.poll().await {
            Ok(record) => {
                assert!(record.as_ref().is_none_or(|record| record.op() == "h"), "{what}: {record:?}")
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error.class(), ErrorClass::Configuration, "{what}: {error}");
    assert!(error.message().contains("publication"), "{what}: {error}");
    let fix = error.fix().unwrap_or_else(|| panic!("{what}: no fix: {error}"));
    assert!(fix.contains("crabka init"), "{what}: {fix}");
}

#[tokio::test]
async fn sch_27_pgc_43_a_publication_made_after_its_slot() {
    needs!(postgres);
    for major in pg_available_majors() {
        let what = format!("PostgreSQL {major}");
        let server = PgServer::shared(major).await.unwrap();
        let database = Database::on(server, "CREATE TABLE t (id int PRIMARY KEY)").await;
        let name = &database.name;
        database.run(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")).await;
        database.run("INSERT INTO t VALUES (1)").await;
        database.run(&format!("CREATE PUBLICATION \"{name}\" FOR TABLE t")).await;
        database.run("INSERT INTO t VALUES (2)").await;
        let before = database.confirmed().await;
        let mut reader = Reader::new(database.config(&["public.t"]));
        for _ in 0..2 {
            refused_while_polling(&mut reader, &what).await;
        }
        reader.close().await;
        assert_eq!(database.confirmed().await, before, "{what}: nothing is acknowledged");
    }
}

#[tokio::test]
async fn sch_10_pgc_44_a_publication_dropped_under_the_stream() {
    needs!(postgres);
    for major in pg_available_majors() {
        let what = format!("PostgreSQL {major}");
        let server = PgServer::shared(major).await.unwrap();
        let database = Database::on(server, "CREATE TABLE t (id int PRIMARY KEY)").await;
        let name = &database.name;
        let mut reader = started(database.config(&["public.t"])).await;
        database.run("INSERT INTO t VALUES (1)").await;
        assert_eq!(reader.take(1).await[0].int("id"), 1);
        let offset = reader.acknowledge().await;
        database.run(&format!("DROP PUBLICATION \"{name}\"")).await;
        database.run("INSERT INTO t VALUES (2)").await;
        for _ in 0..2 {
            refused_while_polling(&mut reader, &what).await;
        }
        // Made again, it still does not exist where row 2 is.
        database.run(&format!("CREATE PUBLICATION \"{name}\" FOR TABLE t")).await;
        database.run("INSERT INTO t VALUES (3)").await;
        refused_while_polling(&mut reader, &what).await;
        reader.close().await;
        let mut again = Reader::resumed(database.config(&["public.t"]), Some(offset)).await.unwrap();
        refused_while_polling(&mut again, &what).await;
        again.close().await;
    }
}
