//! What the source itself makes of odd streams, roles and catalogues.

use std::time::Duration;

use crabka_connect::{ConnectError, ErrorClass};
use crabka_connect_postgres::BinaryMode;
use crabka_testkit::{PgServer, needs, pg_available_majors};
use crabka_tests::{Database, Reader, TamperProxy};
use serde_json::json;
use tokio::time::Instant;

/// Polls until an error that stops the stream; everything before it must be heartbeats.
async fn stopped(reader: &mut Reader) -> ConnectError {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "the stream goes on");
        match reader.poll().await {
            Ok(record) => assert!(record.as_ref().is_none_or(|record| record.op() == "h"), "{record:?}"),
            Err(error) => return error,
        }
    }
}

/// A row whose relation was never announced is not passed over.
#[tokio::test]
async fn sch_23_a_row_of_a_relation_that_is_not_known() {
    needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let database = Database::on(server, "CREATE TABLE t (id int PRIMARY KEY)").await;
    let proxy = TamperProxy::start(server.port(), |message| message[0] != b'R').unwrap();
    let mut config = database.config(&["public.t"]);
    config.connection = proxy.url(&database.name).parse().unwrap();
    let mut reader = Reader::new(config);
    reader.started().await;
    database.run("INSERT INTO t VALUES (1)").await;
    let oid: u32 = database.sql.query_one("SELECT 't'::regclass::oid", &[]).await.unwrap().get(0);
    for _ in 0..2 {
        let error = stopped(&mut reader).await;
        assert_eq!(error.class(), ErrorClass::Bug, "{error}");
        assert!(error.message().ends_with(&format!(": {oid}")), "{error}");
        assert!(
            error.message().contains(" in transaction ") && error.message().contains(" at 0/"),
            "{error}"
        );
    }
    reader.close().await;
    // The position has not moved: a reader without the fault gets the row.
    let mut sound = Reader::new(database.config(&["public.t"]));
    assert_eq!(sound.take(1).await[0].int("id"), 1);
    sound.close().await;
}

#[tokio::test]
async fn sch_25_every_kind_of_message_and_one_that_does_not_exist() {
    needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let database = Database::on(
        server,
        "CREATE TYPE mood AS ENUM ('ok'); CREATE DOMAIN pct AS int; CREATE TYPE pair AS (a int, b text); \
         CREATE TABLE t (id int PRIMARY KEY, m mood, p pct, c pair)",
    )
    .await;
    // The one row of id 99 comes with a tag that no version knows.
    let proxy = TamperProxy::start(server.port(), |message| {
        if message[0] == b'I' && message.ends_with(b"99nnn") {
            message[0] = b'%';
        }
        true
    })
    .unwrap();
    let mut config = database.config(&["public.t"]);
    config.truncate_events = true;
    config.connection = proxy.url(&database.name).parse().unwrap();
    let mut reader = Reader::new(config);
    reader.started().await;
    let node = format!("sch_25_{}", std::process::id());
    for statement in [
        "INSERT INTO t VALUES (1, 'ok', 50, ROW(1, 'x'))",
        &format!("SELECT pg_replication_origin_create('{node}')"),
        &format!("SELECT pg_replication_origin_session_setup('{node}')"),
        "INSERT INTO t VALUES (2, NULL, NULL, NULL)",
        "SELECT pg_replication_origin_session_reset()",
        &format!("SELECT pg_replication_origin_drop('{node}')"),
        "SELECT pg_logical_emit_message(true, 'm', 'x')",
        "UPDATE t SET p = 2 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "TRUNCATE t",
        "INSERT INTO t VALUES (99, NULL, NULL, NULL)",
    ] {
        database.run(statement).await;
    }
    let seen = reader.take(7).await;
    let ops: Vec<&str> = seen.iter().map(|record| record.op()).collect();
    assert_eq!(ops, ["c", "c", "m", "u", "d", "x", "t"]);
    assert_eq!(seen[0].value["after"], json!({"id": 1, "m": "ok", "p": 50, "c": "(1,x)"}));
    assert_eq!(seen[1].value["source"]["origin"], json!(node));
    let error = stopped(&mut reader).await;
    assert_eq!(error.class(), ErrorClass::Bug, "{error}");
    let text = error.message();
    assert!(text.contains("'%'") || text.contains("0x25"), "no tag: {text}");
    assert!(text.contains("behind 0/"), "no position: {text}");
    assert!(!text.contains("99"), "a value: {text}");
    reader.close().await;
}

/// Deletes could not be told by their key: the ALTER TABLE that allows it is named.
#[tokio::test]
async fn sch_19_a_key_outside_of_the_replica_identity_is_refused_at_the_start() {
    needs!(postgres);
    for major in pg_available_majors() {
        let server = PgServer::shared(major).await.unwrap();
        let database = Database::on(
            server,
            "CREATE TABLE t (id int PRIMARY KEY, code int NOT NULL UNIQUE, v text); \
             ALTER TABLE t REPLICA IDENTITY USING INDEX t_code_key; \
             CREATE TABLE fine (id int, code int, PRIMARY KEY (id), UNIQUE (code, id)); \
             ALTER TABLE fine ALTER code SET NOT NULL; ALTER TABLE fine REPLICA IDENTITY USING INDEX fine_code_id_key",
        )
        .await;
        database.run(&format!("CREATE PUBLICATION \"{}\" FOR ALL TABLES", database.name)).await;
        let mut reader = Reader::new(database.config(&[]));
        let error = stopped(&mut reader).await;
        assert_eq!(error.class(), ErrorClass::Configuration, "PostgreSQL {major}: {error}");
        assert!(error.message().ends_with(": public.t"), "{error}");
        let fix = error.fix().unwrap().to_owned();
        reader.close().await;
        // Not captured, it is in nobody's way.
        let mut config = database.config(&["public.fine"]);
        config.slot = format!("{}_fine", database.name);
        let mut other = Reader::new(config);
        other.started().await;
        other.close().await;
        database.run(fix.split(", or ").nth(1).unwrap()).await;
        let mut reader = Reader::new(database.config(&[]));
        reader.started().await;
        database.run("INSERT INTO t VALUES (1, 2, 'a')").await;
        database.run("DELETE FROM t").await;
        let seen = reader.take(3).await;
        assert!(seen.iter().all(|record| record.key == json!({"id": 1})), "{seen:?}");
        reader.close().await;
    }
}

