//! What networks do to the connections with the broker, under load; and a broker that takes nothing for longer than the
//! source may leave its connection unread: DEL-20, DEL-35, KAF-13. (That the server does not lose its patience before is
//! DEL-36, in `network_postgres.rs`.)

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use crabka_testkit::{Direction, FaultProxy, KafkaBroker, Side, StopMode, needs};
use crabka_tests::{BATCH_RECORDS, Database, KafkaRun, Writers};
use tokio::time::{Instant, sleep};

/// A broker behind a proxy, which all its clients go through.
async fn proxied() -> (KafkaBroker, FaultProxy) {
    let proxy = FaultProxy::start("127.0.0.1:1").unwrap();
    let broker = KafkaBroker::builder().advertise(proxy.address()).start().await.unwrap();
    proxy.set_target(broker.proxied_address().unwrap());
    (broker, proxy)
}

/// Time-outs of a client that are shorter than the test.
const IMPATIENT: &str = "partitions = 1
            delivery_timeout_ms = 5000
            request_timeout_ms = 5000
            flush_timeout_ms = 1000
            [sink.properties]
            \"socket.timeout.ms\" = 2000
            \"reconnect.backoff.max.ms\" = 200";

type Fault = (&'static str, fn(&FaultProxy), Duration);

/// Each with the time for which it lasts.
const FAULTS: &[Fault] = &[
    ("cut", FaultProxy::cut, Duration::ZERO),
    ("reset", FaultProxy::reset, Duration::ZERO),
    (
        "nobody listens",
        |proxy| {
            proxy.refuse();
            proxy.reset();
        },
        Duration::from_secs(1),
    ),
    ("half-open, the broker is gone", |proxy| proxy.half_open(Side::Server), Duration::ZERO),
    ("half-open, the worker is gone", |proxy| proxy.half_open(Side::Client), Duration::ZERO),
    ("black hole to the worker", |proxy| proxy.blackhole(Direction::ToClient), Duration::from_secs(6)),
    ("black hole to the broker", |proxy| proxy.blackhole(Direction::ToServer), Duration::from_secs(3)),
    ("throttle", |proxy| proxy.throttle(Direction::ToServer, 20_000), Duration::from_secs(2)),
    (
        "byte at a time",
        |proxy| {
            proxy.byte_at_a_time(Direction::ToClient);
            proxy.byte_at_a_time(Direction::ToServer);
        },
        Duration::from_secs(2),
    ),
];

/// Waits until what is in the table now is confirmed.
async fn goes_on(run: &KafkaRun) {
    let written = run.database.wal_end().await;
    run.database.confirmed_at_least(&run.slot, written, Duration::from_secs(90)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_network_does_to_the_broker_under_load_nothing_is_lost() {
    needs!(postgres, kafka);
    let (broker, proxy) = proxied().await;
    let mut run = KafkaRun::new(&proxy.address().to_string()).await;
    run.config = run.config.replace("partitions = 1", IMPATIENT);
    let mut worker = run.worker();
    run.database.slot_made(&run.slot).await;
    let writers = Writers::start(Arc::clone(&run.server), &run.database, 2);
    goes_on(&run).await;
    for (what, fault, lasts) in FAULTS {
        fault(&proxy);
        sleep(*lasts).await;
        proxy.heal();
        goes_on(&run).await;
        assert!(worker.is_running(), "{what}:\n{}", worker.log());
    }
    let last = writers.stop().await;
    let ledger = run.read_ledger(&broker.bootstrap_servers(), last).await;
    // A producer that is made anew cannot know what the broker kept of the batch that failed.
    let attempts = worker.log().matches("reopening from the last checkpoint").count();
    assert!(ledger.repeats <= attempts * BATCH_RECORDS, "{} repeats in {attempts} attempts", ledger.repeats);
    assert!(worker.terminate(Duration::from_secs(60)).success());
}

async fn walsender(run: &KafkaRun) -> Option<i32> {
    let pid = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1";
    run.database.sql.query_one(pid, &[&run.slot]).await.unwrap().get(0)
}

/// A run whose source bears an unread connection for a while, and has little room for what is on its way.
async fn backlogged(proxy: &FaultProxy) -> KafkaRun {
    let mut run = KafkaRun::new(&proxy.address().to_string()).await;
    run.config = run.config.replace(
        "heartbeat_interval_ms = 1000",
        "heartbeat_interval_ms = 1000\nqueue_bytes = 65536\nunread_limit_ms = 15000",
    );
    // The sink waits for much longer: what is seen is the source's doing.
    run.config = run.config.replace(
        "partitions = 1",
        "partitions = 1\nrequest_timeout_ms = 300000\ndelivery_timeout_ms = 300000",
    );
    run
}

/// Fills everything between the server and a broker that takes nothing; gives the number of rows.
async fn fill(database: &Database) -> i64 {
    database.run("ALTER TABLE ledger ADD pad text").await;
    let rows = 10_000;
    database
        .run(&format!("INSERT INTO ledger SELECT 0, g, repeat('x', 1000) FROM generate_series(2, {rows}) g"))
        .await;
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn del_35_a_blocked_sink_keeps_the_connection_for_its_time_and_then_gives_it_up_on_purpose() {
    needs!(postgres, kafka);
    let (broker, proxy) = proxied().await;
    let run = backlogged(&proxy).await;
    let worker = run.worker();
    run.database.slot_made(&run.slot).await;
    run.database.run("INSERT INTO ledger VALUES (0, 1)").await;
    goes_on(&run).await;
    let pid = walsender(&run).await.expect("a walsender");
    proxy.blackhole(Direction::ToClient);
    let rows = fill(&run.database).await;
    let confirmed = run.database.confirmed_of(&run.slot).await;

    // Kept until it is closed on purpose, once and for that reason.
    let deadline = Instant::now() + Duration::from_secs(90);
    while let Some(now) = walsender(&run).await {
        assert_eq!(now, pid, "another connection:\n{}", worker.log());
        assert!(Instant::now() < deadline, "the unread connection is not closed:\n{}", worker.log());
        sleep(Duration::from_millis(100)).await;
    }
    // No new one before there is room.
    for _ in 0..30 {
        sleep(Duration::from_millis(100)).await;
        assert_eq!(walsender(&run).await, None, "{}", worker.log());
    }
    let said = |log: &str| log.matches("the queue has been full for too long").count();
    assert_eq!(said(&worker.log()), 1, "{}", worker.log());
    assert_eq!(run.database.confirmed_of(&run.slot).await, confirmed);

    proxy.heal();
    let ledger = run.read_ledger(&broker.bootstrap_servers(), vec![rows]).await;
    assert!(ledger.repeats <= BATCH_RECORDS, "{} repeats", ledger.repeats);
    assert!(worker.terminate(Duration::from_secs(60)).success());
}

/// Waits until the walsender has sent nothing for a while: it stands in its socket.
async fn stands_still(run: &KafkaRun) {
    let query =
        "SELECT sent_lsn::text, wait_event FROM pg_stat_replication JOIN pg_stat_activity USING (pid)";
    let (mut before, mut still) = (None, 0);
    while still < 20 {
        let row = run.database.sql.query_one(query, &[]).await.expect("a walsender");
        let now: (Option<String>, Option<String>) = (row.get(0), row.get(1));
        let blocked = now.1.as_deref() == Some("WalSenderWriteData");
        still = if blocked && before.as_ref() == Some(&now) { still + 1 } else { 0 };
        before = Some(now);
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn del_20_a_server_stops_fast_although_the_sink_is_blocked() {
    needs!(postgres, kafka);
    let (broker, proxy) = proxied().await;
    let run = backlogged(&proxy).await;
    let mut worker = run.worker();
    run.database.slot_made(&run.slot).await;
    run.database.run("INSERT INTO ledger VALUES (0, 1)").await;
    goes_on(&run).await;
    proxy.blackhole(Direction::ToClient);
    let rows = fill(&run.database).await;
    stands_still(&run).await;
    // Without the bound the walsender would stand there for ever.
    let stopped = run.server.stop_within(StopMode::Fast, Duration::from_secs(50)).await.unwrap();
    println!("stopped after {:?}", stopped.took);
    run.server.start_again().await.unwrap();
    proxy.heal();
    let ledger = run.read_ledger(&broker.bootstrap_servers(), vec![rows]).await;
    assert!(ledger.repeats <= BATCH_RECORDS, "{} repeats", ledger.repeats);
    assert!(worker.is_running());
    assert!(worker.terminate(Duration::from_secs(60)).success());
}
