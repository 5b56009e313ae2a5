//! OPS-01: one defect each, found by its name, and mended by the very SQL that the finding gives.

use std::time::Duration;

use crabka_connect_postgres::SqlConnection;
use crabka_connect_postgres::catalog::TableName;
use crabka_connect_postgres::check::{CheckRequest, Severity, check, id};
use crabka_testkit::{PgServer, PgServerBuilder, pg_available_majors};

use crate::requests::{GOOD, request, the};
use crate::{database, patterns, sql};

async fn started(builder: PgServerBuilder) -> (PgServer, tokio_postgres::Client, SqlConnection) {
    let server = builder.start().await.unwrap();
    let client = server.connect("postgres").await.unwrap();
    let sql = sql(&server, "postgres").await;
    (server, client, sql)
}

/// Finds `id` with `severity`, runs its fix, and finds it well.
async fn found_and_mended(
    sql: &SqlConnection,
    client: &tokio_postgres::Client,
    request: &CheckRequest<'_>,
    id: &'static str,
    severity: Severity,
) {
    let report = check(sql, request).await;
    let finding = the(&report, id);
    assert_eq!(finding.severity, severity, "{report}");
    let fix = finding.fix.clone().unwrap();
    client.batch_execute(&fix).await.unwrap_or_else(|error| panic!("the fix fails: {fix}: {error:?}"));
    let report = check(sql, request).await;
    assert_eq!(the(&report, id).severity, Severity::Ok, "after {fix}:\n{report}");
}

#[tokio::test]
async fn ops_01_wal_level() {
    crabka_testkit::needs!(postgres);
    let (_server, client, sql) = started(PgServer::builder().setting("wal_level", "replica")).await;
    client.batch_execute(GOOD).await.unwrap();
    let report = check(&sql, &request(&["public.orders"])).await;
    let finding = the(&report, id::WAL_LEVEL);
    assert_eq!(finding.severity, Severity::Error);
    assert!(finding.fix.as_deref().unwrap().contains("ALTER SYSTEM SET wal_level = 'logical'"), "{finding}");
    assert_eq!(report.of(Severity::Error).count(), 1, "and nothing else:\n{report}");
}

#[tokio::test]
async fn ops_01_no_free_slot() {
    crabka_testkit::needs!(postgres);
    let (_server, client, sql) = started(PgServer::builder().setting("max_replication_slots", 1)).await;
    client.batch_execute(GOOD).await.unwrap();
    client.batch_execute("SELECT pg_create_physical_replication_slot('forgotten')").await.unwrap();
    let mut request = request(&["public.orders"]);
    let report = check(&sql, &request).await;
    let finding = the(&report, id::REPLICATION_SLOTS_FREE);
    assert_eq!(finding.severity, Severity::Error, "{report}");
    let fix = finding.fix.as_deref().unwrap();
    assert!(fix.contains("max_replication_slots = 6") && fix.contains("forgotten"), "{fix}");
    request.slot = Some("forgotten".to_owned());
    let report = check(&sql, &request).await;
    assert_eq!(the(&report, id::REPLICATION_SLOTS_FREE).severity, Severity::Ok, "ours is there already");
}

#[tokio::test]
async fn ops_01_no_free_sender() {
    crabka_testkit::needs!(postgres);
    let (_server, client, sql) = started(PgServer::builder().setting("max_wal_senders", 0)).await;
    client.batch_execute(GOOD).await.unwrap();
    let report = check(&sql, &request(&["public.orders"])).await;
    let finding = the(&report, id::WAL_SENDERS_FREE);
    assert_eq!(finding.severity, Severity::Error, "{report}");
    assert!(finding.fix.as_deref().unwrap().contains("max_wal_senders = 5"));
}

