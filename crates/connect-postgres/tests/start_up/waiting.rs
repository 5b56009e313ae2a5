//! DEL-34: the creation of a slot waits for running transactions.

use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crabka_connect::ErrorClass;
use crabka_connect_postgres::SqlConnection;
use crabka_connect_postgres::catalog;
use crabka_connect_postgres::check::{Severity, check, id};
use crabka_connect_postgres::setup::{SetupRequest, abandoned_creations_cancelled, apply, plan};
use crabka_testkit::{PgServer, pg_available_majors};
use tokio::time::{Instant, sleep, timeout};
use tracing_subscriber::fmt::MakeWriter;

use crate::requests::{GOOD, the};
use crate::{config, patterns, sql};

/// Log lines of this thread, with the time since the start.
#[derive(Clone)]
struct Log {
    begin: Instant,
    lines: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line).into_owned();
        self.lines.lock().unwrap().push((self.begin.elapsed(), text));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn logged() -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log { begin: Instant::now(), lines: Arc::default() };
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    (log, tracing::subscriber::set_default(subscriber))
}

struct Blocked {
    server: PgServer,
    here: tokio_postgres::Client,
    elsewhere: tokio_postgres::Client,
    pids: [i32; 2],
}

/// Open transactions in this and another database, and a prepared one.
async fn blocked(major: u32) -> Blocked {
    let server = PgServer::builder().major(major).start().await.unwrap();
    let here = server.connect("postgres").await.unwrap();
    here.batch_execute(GOOD).await.unwrap();
    here.batch_execute("CREATE DATABASE other").await.unwrap();
    here.batch_execute("CREATE ROLE clerk LOGIN; GRANT ALL ON orders TO clerk").await.unwrap();
    here.batch_execute("BEGIN; INSERT INTO orders VALUES (3); PREPARE TRANSACTION 'it''s prepared'")
        .await
        .unwrap();
    let elsewhere = server.connect("other").await.unwrap();
    elsewhere.batch_execute("BEGIN; CREATE TABLE t ()").await.unwrap();
    let here = server.connect_as("clerk", "postgres").await.unwrap();
    here.batch_execute("BEGIN; SAVEPOINT s; INSERT INTO orders VALUES (1)").await.unwrap();
    let mut pids = [0; 2];
    for (pid, client) in pids.iter_mut().zip([&here, &elsewhere]) {
        *pid = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    }
    Blocked { server, here, elsewhere, pids }
}

impl Blocked {
    fn assert_named(&self, text: &str) {
        let [here, elsewhere] = self.pids;
        for part in [
            format!("[pid {here}, user clerk, database postgres"),
            format!("[pid {elsewhere}, user postgres, database other"),
            "[prepared transaction \"it's prepared\", user postgres, database postgres".to_owned(),
        ] {
            assert!(text.contains(&part), "{part} is not in: {text}");
        }
        assert!(text.contains("age "), "{text}");
    }

    async fn end(&self) {
        self.here.batch_execute("ROLLBACK").await.unwrap();
        self.elsewhere.batch_execute("ROLLBACK").await.unwrap();
        let client = self.server.connect("postgres").await.unwrap();
        client.batch_execute("ROLLBACK PREPARED 'it''s prepared'").await.unwrap();
    }
}

fn request() -> SetupRequest {
    SetupRequest::new("waits", "p", patterns(&["public.orders"]))
}

