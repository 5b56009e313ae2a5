//! Publication and slot, created on request.

use std::future::pending;

use crabka_connect::ErrorClass;
use crabka_connect_postgres::SqlConnection;
use crabka_connect_postgres::catalog::{self, TableName};
use crabka_connect_postgres::check::{Severity, id};
use crabka_connect_postgres::setup::{SetupRequest, Statement, apply, plan};
use crabka_pgrepl::{Config, Lsn, ReplicationClient, StartReplication, StreamEvent};
use crabka_testkit::{PgServer, pg_available_majors};
use tokio::time::Instant;

use crate::{config, database, drop_slot, patterns, sql};

async fn set_up(sql: &SqlConnection, config: &Config, request: &SetupRequest) {
    let plan = plan(sql, request).await.unwrap();
    apply(sql, config, request, &plan, pending()).await.unwrap();
}

#[tokio::test]
async fn any_name_survives_and_the_stream_works() {
    crabka_testkit::needs!(postgres);
    for major in pg_available_majors() {
        let server = PgServer::shared(major).await.unwrap();
        let db = server.create_database("weird").await.unwrap();
        let client = server.connect(&db).await.unwrap();
        client
            .batch_execute(
                "CREATE SCHEMA \"We\"\"ird\"; CREATE TABLE \"We\"\"ird\".\"Nä.me'\" (id int PRIMARY KEY)",
            )
            .await
            .unwrap();
        let sql = sql(server, &db).await;
        let config = config(server, &db);
        let slot = db.to_lowercase().replace('-', "_");
        let request = SetupRequest::new(&slot, "We\"ird.Näme", patterns(&["\"We\"\"ird\".\"Nä.me'\""]));
        let before = plan(&sql, &request).await.unwrap();
        assert_eq!(before.steps.len(), 2, "{before}");
        assert!(matches!(before.steps[0].statement, Statement::Sql(_)), "publication before slot: {before}");
        assert!(matches!(before.steps[1].statement, Statement::Replication(_)), "{before}");
        assert!(before.findings.is_empty(), "{before}");
        assert_eq!(catalog::publication(&sql, "We\"ird.Näme").await.unwrap(), None, "a plan changes nothing");

        let applied = apply(&sql, &config, &request, &before, pending()).await.unwrap();
        assert!(applied.publication_created);
        let row = catalog::slot(&sql, &slot).await.unwrap().unwrap();
        assert_eq!(row.confirmed_flush_lsn, Some(applied.slot_created.unwrap().consistent_point));

        client.batch_execute("INSERT INTO \"We\"\"ird\".\"Nä.me'\" VALUES (7)").await.unwrap();
        let start = StartReplication::new(&slot, Lsn::ZERO).publications(["We\"ird.Näme"]);
        let replication = ReplicationClient::connect(&config).await.unwrap();
        let mut stream = replication.start_replication(&start).await.unwrap();
        let mut seen = Vec::new();
        while !seen.contains(&b'I') {
            match stream.try_next().unwrap() {
                Some(StreamEvent::Wal { payload, .. }) => seen.push(payload[0]),
                Some(_) => {}
                None => stream.fill().await.unwrap(),
            }
        }
        assert_eq!(seen, *b"BRI");
        drop(stream);

        let again = plan(&sql, &request).await.unwrap();
        assert_eq!(again.to_string(), "nothing to do");
        drop_slot(&sql, &slot, true).await.unwrap();
    }
}

#[tokio::test]
async fn ops_11_no_ddl_when_nothing_differs() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("again").await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    let (sql, config) = (sql(server, &db).await, config(server, &db));
    let slot = db.to_lowercase().replace('-', "_");
    let request = SetupRequest::new(&slot, "p", patterns(&["public.t"]));
    set_up(&sql, &config, &request).await;
    let state = "SELECT p.xmin::text || c.xmin::text || r.xmin::text FROM pg_publication p, pg_class c, \
                 pg_publication_rel r WHERE c.oid = 't'::regclass AND r.prrelid = c.oid AND r.prpubid = p.oid";
    let before: String = client.query_one(state, &[]).await.unwrap().get(0);
    // A start that wanted the table's lock would wait here.
    client.batch_execute("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE").await.unwrap();
    for _ in 0..10 {
        set_up(&sql, &config, &request).await;
    }
    client.batch_execute("ROLLBACK").await.unwrap();
    let after: String = client.query_one(state, &[]).await.unwrap().get(0);
    assert_eq!(before, after);
    drop_slot(&sql, &slot, false).await.unwrap();
}

