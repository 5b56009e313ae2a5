//! Throw-away PostgreSQL clusters: each promise of `PgServer`, against the real server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crabka_testkit::{Error, PgServer, StopMode, needs, pg_available_majors};

async fn one(client: &tokio_postgres::Client, sql: &str) -> String {
    let messages = client.simple_query(sql).await.unwrap();
    messages
        .iter()
        .find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap().to_owned()),
            _ => None,
        })
        .unwrap()
}

#[tokio::test]
async fn starts_ready_for_logical_replication() {
    needs!(postgres);
    drop(PgServer::start().await.unwrap());
    let began = Instant::now();
    let server = PgServer::start().await.unwrap();
    println!("start with a template: {} ms", began.elapsed().as_millis());
    let client = server.connect("postgres").await.unwrap();
    assert_eq!(one(&client, "SHOW wal_level").await, "logical");
    assert_eq!(
        one(&client, "SHOW server_version").await.split(' ').next().unwrap(),
        server.install().version()
    );
    client.batch_execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')").await.unwrap();
}

#[tokio::test]
async fn every_major_that_is_installed_starts() {
    needs!(postgres);
    for major in pg_available_majors() {
        let server = PgServer::builder().major(major).start().await.unwrap();
        let client = server.connect("postgres").await.unwrap();
        let number: u32 = one(&client, "SHOW server_version_num").await.parse().unwrap();
        assert_eq!(number / 10_000, major);
        client.batch_execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')").await.unwrap();
    }
}

#[tokio::test]
async fn the_unix_socket_and_tcp_lead_to_the_same_cluster() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let (client, connection) =
        tokio_postgres::connect(&server.unix_url("postgres"), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(one(&client, "SELECT inet_client_addr() IS NULL").await, "t");
    let id = "SELECT system_identifier FROM pg_control_system()";
    let by_tcp = server.connect("postgres").await.unwrap();
    assert_eq!(one(&client, id).await, one(&by_tcp, id).await);
}

#[tokio::test]
async fn two_servers_are_two_clusters() {
    needs!(postgres);
    let (a, b) = (PgServer::start().await.unwrap(), PgServer::start().await.unwrap());
    let id = "SELECT system_identifier FROM pg_control_system()";
    let (ca, cb) = (a.connect("postgres").await.unwrap(), b.connect("postgres").await.unwrap());
    assert_ne!(one(&ca, id).await, one(&cb, id).await);
    // The rewritten identity survives what reads it back: a checkpoint, a crash and its recovery.
    let before = one(&ca, id).await;
    ca.batch_execute(
        "CREATE TABLE t AS SELECT generate_series(1, 1000) i; CHECKPOINT; INSERT INTO t VALUES (1)",
    )
    .await
    .unwrap();
    a.kill9().await.unwrap();
    a.start_again().await.unwrap();
    let ca = a.connect("postgres").await.unwrap();
    assert_eq!(one(&ca, id).await, before);
    assert_eq!(one(&ca, "SELECT count(*) FROM t").await, "1001");
}

#[tokio::test]
async fn each_way_to_stop_tells_how_it_went() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let port = server.port();
    let client = server.connect("postgres").await.unwrap();
    let limit = Duration::from_millis(300);
    let refused = server.stop_within(StopMode::Smart, limit).await.unwrap_err();
    assert!(
        matches!(&refused, Error::StillRunning { waited, log, .. } if *waited >= limit && log.contains("smart shutdown"))
    );
    assert!(server.is_running());
    drop(client);
    assert_eq!(server.stop(StopMode::Fast).await.unwrap().code, 0);
    assert!(!server.is_running());
    assert!(matches!(server.stop(StopMode::Fast).await, Err(Error::State(_))));

    server.start_again().await.unwrap();
    assert_eq!(server.port(), port);
    let _held = server.connect("postgres").await.unwrap();
    server.stop(StopMode::Immediate).await.unwrap();
    server.start_again().await.unwrap();
    assert!(server.log().contains("automatic recovery in progress"));
    server.kill9().await.unwrap();
    assert!(server.connect("postgres").await.is_err());
    server.start_again().await.unwrap();
    server.connect("postgres").await.unwrap();
    assert!(matches!(server.start_again().await, Err(Error::State(_))));
}