async fn assert_no_slot(sql: &SqlConnection) {
    let count = "SELECT count(*) FROM pg_replication_slots";
    assert_eq!(sql.query_one("counting", count, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_creation_counts_as_not_cancelled_before_its_aborted_task_is_dropped() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let writer = server.connect("postgres").await.unwrap();
    writer.batch_execute(GOOD).await.unwrap();
    let looking = sql(&server, "postgres").await;
    writer.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    let (task_sql, config) = (sql(&server, "postgres").await, config(&server, "postgres"));
    let creation = tokio::spawn(async move {
        let request = request();
        let plan = plan(&task_sql, &request).await.unwrap();
        apply(&task_sql, &config, &request, &plan, pending()).await
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    while catalog::slot(&looking, "waits").await.unwrap().is_none() {
        assert!(Instant::now() < deadline, "no creation begins");
        sleep(Duration::from_millis(20)).await;
    }
    // One thread: the task is dropped when this one waits for the first time.
    creation.abort();
    timeout(Duration::from_secs(60), abandoned_creations_cancelled()).await.expect("a cancel that is taken");
    assert!(creation.is_finished(), "it was not waited for");
    while catalog::slot(&looking, "waits").await.unwrap().is_some() {
        assert!(Instant::now() < deadline, "the creation goes on");
        sleep(Duration::from_millis(20)).await;
    }
    writer.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn del_34_pgc_73_slot_creation_waits() {
    crabka_testkit::needs!(postgres);
    for major in pg_available_majors() {
        let blocked = blocked(major).await;
        let sql = sql(&blocked.server, "postgres").await;
        let config = config(&blocked.server, "postgres");
        let mut request = request();
        request.wait.limit = Duration::from_secs(6);
        let plan = plan(&sql, &request).await.unwrap();
        let (log, guard) = logged();
        let error = timeout(Duration::from_secs(20), apply(&sql, &config, &request, &plan, pending()))
            .await
            .expect("our own time-out ends it")
            .unwrap_err();
        let took = log.begin.elapsed();
        drop(guard);
        assert!((6.0..9.0).contains(&took.as_secs_f32()), "{took:?} on {major}");

        let lines = log.lines.lock().unwrap().clone();
        let (at, line) =
            lines.iter().find(|(_, line)| line.contains("waiting for:")).expect("a line says so");
        assert!(*at < Duration::from_secs(5), "{at:?}: {line}");
        blocked.assert_named(line);
        assert_eq!(error.class(), ErrorClass::Transient);
        blocked.assert_named(error.message());
        let fix = error.fix().unwrap();
        for part in
            ["ROLLBACK PREPARED 'it''s prepared'", &format!("pg_terminate_backend({})", blocked.pids[0])]
        {
            assert!(fix.contains(part), "{fix}");
        }
        assert_no_slot(&sql).await;

        blocked.end().await;
        let applied = apply(&sql, &config, &request, &plan, pending()).await.unwrap();
        assert_eq!(applied.slot_created.unwrap().name, "waits", "the name is free");
    }
}

#[tokio::test]
async fn del_34_a_stop_while_it_waits_leaves_no_slot() {
    crabka_testkit::needs!(postgres);
    let blocked = blocked(15).await;
    let sql = sql(&blocked.server, "postgres").await;
    let config = config(&blocked.server, "postgres");
    let request = request();
    let plan = plan(&sql, &request).await.unwrap();
    let begin = Instant::now();
    let stop = sleep(Duration::from_millis(700));
    let error = apply(&sql, &config, &request, &plan, stop).await.unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert!(error.message().contains("was stopped"), "{error}");
    assert_no_slot(&sql).await;
}

#[tokio::test]
async fn del_34_a_dropped_creation_leaves_no_slot() {
    crabka_testkit::needs!(postgres);
    let blocked = blocked(15).await;
    let sql = sql(&blocked.server, "postgres").await;
    let config = config(&blocked.server, "postgres");
    let request = request();
    let plan = plan(&sql, &request).await.unwrap();
    let dropped = timeout(Duration::from_millis(700), apply(&sql, &config, &request, &plan, pending())).await;
    assert!(dropped.is_err(), "it waited");
    let end = Instant::now() + Duration::from_secs(5);
    while catalog::slot(&sql, "waits").await.unwrap().is_some() {
        assert!(Instant::now() < end, "the half-made slot stays");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn del_34_a_wait_that_ends_is_no_error() {
    crabka_testkit::needs!(postgres);
    let blocked = blocked(15).await;
    let sql = sql(&blocked.server, "postgres").await;
    let config = config(&blocked.server, "postgres");
    let request = request();
    let plan = plan(&sql, &request).await.unwrap();
    let end = async {
        sleep(Duration::from_millis(1500)).await;
        blocked.end().await;
    };
    let (applied, ()) = tokio::join!(apply(&sql, &config, &request, &plan, pending()), end);
    assert!(applied.unwrap().slot_created.is_some());
}

#[tokio::test]
async fn ops_01_old_transactions_are_named_before_anything_waits() {
    crabka_testkit::needs!(postgres);
    let blocked = blocked(15).await;
    // A role that may not see other users' times still sees who it is.
    let client = blocked.server.connect("postgres").await.unwrap();
    client.batch_execute("CREATE ROLE plain LOGIN REPLICATION").await.unwrap();
    let plain = SqlConnection::connect_url(&blocked.server.url_as("plain", "postgres")).await.unwrap();
    let all = sql(&blocked.server, "postgres").await;
    let mut request = crate::requests::request(&["public.orders"]);
    request.old_transaction_age = Duration::from_millis(300);
    sleep(Duration::from_millis(400)).await;
    for sql in [&all, &plain] {
        let report = check(sql, &request).await;
        let finding = the(&report, id::OLD_TRANSACTIONS);
        assert_eq!(finding.severity, Severity::Warning, "{report}");
        blocked.assert_named(&finding.message);
    }
    let seen = catalog::transactions_with_xid(&all).await.unwrap();
    assert_eq!(seen.len(), 3, "a savepoint is not a second transaction: {seen:?}");
    blocked.end().await;
    let report = check(&all, &request).await;
    assert_eq!(the(&report, id::OLD_TRANSACTIONS).severity, Severity::Ok, "{report}");
}