#[tokio::test]
async fn ops_11_a_lock_on_the_table_is_not_waited_for_without_end_and_its_holder_is_named() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("locked").await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    client.batch_execute("BEGIN; LOCK TABLE t IN SHARE MODE").await.unwrap();
    let (sql, config) = (sql(server, &db).await, config(server, &db));
    let mut request = SetupRequest::new("x", "p", patterns(&["public.t"]));
    request.slot = None;
    let plan = plan(&sql, &request).await.unwrap();
    let begin = Instant::now();
    let error = apply(&sql, &config, &request, &plan, pending()).await.unwrap_err();
    assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
    assert_eq!((error.class(), error.sqlstate()), (ErrorClass::Transient, Some("55P03")));
    let holder = format!("[pid {pid}, user postgres, ShareLock on public.t]");
    assert!(error.message().contains(&holder), "{error}");
    assert_eq!(catalog::publication(&sql, "p").await.unwrap(), None);
    client.batch_execute("ROLLBACK").await.unwrap();
    let applied = apply(&sql, &config, &request, &plan, pending()).await.unwrap();
    assert!(applied.publication_created && applied.slot_created.is_none());
    let applied = apply(&sql, &config, &request, &plan, pending()).await.unwrap();
    assert!(!applied.publication_created, "one that appeared after the plan is used as it is");
}

#[tokio::test]
async fn an_existing_publication_is_used_as_it_is() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("existing").await;
    client
        .batch_execute(
            "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY);
             CREATE PUBLICATION p FOR TABLE t WITH (publish = 'insert')",
        )
        .await
        .unwrap();
    let (sql, config) = (sql(server, &db).await, config(server, &db));
    let before = catalog::publication(&sql, "p").await.unwrap();
    let mut request = SetupRequest::new("x", "p", patterns(&["public.t", "public.u"]));
    request.slot = None;
    let differs = plan(&sql, &request).await.unwrap();
    assert!(differs.steps.is_empty());
    let found: Vec<_> =
        differs.findings.iter().map(|finding| (finding.id.as_ref(), finding.severity)).collect();
    assert_eq!(
        found,
        [(id::PUBLICATION_TABLE_MISSING, Severity::Error), (id::PUBLICATION_OPERATIONS, Severity::Warning)]
    );
    let error = apply(&sql, &config, &request, &differs, pending()).await.unwrap_err();
    assert!(error.fix().unwrap().contains("ALTER PUBLICATION \"p\" ADD TABLE \"public\".\"u\""), "{error}");
    assert_eq!(catalog::publication(&sql, "p").await.unwrap(), before);
}

#[tokio::test]
async fn a_publication_after_the_slot_is_refused() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("after").await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    let slot = db.to_lowercase().replace('-', "_");
    client
        .execute("SELECT pg_create_logical_replication_slot($1::text, 'pgoutput')", &[&slot])
        .await
        .unwrap();
    let (sql, config) = (sql(server, &db).await, config(server, &db));
    let request = SetupRequest::new(&slot, "p", patterns(&["public.t"]));
    let plan = plan(&sql, &request).await.unwrap();
    let error = apply(&sql, &config, &request, &plan, pending()).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Configuration);
    assert!(error.message().contains("publication_missing"), "{error}");
    assert!(error.fix().unwrap().contains("pg_replication_slot_advance"), "{error}");
    assert_eq!(catalog::publication(&sql, "p").await.unwrap(), None);
    client.execute("SELECT pg_drop_replication_slot($1::text)", &[&slot]).await.unwrap();
}