#[tokio::test]
async fn ops_01_max_slot_wal_keep_size_tiny() {
    crabka_testkit::needs!(postgres);
    let (server, client, sql) = started(PgServer::builder().setting("max_slot_wal_keep_size", "64MB")).await;
    client.batch_execute(GOOD).await.unwrap();
    let report = check(&sql, &request(&["public.orders"])).await;
    let finding = the(&report, id::MAX_SLOT_WAL_KEEP_SIZE);
    assert_eq!(finding.severity, Severity::Warning, "{report}");
    assert!(finding.message.ends_with(": 64 MB") && finding.fix.is_some());
    server.set("max_slot_wal_keep_size", "-1").await.unwrap();
    server.reload().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let report = check(&sql, &request(&["public.orders"])).await;
    assert_eq!(the(&report, id::MAX_SLOT_WAL_KEEP_SIZE).severity, Severity::Ok);
}

#[tokio::test]
async fn ops_01_ops_21_idle_replication_slot_timeout() {
    crabka_testkit::needs!(postgres);
    for major in pg_available_majors().into_iter().filter(|major| *major >= 18) {
        let builder = PgServer::builder().major(major).setting("idle_replication_slot_timeout", "1h");
        let (_server, client, sql) = started(builder).await;
        client.batch_execute(GOOD).await.unwrap();
        let report = check(&sql, &request(&["public.orders"])).await;
        let finding = the(&report, id::IDLE_REPLICATION_SLOT_TIMEOUT);
        assert_eq!(finding.severity, Severity::Warning, "{report}");
        assert!(finding.message.ends_with(": 3600 s"), "{finding}");
    }
}

#[tokio::test]
async fn ops_01_role_without_replication_without_select() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let client = server.connect("postgres").await.unwrap();
    client.batch_execute(GOOD).await.unwrap();
    client
        .batch_execute("CREATE ROLE \"We\"\"ak\" LOGIN; CREATE SCHEMA s; CREATE TABLE s.\"T\" (id int PRIMARY KEY); ALTER PUBLICATION p ADD TABLE s.\"T\"; GRANT SELECT ON orders TO \"We\"\"ak\"")
        .await
        .unwrap();
    let url = format!("host=127.0.0.1 port={} dbname=postgres user=We\"ak", server.port());
    let sql = SqlConnection::connect_url(&url).await.unwrap();
    let mut request = request(&["public.orders", "s.\"T\""]);
    found_and_mended(&sql, &client, &request, id::ROLE_REPLICATION, Severity::Error).await;
    request.reads_tables = true;
    let report = check(&sql, &request).await;
    assert_eq!(the(&report, id::TABLE_SELECT).subject.as_deref(), Some("s.\"T\""));
    found_and_mended(&sql, &client, &request, id::TABLE_SELECT, Severity::Error).await;
    client
        .batch_execute(
            "REVOKE SELECT ON s.\"T\" FROM \"We\"\"ak\"; GRANT SELECT (id) ON s.\"T\" TO \"We\"\"ak\"",
        )
        .await
        .unwrap();
    let report = check(&sql, &request).await;
    assert_eq!(
        the(&report, id::TABLE_SELECT).severity,
        Severity::Ok,
        "a right on each column is enough:\n{report}"
    );
    client.batch_execute("REVOKE SELECT (id) ON s.\"T\" FROM \"We\"\"ak\"").await.unwrap();
    request.reads_tables = false;
    found_and_mended(&sql, &client, &request, id::TABLE_SELECT, Severity::Warning).await;

    client.batch_execute("ALTER TABLE s.\"T\" ENABLE ROW LEVEL SECURITY").await.unwrap();
    let report = check(&sql, &request).await;
    assert_eq!(the(&report, id::ROW_SECURITY).severity, Severity::Warning, "{report}");
    client
        .batch_execute("ALTER ROLE \"We\"\"ak\" CONNECTION LIMIT 2 VALID UNTIL '2020-01-01'")
        .await
        .unwrap();
    let report = check(&sql, &request).await;
    assert_eq!(
        report.named(id::ROLE_LIMITS).filter(|finding| finding.severity == Severity::Warning).count(),
        2
    );
}

