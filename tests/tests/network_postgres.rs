//! What networks do to the connection with the server, under load: cases DEL-18, 29, 36, 37 and 38 live.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use crabka_connect_postgres::PostgresSourceConfig;
use crabka_testkit::{Direction, FaultProxy, PgServer, Side, needs};
use crabka_tests::{Database, Embedded, LEDGER_TABLE, Reader, Writers};
use tokio::time::{Instant, sleep};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v text)";

/// How long a server, or the source, waits for a sign of the other before it gives the connection up.
const PATIENCE: Duration = Duration::from_secs(2);

/// A server, and a proxy before it.
async fn proxied() -> (Arc<PgServer>, FaultProxy) {
    let server = PgServer::start().await.unwrap();
    let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap();
    (Arc::new(server), proxy)
}

/// The configuration of a database, by way of the proxy, with sessions of little patience on both sides.
fn through(proxy: &FaultProxy, database: &Database, table: &str) -> PostgresSourceConfig {
    let url = format!("postgres://postgres@127.0.0.1:{}/{}?connect_timeout=2", proxy.port(), database.name);
    let mut config = database.config(&[table]);
    let connection: crabka_pgrepl::Config = url.parse().unwrap();
    config.connection = connection.with_wal_sender_timeout(Some(PATIENCE));
    config.stream.silence_limit = Some(PATIENCE);
    config
}

type Fault = (&'static str, fn(&FaultProxy), Duration);

/// Each with the time for which it lasts. A connection that goes silent is noticed after the patience of one of the
/// sides.
const FAULTS: &[Fault] = &[
    ("cut", FaultProxy::cut, Duration::ZERO),
    ("reset", FaultProxy::reset, Duration::ZERO),
    (
        "nobody listens",
        |proxy| {
            proxy.refuse();
            proxy.reset()
        },
        Duration::from_secs(1),
    ),
    ("half-open, the server is gone", |proxy| proxy.half_open(Side::Server), Duration::ZERO),
    ("half-open, the source is gone", |proxy| proxy.half_open(Side::Client), Duration::ZERO),
    ("black hole to the source", |proxy| proxy.blackhole(Direction::ToClient), Duration::from_secs(4)),
    ("black hole to the server", |proxy| proxy.blackhole(Direction::ToServer), Duration::from_secs(4)),
    (
        "black hole",
        |proxy| {
            proxy.blackhole(Direction::ToServer);
            proxy.blackhole(Direction::ToClient);
        },
        Duration::from_secs(4),
    ),
    ("throttle", |proxy| proxy.throttle(Direction::ToClient, 4_000), Duration::from_secs(2)),
    (
        "byte at a time",
        |proxy| {
            proxy.byte_at_a_time(Direction::ToClient);
            proxy.byte_at_a_time(Direction::ToServer);
        },
        Duration::from_secs(2),
    ),
    ("late", |proxy| proxy.delay(Direction::ToClient, Duration::from_millis(400)), Duration::from_secs(1)),
];

#[tokio::test(flavor = "multi_thread")]
async fn del_29_del_38_whatever_the_network_does_under_load_every_row_comes_once() {
    needs!(postgres);
    let (server, proxy) = proxied().await;
    let database = Database::on(&server, LEDGER_TABLE).await;
    let stream = Embedded::start(through(&proxy, &database, "public.ledger")).await;
    database.slot_made(&database.slot()).await;
    let writers = Writers::start(Arc::clone(&server), &database, 2);
    stream.goes_on("at first").await;
    for (what, fault, lasts) in FAULTS {
        fault(&proxy);
        sleep(*lasts).await;
        proxy.heal();
        stream.goes_on(what).await;
    }
    let last = writers.stop().await;
    let ledger = stream.read_ledger(&last).await;
    // What was polled before the connection broke is still delivered, and the next one begins behind it.
    assert_eq!(ledger.repeats, 0);
    assert!(stream.handle.status().retries >= 5, "{:?}", stream.handle.status());
    stream.stop().await;
}

/// One status as it went over the wire.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Status {
    write: u64,
    flush: u64,
    apply: u64,
}

/// Statuses by connection, out of what a proxy has passed on: CopyData of 34 bytes that begins with `r`, behind a
/// START_REPLICATION.
/// <https://www.postgresql.org/docs/18/protocol-replication.html#PROTOCOL-REPLICATION-STANDBY-STATUS-UPDATE>
fn statuses(bytes: &[u8]) -> Vec<Vec<Status>> {
    const START: &[u8] = b"START_REPLICATION SLOT";
    const HEAD: &[u8] = &[b'd', 0, 0, 0, 38, b'r'];
    let mut connections = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(START) {
            connections.push(Vec::new());
            at += START.len();
        } else if rest.starts_with(HEAD) && rest.len() >= HEAD.len() + 24 {
            let lsn = |index: usize| {
                let from = HEAD.len() + index * 8;
                u64::from_be_bytes(rest[from..from + 8].try_into().unwrap())
            };
            let status = Status { write: lsn(0), flush: lsn(1), apply: lsn(2) };
            connections.last_mut().expect("a stream before its statuses").push(status);
            at += HEAD.len() + 24;
        } else {
            at += 1;
        }
    }
    connections
}

