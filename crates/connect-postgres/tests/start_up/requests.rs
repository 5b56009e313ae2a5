//! The check as a whole: all at once, bounded in time, nothing left behind, the same in JSON.

use std::time::Duration;

use crabka_connect_postgres::SqlConnection;
use crabka_connect_postgres::catalog::TableName;
use crabka_connect_postgres::check::{CheckRequest, Finding, Report, Severity, check, id};
use crabka_testkit::{Direction, FaultProxy, PgServer, pg_available_majors};
use tokio::time::Instant;

use crate::{database, patterns, sql};

/// A table that is as it should be, published.
pub(crate) const GOOD: &str = "CREATE TABLE orders (id int PRIMARY KEY, v text); \
    CREATE PUBLICATION p FOR TABLE orders";

pub(crate) fn request(tables: &[&str]) -> CheckRequest<'static> {
    let mut request = CheckRequest::new("no_such_slot", "p", patterns(tables));
    request.creates_slot = true;
    request
}

pub(crate) fn the<'a>(report: &'a Report, id: &'static str) -> &'a Finding {
    let mut found = report.named(id);
    let finding = found.next().unwrap_or_else(|| panic!("no finding {id}:\n{report}"));
    assert!(found.next().is_none(), "more than one {id}:\n{report}");
    finding
}

#[tokio::test]
async fn nothing_is_found_where_nothing_is_wrong() {
    crabka_testkit::needs!(postgres);
    for major in pg_available_majors() {
        let server = PgServer::shared(major).await.unwrap();
        let db = server.create_database("good").await.unwrap();
        server.connect(&db).await.unwrap().batch_execute(GOOD).await.unwrap();
        let sql = sql(server, &db).await;
        let mut request = request(&["public.orders"]);
        request.topic = Some(&|table: &TableName| format!("x.{table}"));
        // Other tests of this process may have transactions open on the shared server.
        request.old_transaction_age = Duration::from_secs(3600);
        let report = check(&sql, &request).await;
        assert_eq!(report.worst(), Severity::Ok, "on {major}:\n{report}");
        assert!(report.to_error().is_none());
        let mut ids: Vec<_> = report.findings.iter().map(|finding| finding.id.as_ref()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), report.findings.len(), "one answer for each name");
        for id in [id::WAL_LEVEL, id::OLD_TRANSACTIONS, id::TOPIC_COLLISION, id::TABLE_SELECT, id::SLOT_STATE]
        {
            the(&report, id);
        }
    }
}

#[tokio::test]
async fn ops_01_everything_wrong_is_found_at_once_and_json_says_the_same() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("atonce").await;
    client
        .batch_execute(
            "CREATE TABLE \"a b\" (v int); CREATE TABLE a_b (id int PRIMARY KEY); CREATE VIEW w AS SELECT 1;
             CREATE PUBLICATION p FOR TABLE \"a b\", a_b WITH (publish = 'insert, update')",
        )
        .await
        .unwrap();
    let sql = sql(server, &db).await;
    let mut request = request(&["public.\"a b\"", "public.a_b", "public.w", "public.none"]);
    request.creates_slot = false;
    let topic = |table: &TableName| format!("x.{}", table.table.replace(' ', "_"));
    request.topic = Some(&topic);
    let report = check(&sql, &request).await;
    for (id, severity) in [
        (id::PUBLICATION_OPERATIONS, Severity::Warning),
        (id::REPLICA_IDENTITY, Severity::Warning),
        (id::KEYLESS_TABLE, Severity::Warning),
        (id::TOPIC_COLLISION, Severity::Error),
        (id::SLOT_STATE, Severity::Error),
    ] {
        let finding = the(&report, id);
        assert_eq!(finding.severity, severity, "{report}");
        assert!(finding.fix.is_some(), "{finding}");
    }
    assert_eq!(
        report.named(id::TABLE_MISSING).filter(|finding| finding.severity == Severity::Error).count(),
        2
    );
    let error = report.to_error().unwrap();
    assert!(error.message().contains("topic_collision") && error.message().contains("slot_state"));

    let text = report.to_string();
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    let findings = json["findings"].as_array().unwrap();
    assert_eq!(findings.len(), report.findings.len());
    for finding in findings {
        for field in ["id", "subject", "message", "fix"] {
            if let Some(part) = finding[field].as_str() {
                assert!(text.contains(part), "{field} is not in the text: {part}");
            }
        }
    }
    assert!(findings.iter().any(|finding| finding["severity"] == "error"));
}