/// One connection for replication, one for the catalogue, and no transaction left open between questions.
#[tokio::test]
async fn ops_23_connections_and_open_transactions() {
    needs!(postgres);
    for major in pg_available_majors() {
        let server = PgServer::shared(major).await.unwrap();
        let database = Database::on(server, "CREATE TABLE t (id int PRIMARY KEY)").await;
        database.run(&format!("CREATE PUBLICATION \"{}\" FOR ALL TABLES", database.name)).await;
        let mut config = database.config(&[]);
        config.connection = config.connection.with_application_name(&database.name);
        let mut reader = Reader::new(config);
        reader.started().await;
        let mut most = (0, 0);
        for round in 0..20 {
            // Each table that joins is a question to the catalogue.
            database.run(&format!("CREATE TABLE t{round} (id int PRIMARY KEY)")).await;
            database.run(&format!("INSERT INTO t{round} VALUES (1)")).await;
            reader.take(1).await;
            let sessions = "SELECT count(*) FILTER (WHERE backend_type = 'walsender'), \
                count(*) FILTER (WHERE backend_type <> 'walsender'), \
                count(*) FILTER (WHERE backend_type <> 'walsender' AND (xact_start IS NOT NULL OR state <> 'idle')) \
                FROM pg_stat_activity WHERE application_name = $1";
            let row = database.sql.query_one(sessions, &[&database.name]).await.unwrap();
            let (senders, others, open): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
            assert_eq!(open, 0, "PostgreSQL {major}: a session is left in a transaction");
            most = (most.0.max(senders), most.1.max(others));
        }
        assert!(most.0 == 1 && most.1 <= 1, "PostgreSQL {major}: {most:?} walsenders and other sessions");
        reader.close().await;
    }
}

/// A role and a database that set everything we depend on otherwise, in encodings that are not UTF-8.
#[tokio::test]
async fn pgc_77_settings_of_roles_and_encodings_of_databases() {
    needs!(postgres);
    for major in pg_available_majors() {
        let server = PgServer::shared(major).await.unwrap();
        let admin = server.connect("postgres").await.unwrap();
        for (encoding, sample) in [("LATIN1", "Zoë ñ ÿ"), ("EUC_JP", "日本語 テスト")] {
            let name = format!("pgc77_{}_{}", encoding.to_lowercase(), std::process::id());
            admin
                .batch_execute(&format!(
                    "CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
                ))
                .await
                .unwrap();
            for setting in [
                "DateStyle = 'SQL, DMY'",
                "IntervalStyle = 'sql_standard'",
                "bytea_output = 'escape'",
                "extra_float_digits = -3",
                "TimeZone = 'Asia/Tokyo'",
                "quote_all_identifiers = on",
            ] {
                admin.batch_execute(&format!("ALTER DATABASE {name} SET {setting}")).await.unwrap();
            }
            let sql = server.connect(&name).await.unwrap();
            sql.batch_execute(
                "CREATE TABLE t (id int PRIMARY KEY, x text, d date, i interval, b bytea, f float8, z timestamptz); \
                 CREATE PUBLICATION p FOR TABLE t",
            )
            .await
            .unwrap();
            let database = Database { url: server.url(&name), sql, name: name.clone() };
            for (binary, suffix) in [(BinaryMode::Text, "text"), (BinaryMode::Binary, "binary")] {
                let mut config = database.config(&[]);
                config.publication = "p".to_owned();
                config.slot = format!("{name}_{suffix}");
                config.binary = binary;
                let mut reader = Reader::new(config);
                reader.started().await;
                database
                    .run(&format!(
                        "DELETE FROM t; INSERT INTO t VALUES (1, '{sample}', '2024-02-29', '1 year 2 mons 3 days 04:05:06.789', \
                         '\\x00ff41', 0.1::float8 + 0.2, '2024-02-29 12:00:00+00')"
                    ))
                    .await;
                let record = loop {
                    let record = reader.take(1).await.remove(0);
                    if record.op() == "c" {
                        break record;
                    }
                };
                let row = &record.value["after"];
                let what = format!("PostgreSQL {major}, {encoding}, {suffix}: {row}");
                assert_eq!(row["x"], json!(sample), "{what}");
                assert_eq!(row["d"], json!(19_782), "{what}");
                assert_eq!(row["b"], json!("AP9B"), "{what}");
                assert_eq!(row["f"], json!(0.1 + 0.2), "{what}");
                assert_eq!(row["z"], json!("2024-02-29T12:00:00.000000Z"), "{what}");
                assert!(row["i"].is_i64(), "{what}");
                reader.close().await;
            }
            database.drop_slots().await;
        }
    }
}
