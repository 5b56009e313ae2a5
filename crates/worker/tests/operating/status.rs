//! `crabka status`: what the worker tells, and what the server alone can tell.

use std::time::Duration;

use crabka_testkit::{PgServer, needs};
use serde_json::Value;

use crate::command::database::{Database, until_ids};
use crate::command::{Running, Workplace, last_line, stderr, stdout};

/// The status of a connector whose worker cannot be asked.
fn without_worker(place: &Workplace) -> Value {
    let output = place.output("status", &["--json"]);
    assert_eq!(output.status.code(), Some(10), "{}", stderr(&output));
    let seen: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(seen["worker"], Value::Null, "{seen}");
    seen
}

async fn lsn(database: &Database, column: &str) -> String {
    let query = format!("SELECT {column}::text FROM pg_replication_slots WHERE slot_name = $1");
    database.sql.query_one(&query, &[&database.name]).await.unwrap().get(0)
}

/// The server takes in the worker's last status before it lets go of the slot, which may be after the worker's end.
async fn until_unread(database: &Database) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    let query = "SELECT active FROM pg_replication_slots WHERE slot_name = $1";
    while database.sql.query_one(query, &[&database.name]).await.unwrap().get(0) {
        assert!(std::time::Instant::now() < end, "the slot is still read");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_worker_the_server_and_the_store_are_asked() {
    needs!(postgres);
    let database = Database::new().await;
    let place = database.config();
    let seen = without_worker(&place);
    assert_eq!(seen["no_worker_because"], "a worker cannot be asked: http.listen is not set", "{seen}");
    assert_eq!(seen["server"]["slot"]["exists"], false, "{seen}");
    let screen = place.output("status", &[]);
    assert!(stdout(&screen).contains(&format!("{} does not exist", database.name)), "{}", stdout(&screen));
    assert!(last_line(&screen).contains("set http.listen"), "{}", last_line(&screen));

    assert!(place.output("init", &[]).status.success());
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    let mut running = place.run(&[]);
    until_ids(&mut running, &place, &[1]);
    running.terminate();
    until_unread(&database).await;
    database.run("INSERT INTO orders SELECT i, repeat('x', 1000) FROM generate_series(2, 300) i").await;
    let seen = without_worker(&place);
    let slot = &seen["server"]["slot"];
    assert_eq!(slot["confirmed_flush_lsn"], lsn(&database, "confirmed_flush_lsn").await, "{seen}");
    assert_eq!(slot["restart_lsn"], lsn(&database, "restart_lsn").await, "{seen}");
    assert_eq!(seen["server"]["stored_position"]["lsn"], slot["confirmed_flush_lsn"], "{seen}");
    assert!(slot["bytes_behind"].as_i64().unwrap() > 300_000, "{seen}");
    // Of one moment each, and others write to the same server: what is kept is compared with what it must be at least.
    assert!(slot["wal_retained_bytes"].as_i64().unwrap() > 300_000, "{seen}");
    assert_eq!((&slot["holder"], &slot["wal_status"]), (&Value::Null, &"reserved".into()), "{seen}");
    let screen = stdout(&place.output("status", &[]));
    for part in ["read by     nobody", "wal_status reserved", "no max_slot_wal_keep_size"] {
        assert!(screen.contains(part), "no {part} in:\n{screen}");
    }

    // Nothing answers where the worker should listen, or something else does.
    let nobody = place.output("status", &["--set", "http.listen=127.0.0.1:1"]);
    assert_eq!(nobody.status.code(), Some(10));
    assert!(stdout(&nobody).contains("no worker answers on 127.0.0.1:1: "), "{}", stdout(&nobody));
    assert!(stdout(&nobody).contains("wal_status reserved"), "{}", stdout(&nobody));
    database.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_19_what_holds_the_wal_back_is_named_with_what_ends_it() {
    needs!(postgres);
    let server = PgServer::builder().setting("max_prepared_transactions", 5).start().await.unwrap();
    let database = Database::on(&server).await;
    let place = database.config();
    assert!(place.output("init", &[]).status.success());
    database.run("BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'forgotten'").await;
    let mut running = place.run(&[]);
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    until_ids(&mut running, &place, &[1]);
    running.until_log("streaming");
    running.terminate();
    until_unread(&database).await;
    assert_ne!(lsn(&database, "restart_lsn").await, lsn(&database, "confirmed_flush_lsn").await);

    // Named once it is older than what is usual.
    let end = std::time::Instant::now() + Duration::from_secs(60);
    let mut seen = without_worker(&place);
    while seen["server"]["slot"]["held_by"].is_null() {
        assert!(std::time::Instant::now() < end, "{seen}");
        seen = without_worker(&place);
    }
    let held = &seen["server"]["slot"]["held_by"];
    assert!(held["age_ms"].as_i64() >= Some(5_000), "{seen}");
    assert_eq!((&held["gid"], &held["user"]), (&"forgotten".into(), &"postgres".into()), "{seen}");
    let screen = stdout(&place.output("status", &[]));
    assert!(screen.contains("held by     the prepared transaction \"forgotten\", user postgres"), "{screen}");
    database.run(held["ended_by"].as_str().unwrap()).await;
    assert_eq!(without_worker(&place)["server"]["slot"]["held_by"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_until_the_slot_is_lost_follows_from_the_present_rate() {
    needs!(postgres);
    let server = PgServer::builder().setting("max_slot_wal_keep_size", "1GB").start().await.unwrap();
    let database = Database::on(&server).await;
    let place = database.config();
    assert!(place.output("init", &[]).status.success());
    let writer = server.connect(&database.name).await.unwrap();
    let writing = tokio::spawn(async move {
        loop {
            let write = "SELECT pg_logical_emit_message(false, 'test', repeat('x', 10000))";
            writer.batch_execute(write).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let (mut watching, out) =
        Running::start(&place.path(""), &["status", "-c", &place.config(), "--watch", "--json"]);
    let growing = watching.until("a rate", || {
        let text = std::fs::read_to_string(&out).unwrap_or_default();
        let line = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).nth(1)?;
        let seen: Value = serde_json::from_str(line).unwrap();
        Some(seen["server"]["slot"].clone())
    });
    let (rate, lost_in_ms) = (growing["retained_bytes_per_second"].as_i64(), growing["lost_in_ms"].as_i64());
    let safe = growing["safe_wal_size_bytes"].as_i64().unwrap();
    assert!(rate.unwrap() > 10_000, "{growing}");
    assert_eq!(lost_in_ms.unwrap(), safe * 1000 / rate.unwrap(), "{growing}");
    assert_eq!(growing["max_slot_wal_keep_size_bytes"], 1 << 30, "{growing}");
    watching.signal("TERM");
    assert_eq!(watching.code(), Some(0), "{}", watching.log());
    let screen = tokio::task::spawn_blocking(move || stdout(&place.output("status", &[]))).await.unwrap();
    assert!(screen.contains("max_slot_wal_keep_size 1.0 GiB, reached in "), "{screen}");
    writing.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_tells_what_it_does_and_why_nothing_moves() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let database = Database::on(&server).await;
    let place = database.config();
    let mut running = place.run(&[
        "--set",
        "http.listen=127.0.0.1:0",
        "--set",
        "source.slot_interval_ms=200",
        "--log-format",
        "json",
    ]);
    let listen = format!("http.listen={}", running.http_address());
    let status = |arguments: &[&str]| place.output("status", &[&["--set", &listen], arguments].concat());
    running.until_log("\"streaming\"");
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    until_ids(&mut running, &place, &[1]);
    let screen = running.until("idle", || {
        let screen = status(&[]);
        (screen.status.code() == Some(0) && stdout(&screen).contains("why         idle: "))
            .then_some(stdout(&screen))
            .filter(|screen| screen.contains("wal_status reserved"))
    });
    assert!(screen.starts_with(&format!("{}: running, ready\n", database.name)), "{screen}");
    for part in ["received 0/", "acknowledged 0/", "server 0/", "last error  none"] {
        assert!(screen.contains(part), "no {part} in:\n{screen}");
    }
    let seen: Value = serde_json::from_str(&stdout(&status(&["--json"]))).unwrap();
    assert_eq!((&seen["no_worker_because"], &seen["server"]), (&Value::Null, &Value::Null), "{seen}");
    assert_eq!(seen["worker"]["positions"]["acknowledged"].as_str().map(|lsn| lsn.contains('/')), Some(true));

    // Another connector's worker is not taken for ours.
    let other = status(&["--set", "name=another"]);
    assert_eq!(other.status.code(), Some(10), "{}", stderr(&other));
    assert!(stdout(&other).contains("is not the worker of another"), "{}", stdout(&other));

    server.stop(crabka_testkit::StopMode::Fast).await.unwrap();
    let away = running.until("not ready", || {
        let screen = status(&[]);
        (screen.status.code() == Some(10) && stdout(&screen).contains("why         source: "))
            .then_some(screen)
    });
    let screen = stdout(&away);
    assert!(screen.contains("not ready") && screen.contains("transient (source), "), "{screen}");
    assert!(last_line(&away).starts_with("crabka: transient: the worker is not ready: source: "), "{screen}");
}