#[tokio::test]
async fn ops_01_a_probe_that_blocks_becomes_could_not_look_and_the_rest_is_answered() {
    crabka_testkit::needs!(postgres);
    // Its own server: the lock would stop the other tests' publications.
    let server = PgServer::start().await.unwrap();
    let client = server.connect("postgres").await.unwrap();
    client.batch_execute(GOOD).await.unwrap();
    let sql = sql(&server, "postgres").await;
    let limit = sql.statement_limit();
    client.batch_execute("BEGIN; LOCK TABLE pg_publication IN ACCESS EXCLUSIVE MODE").await.unwrap();

    let mut request = request(&["public.orders"]);
    request.probe_limit = Duration::from_millis(300);
    request.total_limit = Duration::from_secs(5);
    let begin = Instant::now();
    let report = check(&sql, &request).await;
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    for id in [id::PUBLICATION_MISSING, id::PUBLICATION_OPERATIONS, id::REPLICA_IDENTITY, id::TOPIC_COLLISION]
    {
        let severity = the(&report, id).severity;
        let expected = if id == id::TOPIC_COLLISION { Severity::Ok } else { Severity::CouldNotLook };
        assert_eq!(severity, expected, "{id}:\n{report}");
    }
    assert_eq!(the(&report, id::WAL_LEVEL).severity, Severity::Ok);
    assert_eq!(the(&report, id::SLOT_STATE).severity, Severity::Ok);
    assert_eq!(report.of(Severity::Error).count(), 0, "not knowing is no error:\n{report}");
    assert_eq!(sql.statement_limit(), limit);

    client.batch_execute("ROLLBACK").await.unwrap();
    let report = check(&sql, &request).await;
    assert_eq!(report.worst(), Severity::Ok, "the session is usable afterwards:\n{report}");
}

#[tokio::test]
async fn ops_01_a_server_that_stops_answering_ends_the_check_in_time() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap();
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let sql = SqlConnection::connect_url(&url).await.unwrap();
    proxy.blackhole(Direction::ToServer);
    proxy.blackhole(Direction::ToClient);
    let mut request = request(&["public.orders"]);
    request.probe_limit = Duration::from_millis(300);
    request.total_limit = Duration::from_secs(2);
    let begin = Instant::now();
    let report = check(&sql, &request).await;
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    assert!(!report.findings.is_empty());
    assert!(report.findings.iter().all(|finding| finding.severity == Severity::CouldNotLook), "{report}");
}

#[tokio::test]
async fn ops_01_a_check_leaves_nothing_behind() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let client = server.connect("postgres").await.unwrap();
    client.batch_execute("CREATE TABLE orders (id int PRIMARY KEY)").await.unwrap();
    let state = "SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_publication), \
                 (SELECT count(*) FROM pg_class), (SELECT txid_snapshot_xmax(txid_current_snapshot()))";
    let read = |client| async move {
        let row = tokio_postgres::Client::query_one(client, state, &[]).await.unwrap();
        (0..4).map(|index| row.get::<_, i64>(index)).collect::<Vec<_>>()
    };
    let sql = sql(&server, "postgres").await;
    let before = read(&client).await;
    let mut request = request(&["public.orders"]);
    request.creates_publication = true;
    check(&sql, &request).await;
    assert_eq!(read(&client).await, before, "slots, publications, relations, transaction ids used");
}

#[tokio::test]
async fn an_unreachable_server_is_a_report_too() {
    let error = SqlConnection::connect_url("host=127.0.0.1 port=1 user=x").await.unwrap_err();
    let report = Report::unreachable(&error);
    assert_eq!(the(&report, id::CONNECTION).severity, Severity::CouldNotLook);
    assert!(report.to_string().contains("connection"));

    crabka_testkit::needs!(postgres);
    let server = crabka_testkit::PgServer::shared_default().await.unwrap();
    let error = SqlConnection::connect_url(&server.url("no_such_database")).await.unwrap_err();
    let report = Report::unreachable(&error);
    assert_eq!(the(&report, id::CONNECTION).severity, Severity::Error, "the operator must act: {report}");
}