#[tokio::test]
async fn ops_01_rights_for_a_publication_that_is_to_be_created() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let client = server.connect("postgres").await.unwrap();
    client.batch_execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE ROLE maker LOGIN").await.unwrap();
    let sql = SqlConnection::connect_url(&server.url_as("maker", "postgres")).await.unwrap();
    let mut request = request(&["public.orders"]);
    request.creates_publication = true;
    let report = check(&sql, &request).await;
    let errors: Vec<_> = report.named(id::PUBLICATION_RIGHTS).collect();
    assert_eq!(errors.len(), 2, "{report}");
    client.batch_execute(errors[0].fix.as_deref().unwrap()).await.unwrap();
    client.batch_execute("ALTER TABLE orders OWNER TO maker").await.unwrap();
    let report = check(&sql, &request).await;
    assert_eq!(the(&report, id::PUBLICATION_RIGHTS).severity, Severity::Ok, "{report}");
    request.tables = patterns(&["public.*"]);
    let report = check(&sql, &request).await;
    assert_eq!(the(&report, id::PUBLICATION_FIXED_TABLES).severity, Severity::Warning, "{report}");
}

#[tokio::test]
async fn ops_01_publication_missing_and_its_tables() {
    crabka_testkit::needs!(postgres);
    for major in pg_available_majors() {
        let server = PgServer::shared(major).await.unwrap();
        let db = server.create_database("missing").await.unwrap();
        let client = server.connect(&db).await.unwrap();
        client
            .batch_execute(
                "CREATE TABLE \"Or\"\"ders\" (id int PRIMARY KEY); CREATE TABLE more (id int PRIMARY KEY)",
            )
            .await
            .unwrap();
        let sql = sql(server, &db).await;
        let mut request = request(&["public.\"Or\"\"ders\""]);
        request.publication = "We\"ird.Näme".to_owned();
        found_and_mended(&sql, &client, &request, id::PUBLICATION_MISSING, Severity::Error).await;
        request.tables = patterns(&["public.\"Or\"\"ders\"", "public.more"]);
        found_and_mended(&sql, &client, &request, id::PUBLICATION_TABLE_MISSING, Severity::Error).await;
        request.tables = patterns(&["public.more"]);
        let report = check(&sql, &request).await;
        assert_eq!(the(&report, id::PUBLICATION_TABLE_EXTRA).severity, Severity::Warning);
        client.batch_execute("ALTER PUBLICATION \"We\"\"ird.Näme\" SET (publish = 'insert')").await.unwrap();
        found_and_mended(&sql, &client, &request, id::PUBLICATION_OPERATIONS, Severity::Warning).await;
    }
}

#[tokio::test]
async fn ops_01_published_table_without_identity() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("identity").await;
    client
        .batch_execute(
            "CREATE TABLE bare (v int); CREATE TABLE off (id int PRIMARY KEY); ALTER TABLE off REPLICA IDENTITY NOTHING;
             CREATE TABLE late (id int PRIMARY KEY DEFERRABLE);
             CREATE TABLE root (id int) PARTITION BY RANGE (id);
             CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (9);
             ALTER TABLE root ADD PRIMARY KEY (id); ALTER TABLE leaf REPLICA IDENTITY NOTHING;
             CREATE PUBLICATION p FOR TABLE bare, off, late, root WITH (publish_via_partition_root = true)",
        )
        .await
        .unwrap();
    let sql = sql(server, &db).await;
    let report = check(&sql, &request(&[])).await;
    let found: Vec<_> =
        report.named(id::REPLICA_IDENTITY).map(|finding| finding.subject.clone().unwrap()).collect();
    assert_eq!(found, ["public.bare", "public.late", "public.off", "public.leaf"], "{report}");
    // The server does what the finding says.
    client.batch_execute("INSERT INTO root VALUES (1)").await.unwrap();
    for statement in ["UPDATE bare SET v = 1", "DELETE FROM late", "DELETE FROM off", "DELETE FROM root"] {
        client
            .batch_execute("INSERT INTO bare VALUES (1); INSERT INTO late VALUES (1) ON CONFLICT DO NOTHING")
            .await
            .ok();
        client.batch_execute("INSERT INTO off VALUES (1)").await.ok();
        client.batch_execute("INSERT INTO late VALUES (1)").await.ok();
        let error = client.batch_execute(statement).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "55000", "{statement}");
    }
    let keyless: Vec<_> =
        report.named(id::KEYLESS_TABLE).filter_map(|finding| finding.subject.clone()).collect();
    assert_eq!(keyless, ["public.bare"]);

    client.batch_execute("ALTER PUBLICATION p SET (publish = 'insert, truncate')").await.unwrap();
    let report = check(&sql, &request(&[])).await;
    assert_eq!(
        the(&report, id::REPLICA_IDENTITY).severity,
        Severity::Ok,
        "nothing is rejected then:\n{report}"
    );
}

