//! The server's certificate expires while the worker runs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crabka_testkit::{PgServer, needs};
use crabka_tests::{Database, FileRun, Worker};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio::time::{Instant, sleep};

/// How long the short certificate is valid once the server shows it: enough to start the worker on a slow machine.
const VALID: Duration = Duration::from_secs(15);

/// How long the one before it is.
const LONG: Duration = Duration::from_secs(86_400);

const LIMIT: Duration = Duration::from_secs(60);

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate of localhost for this key, valid until so long after 1970.
    fn issue(&self, key: &KeyPair, until: Duration) -> String {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(1970, 1, 1) + until;
        params.signed_by(key, &self.issuer).unwrap().pem()
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

fn ids(run: &FileRun) -> Vec<i64> {
    run.lines().iter().map(|line| line["key"]["id"].as_i64().unwrap()).collect()
}

/// Waits until the file has these rows, in order.
async fn until_ids(run: &FileRun, worker: &Worker, wanted: &[i64]) {
    let deadline = Instant::now() + LIMIT;
    while ids(run) != wanted {
        assert!(Instant::now() < deadline, "{:?}, wanted {wanted:?}:\n{}", ids(run), worker.log());
        sleep(Duration::from_millis(50)).await;
    }
}

/// Puts a certificate for the server's key into its place, and waits until new sessions are shown it.
async fn show(server: &PgServer, name: &str, certificate: &str) {
    std::fs::write(server.data_dir().join(name), certificate).unwrap();
    server.set("ssl_cert_file", name).await.unwrap();
    server.reload().await.unwrap();
    let deadline = Instant::now() + LIMIT;
    loop {
        let session = server.connect("postgres").await.unwrap();
        if session.query_one("SHOW ssl_cert_file", &[]).await.unwrap().get::<_, String>(0) == name {
            return;
        }
        assert!(Instant::now() < deadline, "the server does not read {name}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_expires_ends_no_connection_and_refuses_the_next_one_clearly() {
    needs!(postgres);
    let authority = Authority::new();
    let key = KeyPair::generate().unwrap();
    let server = PgServer::builder()
        .setting("ssl", "on")
        .setting("ssl_cert_file", "long.crt")
        .setting("ssl_key_file", "server.key")
        .file("long.crt", authority.issue(&key, now() + LONG))
        // Written later; here they get the owner that the server wants.
        .file("short.crt", "")
        .file("renewed.crt", "")
        .file("server.key", key.serialize_pem())
        .start()
        .await
        .unwrap();
    let server = Arc::new(server);
    let mut database = Database::on(&server, "CREATE TABLE t (id int PRIMARY KEY)").await;
    let root = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(root.path(), &authority.pem).unwrap();
    database.url = format!(
        "postgres://postgres@localhost:{}/{}?hostaddr=127.0.0.1&sslmode=verify-full&sslrootcert={}",
        server.port(),
        database.name,
        root.path().display()
    );
    let run = FileRun::of(Arc::clone(&server), database, "public.t");
    // Issued as late as possible: the server is up, and the worker starts as soon as it shows it.
    let until = now() + VALID;
    show(&server, "short.crt", &authority.issue(&key, until)).await;
    let mut worker = run.worker();
    run.database.slot_made(&run.database.slot()).await;
    run.database.run("INSERT INTO t VALUES (1)").await;
    until_ids(&run, &worker, &[1]).await;
    assert!(now() < until, "the machine was too slow for a certificate of {VALID:?}");

    sleep(until.saturating_sub(now()) + Duration::from_secs(2)).await;
    run.database.run("INSERT INTO t VALUES (2)").await;
    until_ids(&run, &worker, &[1, 2]).await;

    let terminate = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1";
    run.database.sql.query(terminate, &[&run.database.slot()]).await.unwrap();
    let ended = worker.ended(LIMIT);
    assert_eq!(ended.code(), Some(11), "{}", worker.log());
    let log = worker.log();
    let last = log.lines().last().unwrap();
    assert!(
        last.starts_with("crabka: configuration: ") && last.contains("certificate has expired"),
        "{last}"
    );
    assert!(last.contains("renew it on the server"), "{last}");

    run.database.run("INSERT INTO t VALUES (3)").await;
    show(&server, "renewed.crt", &authority.issue(&key, now() + LONG)).await;
    let again = run.worker();
    until_ids(&run, &again, &[1, 2, 3]).await;
    assert!(again.terminate(LIMIT).success());
}