#[tokio::test]
async fn a_server_that_cannot_start_shows_its_log() {
    needs!(postgres);
    let error = PgServer::builder().setting("shared_buffers", "no such size").start().await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::NotReady { .. }) && text.contains("shared_buffers"), "{text}");
}

#[tokio::test]
async fn settings_hba_lines_and_files_reach_the_server() {
    needs!(postgres);
    let server = PgServer::builder()
        .setting("wal_sender_timeout", "1234ms")
        .setting("search_path", "it's, public")
        .hba("host all locked 127.0.0.1/32 reject")
        .file("note.txt", "hello")
        .start()
        .await
        .unwrap();
    let client = server.connect("postgres").await.unwrap();
    assert_eq!(one(&client, "SHOW wal_sender_timeout").await, "1234ms");
    assert_eq!(one(&client, "SHOW search_path").await, "it's, public");
    assert_eq!(one(&client, "SELECT pg_read_file('note.txt')").await, "hello");
    client.batch_execute("CREATE ROLE locked LOGIN").await.unwrap();
    assert!(matches!(server.connect_as("locked", "postgres").await, Err(Error::Sql(_))));

    server.set_hba(&[]).await.unwrap();
    server.set("wal_sender_timeout", "4321ms").await.unwrap();
    server.reload().await.unwrap();
    for _ in 0..200 {
        if one(&client, "SHOW wal_sender_timeout").await == "4321ms"
            && server.connect_as("locked", "postgres").await.is_ok()
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the reload had no effect");
}

#[test]
fn the_shared_server_outlives_the_runtime_that_started_it() {
    needs!(postgres);
    let mut ports = Vec::new();
    let mut names = Vec::new();
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = PgServer::shared_default().await.unwrap();
            let database = server.create_database("own").await.unwrap();
            let client = server.connect(&database).await.unwrap();
            assert_eq!(one(&client, "SELECT current_database()").await, database);
            ports.push(server.port());
            names.push(database);
        });
    }
    assert_eq!(ports[0], ports[1]);
    assert_ne!(names[0], names[1]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_clock_does_not_matter() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    server.stop(StopMode::Fast).await.unwrap();
    server.start_again().await.unwrap();
}

#[tokio::test]
async fn a_dropped_server_leaves_nothing_behind() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let (data, port) = (server.data_dir(), server.port());
    assert!(data.join("PG_VERSION").is_file());
    drop(server);
    assert!(!data.parent().unwrap().exists());
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}

/// Run by the next test in a process of its own, which is then killed.
#[tokio::test]
async fn child_that_is_killed() {
    let Some(note) = std::env::var_os("CRABKA_TESTKIT_CHILD") else { return };
    let server = PgServer::start().await.unwrap();
    let draft = std::path::Path::new(&note).with_extension("draft");
    std::fs::write(&draft, format!("{} {}", server.port(), server.data_dir().display())).unwrap();
    std::fs::rename(&draft, &note).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
}

#[test]
fn a_test_process_killed_with_sigkill_takes_its_server_along() {
    needs!(postgres);
    let scratch = tempfile::tempdir().unwrap();
    let note = scratch.path().join("note");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_is_killed", "--nocapture"])
        .env("CRABKA_TESTKIT_CHILD", &note)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !note.exists() && began.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = std::fs::read_to_string(&note).unwrap();
    let (port, data) = text.split_once(' ').unwrap();
    let port: u16 = port.parse().unwrap();
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    child.kill().unwrap();
    child.wait().unwrap();
    let began = Instant::now();
    let gone =
        || std::net::TcpStream::connect(("127.0.0.1", port)).is_err() && !std::path::Path::new(data).exists();
    while !gone() {
        assert!(began.elapsed() < Duration::from_secs(15), "the server or its files are still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn a_stop_that_takes_long_can_be_watched_and_cut_short() {
    needs!(postgres);
    let server = std::sync::Arc::new(PgServer::start().await.unwrap());
    let _held = server.connect("postgres").await.unwrap();
    let stopping = {
        let server = std::sync::Arc::clone(&server);
        tokio::spawn(async move { server.stop(StopMode::Smart).await })
    };
    while !server.log().contains("smart shutdown") {
        assert!(server.is_running());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.stop(StopMode::Fast).await.unwrap();
    assert_eq!(stopping.await.unwrap().unwrap().code, 0);
}
