//! What a run tells about itself while Kafka is away or refuses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

mod command;

use std::time::{Duration, Instant};

use command::{Workplace, get, get_text};
use crabka_testkit::{FaultProxy, KafkaBroker, PgServer, needs};
use serde_json::Value;

/// How long the broker is away: long enough for a batch to stand still, to fail, and to be tried again.
const AWAY: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread")]
async fn kaf_13_readiness_says_sink_all_the_time_and_the_slot_is_still_looked_at() {
    needs!(postgres, kafka);
    let proxy = FaultProxy::start("127.0.0.1:1").unwrap();
    let broker = KafkaBroker::builder().advertise(proxy.address()).start().await.unwrap();
    proxy.set_target(broker.proxied_address().unwrap());
    let server = PgServer::shared_default().await.unwrap();
    let name = server.create_database("watch").await.unwrap();
    let sql = server.connect(&name).await.unwrap();
    sql.batch_execute("CREATE TABLE orders (id int PRIMARY KEY, v text)").await.unwrap();
    let place = Workplace::new("");
    let config = format!(
        "name = {name:?}\n[source]\nurl = {:?}\ntables = [\"public.orders\"]\nslot_interval_ms = 200\n\
         unread_limit_ms = 1000\nqueue_bytes = 65536\n[sink]\ntype = \"kafka\"\nbootstrap_servers = {:?}\n\
         partitions = 1\ndelivery_timeout_ms = 3000\nrequest_timeout_ms = 2000\nflush_timeout_ms = 1000\n\
         [checkpoint]\nstore = \"file\"\npath = {:?}\n[runtime]\nstall_limit_ms = 1000\nmax_batch_records = 500\n\
         retry_max_delay_ms = 500\n[http]\nlisten = \"127.0.0.1:0\"\n",
        server.url(&name),
        proxy.address().to_string(),
        place.path("offset")
    );
    std::fs::write(place.path("crabka.toml"), config).unwrap();
    let mut running = place.run(&["--log-format", "json"]);
    let address = running.http_address();
    running.until("ready", || (get(address, "/ready").0 == 200).then_some(()));
    sql.batch_execute("INSERT INTO orders VALUES (0, 'first')").await.unwrap();
    running
        .until("a record in Kafka", || (get(address, "/status").1["sink"]["delivered"] == 1).then_some(()));

    proxy.refuse();
    proxy.reset();
    sql.batch_execute("INSERT INTO orders SELECT i, repeat('x', 500) FROM generate_series(1, 2000) i")
        .await
        .unwrap();
    let says_sink = || {
        let (answer, body) = get(address, "/ready");
        (answer == 503 && body["code"] == "sink").then_some(body)
    };
    running.until("sink", says_sink);
    let back_at = Instant::now() + AWAY;
    let (mut phases, mut unread) = (std::collections::BTreeSet::new(), false);
    while Instant::now() < back_at {
        let (answer, body) = get(address, "/ready");
        assert_eq!((answer, &body["code"]), (503, &"sink".into()), "{body}\n{}", running.log());
        let status = get(address, "/status").1;
        phases.insert(status["phase"].as_str().unwrap().to_owned());
        unread |= status["stream"]["state"] == "unread";
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(phases.len() > 1 && unread, "{phases:?}, unread {unread}");
    let slot = running.until("a fresh look at the slot", || {
        let slot = get(address, "/status").1["slot"].clone();
        (slot["read_ms"].as_u64()? < 5_000 && slot["error"].is_null()).then_some(slot)
    });
    assert!(slot["wal_retained_bytes"].as_u64().unwrap() > 0, "{slot}");

    proxy.resume_accept();
    proxy.heal();
    running.until("ready again", || (get(address, "/ready").0 == 200).then_some(()));
    let status = running.until("everything in Kafka", || {
        let status = get(address, "/status").1;
        (status["reason"]["code"] == "idle" && status["records_checkpointed"].as_u64()? >= 2001)
            .then_some(status)
    });
    assert_eq!(status["sink"]["dead_lettered"], 0, "{status}");
    assert_eq!(status["oldest_unacknowledged_at_ms"], Value::Null, "{status}");
    let scrape = get_text(address, "/metrics").1;
    for outcome in ["failed", "retried"] {
        let label = format!("outcome=\"{outcome}\"}} ");
        let line =
            scrape.lines().find(|line| line.starts_with("crabka_batches_total{") && line.contains(&label));
        let count: u64 = line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap();
        assert!(count >= 1, "{outcome}: {count}");
    }
    running.terminate();
    sql.batch_execute(&format!("SELECT pg_drop_replication_slot('{name}')")).await.unwrap();
}