#[tokio::test]
async fn ops_01_key_not_in_the_replica_identity() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("key").await;
    client
        .batch_execute(
            "CREATE TABLE t (id int PRIMARY KEY, code int NOT NULL UNIQUE); CREATE PUBLICATION p FOR TABLE t;
             ALTER TABLE t REPLICA IDENTITY USING INDEX t_code_key",
        )
        .await
        .unwrap();
    let sql = sql(server, &db).await;
    found_and_mended(&sql, &client, &request(&["public.t"]), id::KEY_NOT_IN_IDENTITY, Severity::Error).await;
    client.batch_execute("ALTER TABLE t REPLICA IDENTITY FULL").await.unwrap();
    let report = check(&sql, &request(&["public.t"])).await;
    assert_eq!(the(&report, id::KEY_NOT_IN_IDENTITY).severity, Severity::Ok);
    client.batch_execute("ALTER TABLE t REPLICA IDENTITY NOTHING").await.unwrap();
    let report = check(&sql, &request(&["public.t"])).await;
    assert_eq!(the(&report, id::KEY_NOT_IN_IDENTITY).severity, Severity::Ok, "no update gets through then");
}

/// A publication of somebody else's: what `before` will hold is told, table by table.
#[tokio::test]
async fn sch_21_what_before_will_hold() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("before").await;
    client
        .batch_execute(
            "CREATE TABLE d (id int PRIMARY KEY, v int); CREATE TABLE f (v int); ALTER TABLE f REPLICA IDENTITY FULL;
             CREATE TABLE i (a int NOT NULL, b int NOT NULL, UNIQUE (b, a)); ALTER TABLE i REPLICA IDENTITY USING INDEX i_b_a_key;
             CREATE TABLE n (id int PRIMARY KEY); ALTER TABLE n REPLICA IDENTITY NOTHING;
             CREATE PUBLICATION p FOR TABLE d, f, i, n",
        )
        .await
        .unwrap();
    let sql = sql(server, &db).await;
    let report = check(&sql, &request(&[])).await;
    let said: Vec<&str> = report.named(id::BEFORE_IMAGE).map(|finding| finding.message.as_str()).collect();
    for (what, table) in [
        ("primary key", "public.d (id)"),
        ("whole old row", "public.f"),
        ("columns of an index", "public.i (b, a)"),
        ("no before", "public.n"),
    ] {
        assert!(
            said.iter().any(|text| text.contains(what) && text.ends_with(&format!(": {table}"))),
            "{what}, {table}: {said:?}"
        );
    }
    assert!(report.named(id::BEFORE_IMAGE).all(|finding| finding.severity == Severity::Ok));
}

#[tokio::test]
async fn a_column_list_without_the_identity() {
    crabka_testkit::needs!(postgres(15));
    let server = PgServer::shared(15).await.unwrap();
    let db = server.create_database("list").await.unwrap();
    let client = server.connect(&db).await.unwrap();
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE PUBLICATION p FOR TABLE t (v); INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    let sql = sql(server, &db).await;
    let report = check(&sql, &request(&["public.t"])).await;
    let finding = the(&report, id::PUBLICATION_COLUMN_LIST);
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.message.ends_with(": id"), "{finding}");
    client.batch_execute("DELETE FROM t").await.unwrap_err();
}