#[tokio::test]
async fn sch_20_a_publication_that_would_make_updates_fail_is_not_made_unasked() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("warned").await;
    client.batch_execute("CREATE TABLE bare (v int); INSERT INTO bare VALUES (1)").await.unwrap();
    let sql = sql(server, &db).await;
    let mut request = SetupRequest::new("x", "p", patterns(&["public.bare"]));
    request.slot = None;
    let refused = plan(&sql, &request).await.unwrap();
    assert_eq!(refused.findings.len(), 1, "{refused}");
    let finding = &refused.findings[0];
    assert_eq!((finding.id.as_ref(), finding.severity), (id::REPLICA_IDENTITY, Severity::Error));
    assert!(finding.message.contains("will make the application's UPDATE and DELETE fail"), "{finding}");
    let error = apply(&sql, &config(server, &db), &request, &refused, pending()).await.unwrap_err();
    let fix = error.fix().unwrap();
    assert!(fix.contains("REPLICA IDENTITY FULL") && fix.contains("allow_refused_updates"), "{fix}");
    assert_eq!(catalog::publication(&sql, "p").await.unwrap(), None);
    client.batch_execute("UPDATE bare SET v = 2").await.unwrap();

    request.allow_refused_updates = true;
    let allowed = plan(&sql, &request).await.unwrap();
    assert_eq!(allowed.findings[0].severity, Severity::Warning, "{allowed}");
    apply(&sql, &config(server, &db), &request, &allowed, pending()).await.unwrap();
    client.batch_execute("UPDATE bare SET v = 3").await.unwrap_err();
}

#[tokio::test]
async fn what_the_role_cannot_publish_as_a_whole_is_named_table_by_table() {
    crabka_testkit::needs!(postgres);
    for major in pg_available_majors() {
        let server = PgServer::builder().major(major).start().await.unwrap();
        let client = server.connect("postgres").await.unwrap();
        client
            .batch_execute(
                "CREATE ROLE maker LOGIN REPLICATION; GRANT CREATE ON DATABASE postgres TO maker;
                 CREATE SCHEMA app AUTHORIZATION maker; SET ROLE maker;
                 CREATE TABLE app.m (id int PRIMARY KEY) PARTITION BY RANGE (id);
                 CREATE TABLE app.m1 PARTITION OF app.m FOR VALUES FROM (0) TO (9);
                 CREATE TABLE app.t (id int PRIMARY KEY); RESET ROLE",
            )
            .await
            .unwrap();
        let url = server.url_as("maker", "postgres");
        let (sql, config) = (SqlConnection::connect_url(&url).await.unwrap(), url.parse().unwrap());
        let mut request = SetupRequest::new("made", "p", patterns(&["app.*"]));
        request.via_root = true;
        let before = plan(&sql, &request).await.unwrap();
        assert_eq!(
            before.findings.iter().filter(|finding| finding.id == id::PUBLICATION_FIXED_TABLES).count(),
            1
        );
        apply(&sql, &config, &request, &before, pending()).await.unwrap();
        let row = catalog::publication(&sql, "p").await.unwrap().unwrap();
        let named: Vec<TableName> = row.tables.into_iter().map(|table| table.name).collect();
        let name = |table: &str| TableName { schema: "app".into(), table: table.into() };
        assert_eq!((named, row.via_root), (vec![name("m"), name("t")], true));

        let superuser = crate::sql(&server, "postgres").await;
        let mut request = SetupRequest::new("whole", "q", patterns(&["app.*"]));
        request.slot = None;
        let before = plan(&superuser, &request).await.unwrap();
        assert_eq!(before.findings.is_empty(), major >= 15, "{before}");
        apply(&superuser, &config_of(&server), &request, &before, pending()).await.unwrap();
        let row = catalog::publication(&superuser, "q").await.unwrap().unwrap();
        assert_eq!(row.schemas.len(), usize::from(major >= 15));
    }
}

fn config_of(server: &PgServer) -> Config {
    config(server, "postgres")
}