#[tokio::test(flavor = "multi_thread")]
async fn del_18_reported_positions_never_go_back() {
    needs!(postgres);
    let (server, proxy) = proxied().await;
    let database = Database::on(&server, LEDGER_TABLE).await;
    proxy.tap(Direction::ToServer);
    let mut config = through(&proxy, &database, "public.ledger");
    config.heartbeat_interval = Duration::from_millis(200);
    let stream = Embedded::start(config).await;
    database.slot_made(&database.slot()).await;
    for _ in 0..3 {
        let writers = Writers::start(Arc::clone(&server), &database, 2);
        stream.goes_on("load").await;
        sleep(Duration::from_millis(500)).await;
        proxy.cut();
        stream.goes_on("load after a cut").await;
        sleep(Duration::from_millis(500)).await;
        let last = writers.stop().await;
        stream.read_ledger(&last).await;
        // Idle, with foreign writes that move the position.
        database.run("CREATE TABLE IF NOT EXISTS other (i int); INSERT INTO other VALUES (1)").await;
        let written = database.wal_end().await;
        database.confirmed_at_least(&database.slot(), written, Duration::from_secs(60)).await;
    }
    stream.stop().await;

    let connections = statuses(&proxy.tapped(Direction::ToServer));
    assert!(connections.len() >= 4, "{} connections", connections.len());
    let all: Vec<Status> = connections.iter().flatten().copied().collect();
    assert!(all.len() > 12, "{} statuses", all.len());
    assert!(all.iter().all(|status| status.apply == status.flush && status.flush <= status.write), "{all:?}");
    assert!(all.is_sorted_by_key(|status| status.flush), "flush goes back: {all:?}");
    for connection in &connections {
        assert!(connection.is_sorted_by_key(|status| status.write), "write goes back: {connection:?}");
    }
    let (first, last) = (all[0], all[all.len() - 1]);
    assert!(last.flush > first.flush, "the positions moved");
    let wal_end = database.wal_end().await.as_u64();
    assert!(last.write <= wal_end && last.flush == database.confirmed().await.as_u64(), "{last:?}");
}

async fn walsender(database: &Database) -> Option<i32> {
    let pid = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1";
    database.sql.query_one(pid, &[&database.slot()]).await.unwrap().get(0)
}

/// No sign of the server arrives for four times its patience; it must go on getting signs of us.
async fn holds_without_keepalives(database: &Database, proxy: &FaultProxy) {
    let before = walsender(database).await.expect("a walsender");
    proxy.blackhole(Direction::ToClient);
    let until = Instant::now() + 4 * PATIENCE;
    while Instant::now() < until {
        sleep(Duration::from_millis(100)).await;
        assert_eq!(walsender(database).await, Some(before), "the server has given us up");
    }
    proxy.heal();
}

/// A proxy for each state, so that they can be watched at once.
#[tokio::test(flavor = "multi_thread")]
async fn del_36_a_status_leaves_in_every_state_without_a_keepalive() {
    needs!(postgres);
    let (server, _) = proxied().await;
    let place = async || {
        let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap();
        let database = Database::on(&server, TABLE).await;
        let mut config = through(&proxy, &database, "public.t");
        config.stream.silence_limit = None;
        config.queue_bytes = 64 << 10;
        let mut reader = Reader::new(config);
        reader.started().await;
        (proxy, database, reader)
    };
    let rows = "INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 5000) g";
    let idle = async {
        let (proxy, database, mut reader) = place().await;
        tokio::join!(holds_without_keepalives(&database, &proxy), reader.quiet(4 * PATIENCE));
        database.run("INSERT INTO t VALUES (1)").await;
        assert_eq!(reader.take(1).await[0].int("id"), 1);
        reader.close().await;
    };
    // Nobody polls: the queue is full, and so are the sockets.
    let back_pressure = async {
        let (proxy, database, mut reader) = place().await;
        database.run(rows).await;
        sleep(Duration::from_millis(500)).await;
        holds_without_keepalives(&database, &proxy).await;
        let ids = reader.take(5000).await.iter().map(|record| record.int("id")).collect::<Vec<_>>();
        assert!(ids.iter().copied().eq(1..=5000));
        reader.close().await;
    };
    // A transaction of which the rest does not come.
    let inside = async {
        let (proxy, database, mut reader) = place().await;
        database.run(rows).await;
        assert_eq!(reader.take(10).await[9].int("id"), 10);
        let rest = async {
            holds_without_keepalives(&database, &proxy).await;
        };
        let mut ids: Vec<i64> = Vec::new();
        let reading = async {
            while ids.len() < 4990 {
                ids.extend(
                    reader.poll().await.unwrap().iter().filter(|r| r.op() != "h").map(|r| r.int("id")),
                );
            }
        };
        tokio::join!(rest, reading);
        assert!(ids.into_iter().eq(11..=5000));
        reader.close().await;
    };
    tokio::join!(idle, back_pressure, inside);
}

#[tokio::test]
async fn del_37_without_a_time_out_of_the_server_an_acknowledge_still_arrives() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let mut config = database.config(&["public.t"]);
    config.connection = config.connection.with_wal_sender_timeout(Some(Duration::ZERO));
    // Only the acknowledge itself can bring a status.
    config.stream.status_interval = Duration::from_secs(3600);
    config.heartbeat_interval = Duration::from_secs(3600);
    let mut reader = Reader::new(config);
    reader.started().await;
    database.run("INSERT INTO t VALUES (1)").await;
    reader.take(1).await;
    let before = database.confirmed().await;
    reader.acknowledge().await;
    let written = database.wal_end().await;
    let began = Instant::now();
    while database.confirmed().await == before {
        reader.quiet(Duration::from_millis(5)).await;
        assert!(began.elapsed() < Duration::from_secs(60), "confirmed {before} of {written}");
    }
    reader.close().await;
}