#[tokio::test]
async fn partitions_come_under_the_name_that_the_publication_chooses() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("roots").await;
    client
        .batch_execute(
            "CREATE TABLE m (id int PRIMARY KEY) PARTITION BY RANGE (id);
             CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (0) TO (9); CREATE PUBLICATION p FOR TABLE m",
        )
        .await
        .unwrap();
    let sql = sql(server, &db).await;
    found_and_mended(&sql, &client, &request(&["public.m"]), id::PUBLICATION_VIA_ROOT, Severity::Warning)
        .await;
    found_and_mended(&sql, &client, &request(&["public.m1"]), id::PUBLICATION_VIA_ROOT, Severity::Warning)
        .await;
}

#[tokio::test]
async fn kaf_08_topic_collision() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("topics").await;
    client
        .batch_execute(
            "CREATE SCHEMA \"x.y\"; CREATE SCHEMA x; CREATE TABLE \"x.y\".z (id int PRIMARY KEY);
             CREATE TABLE x.\"y.z\" (id int PRIMARY KEY); CREATE TABLE x.alone (id int PRIMARY KEY);
             CREATE PUBLICATION p FOR ALL TABLES",
        )
        .await
        .unwrap();
    let sql = sql(server, &db).await;
    let topic = |table: &TableName| format!("shop.{}.{}", table.schema, table.table);
    let mut request = request(&[]);
    request.topic = Some(&topic);
    let report = check(&sql, &request).await;
    let finding = the(&report, id::TOPIC_COLLISION);
    assert_eq!((finding.severity, finding.subject.as_deref()), (Severity::Error, Some("shop.x.y.z")));
    assert!(finding.message.contains("\"x.y\".z") && finding.message.contains("x.\"y.z\""), "{finding}");
    request.tables = patterns(&["x.\"y.z\"", "x.alone"]);
    request.reserved_topics = vec!["shop.x.alone".to_owned()];
    let report = check(&sql, &request).await;
    assert_eq!(the(&report, id::TOPIC_COLLISION).subject.as_deref(), Some("shop.x.alone"));
}

#[tokio::test]
async fn server_encoding_that_has_no_utf_8_form() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let client = server.connect("postgres").await.unwrap();
    for (encoding, severity) in [
        ("LATIN1", Severity::Ok),
        ("EUC_JP", Severity::Ok),
        ("SQL_ASCII", Severity::Warning),
        ("MULE_INTERNAL", Severity::Error),
    ] {
        let db = encoding.to_lowercase();
        let create = format!(
            "CREATE DATABASE {db} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        );
        client.batch_execute(&create).await.unwrap();
        let connected = SqlConnection::connect_url(&server.url(&db)).await;
        match connected {
            Ok(sql) => {
                let report = check(&sql, &request(&[])).await;
                assert_eq!(the(&report, id::SERVER_ENCODING).severity, severity, "{encoding}:\n{report}");
            }
            Err(error) => {
                assert_eq!(encoding, "MULE_INTERNAL", "{error}");
                assert_eq!(error.class(), crabka_connect::ErrorClass::Configuration, "{error}");
            }
        }
    }
}

#[tokio::test]
async fn ops_12_standby_as_a_source() {
    crabka_testkit::needs!(postgres);
    for major in pg_available_majors() {
        let standby = PgServer::builder()
            .major(major)
            .file("standby.signal", "")
            .setting("hot_standby_feedback", "off");
        let server = standby.start().await.unwrap();
        let sql = sql(&server, "postgres").await;
        let position = crabka_connect_postgres::catalog::wal_position(&sql).await.unwrap();
        assert!(position.as_u64() > 0, "allowed in recovery on {major}");
        let report = check(&sql, &request(&[])).await;
        let found: Vec<_> = report.named(id::IN_RECOVERY).collect();
        if major < 16 {
            assert_eq!((found.len(), found[0].severity), (1, Severity::Error), "{report}");
            continue;
        }
        let text = report.to_string();
        for part in ["hot_standby_feedback", "primary_slot_name", "pg_log_standby_snapshot"] {
            assert!(text.contains(part), "{part} on {major}:\n{report}");
        }
        assert!(found.iter().all(|finding| finding.severity == Severity::Warning));
    }
}
