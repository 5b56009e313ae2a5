//! A server that stops while the sink takes nothing.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use crabka_testkit::{PgServer, StopMode, needs};
use serde_json::Value;

use crate::command::database::Database;
use crate::command::{LIMIT, Running, crabka};

const ROWS: i64 = 20_000;

#[tokio::test(flavor = "multi_thread")]
async fn del_20_a_fast_shutdown_does_not_wait_for_a_blocked_sink() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let database = Database::on(&server).await;
    let place = database.config();
    let config = format!(
        "name = {:?}\n[source]\nurl = {:?}\ntables = [\"public.orders\"]\nunread_limit_ms = 600000\n\
         queue_bytes = 65536\n[sink]\ntype = \"stdout\"\n[checkpoint]\nstore = \"memory\"\n\
         [runtime]\nretry_max_delay_ms = 1000\n",
        database.name, database.url
    );
    std::fs::write(place.path("crabka.toml"), config).unwrap();
    assert!(place.output("init", &[]).status.success());
    database
        .run(&format!("INSERT INTO orders SELECT i, repeat('x', 1000) FROM generate_series(1, {ROWS}) i"))
        .await;
    let pipe = place.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let held = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let mut running = {
        let log = place.path("stderr.log");
        let child = crabka()
            .args(["run", "-c", &place.config()])
            .stdout(held.try_clone().unwrap())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Running::of(child, log)
    };
    running.until_log("streaming");
    // Full all the way: the server waits until somebody reads what it writes.
    let blocked = "pg_stat_activity WHERE backend_type = 'walsender' AND wait_event = 'WalSenderWriteData'";
    let (end, mut seen) = (Instant::now() + LIMIT, 0);
    while seen < 10 {
        seen = if database.count(blocked).await == 1 { seen + 1 } else { 0 };
        assert!(Instant::now() < end, "the server never waited:\n{}", running.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    // Far below the limit on an unread socket: the server's own end comes within the test kit's.
    server.stop(StopMode::Fast).await.unwrap();
    running.until_log("closing the replication connection, keeping the position");
    server.start_again().await.unwrap();
    let reading = std::thread::spawn(move || {
        let mut ids = BTreeSet::new();
        for line in BufReader::new(held).lines() {
            let record: Value = serde_json::from_str(&line.unwrap()).unwrap();
            ids.extend(record["key"]["id"].as_i64());
            if ids.len() == usize::try_from(ROWS).unwrap() {
                break;
            }
        }
        ids
    });
    running.until("every row", || reading.is_finished().then_some(()));
    let ids = reading.join().unwrap();
    assert_eq!((ids.first(), ids.last(), ids.len()), (Some(&1), Some(&ROWS), 20_000));
}
