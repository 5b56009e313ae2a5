//! What a run tells about itself, against a real PostgreSQL: readiness and its reasons, positions, the slot, metrics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

mod command;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use command::{LIMIT, Running, Workplace, crabka, get, get_text};
use crabka_testkit::{Direction, FaultProxy, PgServer, needs};
use serde_json::Value;
use tokio_postgres::Client;

/// Short, so that a test need not wait long until something counts as stuck.
const STALL_MS: u64 = 2_000;

struct Watched {
    name: String,
    sql: Client,
    place: Workplace,
}

impl Watched {
    async fn new() -> Self {
        let server = PgServer::shared_default().await.unwrap();
        let name = server.create_database("watch").await.unwrap();
        let url = server.url(&name);
        Self::at(server, name, &url).await
    }

    async fn behind_a_proxy() -> (Self, FaultProxy) {
        let server = PgServer::shared_default().await.unwrap();
        let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap();
        let name = server.create_database("watch").await.unwrap();
        let port = |port: u16| format!(":{port}/");
        let url = server.url(&name).replace(&port(server.port()), &port(proxy.port()));
        (Self::at(server, name, &url).await, proxy)
    }

    /// The worker reaches the server through `url`.
    async fn at(server: &PgServer, name: String, url: &str) -> Self {
        let sql = server.connect(&name).await.unwrap();
        sql.batch_execute(
            "CREATE TABLE orders (id int PRIMARY KEY, v text); CREATE TABLE other (id int, v text)",
        )
        .await
        .unwrap();
        let place = Workplace::new("");
        let config = format!(
            "name = {name:?}\n[source]\nurl = {url:?}\ntables = [\"public.orders\"]\nheartbeat_interval_ms = 200\n\
             slot_interval_ms = 200\n[sink]\ntype = \"file\"\npath = {:?}\n[checkpoint]\nstore = \"file\"\npath = {:?}\n\
             [runtime]\nstall_limit_ms = {STALL_MS}\nprogress_interval_ms = 100\nretry_max_delay_ms = 500\n\
             [http]\nlisten = \"127.0.0.1:0\"\n",
            place.path("out"),
            place.path("offset")
        );
        std::fs::write(place.path("crabka.toml"), config).unwrap();
        Self { name, sql, place }
    }

    fn start(&self, arguments: &[&str]) -> (Running, SocketAddr) {
        let mut running = self.place.run(&[&["--log-format", "json"], arguments].concat());
        let address = running.http_address();
        (running, address)
    }

    /// Started, and ready for the first time.
    fn ready(&self, arguments: &[&str]) -> (Running, SocketAddr) {
        let (mut running, address) = self.start(arguments);
        running.until("ready", || (get(address, "/ready").0 == 200).then_some(()));
        (running, address)
    }

    async fn run(&self, sql: &str) {
        self.sql.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// A value of one row and column.
    async fn value<T: for<'a> tokio_postgres::types::FromSql<'a>>(&self, sql: &str) -> T {
        self.sql.query_one(sql, &[]).await.unwrap().get(0)
    }

    async fn walsender(&self) -> i32 {
        let query = format!("SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{}'", self.name);
        self.value::<Option<i32>>(&query).await.expect("an active slot")
    }

    async fn drop_slot(&self) {
        self.run(&format!("SELECT pg_drop_replication_slot('{}')", self.name)).await;
    }
}

/// Waits for a reason; gives the whole status.
fn until_reason(running: &mut Running, address: SocketAddr, code: &str, ready: bool) -> Value {
    let mut last = Value::Null;
    let what = format!("reason {code}");
    running.until(&what, || {
        let (answer, body) = get(address, "/ready");
        let status = get(address, "/status").1;
        if body != last {
            eprintln!("{body}");
            last = body.clone();
        }
        (body["code"] == code && body["ready"] == ready && (answer == 200) == ready).then_some(status)
    })
}

fn lsn(status: &Value, name: &str) -> crabka_pgrepl::Lsn {
    status["positions"][name].as_str().unwrap_or_else(|| panic!("no {name}: {status}")).parse().unwrap()
}

fn signal(pid: i32, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_tells_positions_counts_and_the_slot() {
    needs!(postgres);
    let watched = Watched::new().await;
    let (mut running, address) = watched.ready(&[]);
    watched.run("INSERT INTO orders VALUES (1, 'a'), (2, 'b')").await;
    watched.run("UPDATE orders SET v = 'c' WHERE id = 1; DELETE FROM orders WHERE id = 2").await;
    watched.run("TRUNCATE orders; INSERT INTO other VALUES (1, 'x')").await;
    watched.run("SELECT pg_logical_emit_message(true, 'p', 'm')").await;
    let end: String = watched.value("SELECT pg_current_wal_flush_lsn()::text").await;
    let end = end.parse().unwrap();
    let status = running.until("everything acknowledged", || {
        let status = get(address, "/status").1;
        let there =
            status["slot"]["confirmed_flush_lsn"].as_str()?.parse::<crabka_pgrepl::Lsn>().ok()? >= end;
        (there && status["reason"]["code"] == "idle").then_some(status)
    });
    let stream = &status["stream"];
    let table = &stream["tables"][0];
    for (kind, count) in [("insert", 2), ("update", 1), ("delete", 1), ("truncate", 0)] {
        assert_eq!(table[kind], count, "{status}");
    }
    assert_eq!((&table["schema"], &table["table"]), (&"public".into(), &"orders".into()));
    assert_eq!((&stream["messages"], &stream["truncates_skipped"]), (&1.into(), &1.into()), "{status}");
    assert!(stream["heartbeats"].is_u64() && stream["pgoutput_bytes"].as_u64().unwrap() > 0, "{status}");
    assert_eq!((&stream["sessions"], &stream["transaction"]), (&1.into(), &Value::Null));
    let order = ["acknowledged", "checkpointed", "delivered", "polled", "received", "server"];
    let positions = order.map(|name| lsn(&status, name));
    assert!(positions.is_sorted(), "{status}");
    assert_eq!((&status["oldest_unacknowledged_at_ms"], &status["lag_ms"]), (&Value::Null, &0.into()));
    let slot = &status["slot"];
    assert_eq!((&slot["exists"], &slot["error"]), (&true.into(), &Value::Null), "{status}");
    assert_eq!(slot["wal_status"], "reserved");
    assert_eq!(slot["active_pid"], watched.walsender().await);
    assert!(slot["wal_retained_bytes"].as_u64().is_some(), "{status}");
    assert_eq!(status["errors"]["transient"], 0);

    let documented = include_str!("../../../docs/STATUS.md");
    for part in [&status, stream, slot, &status["positions"], &status["sink"], table] {
        for name in part.as_object().unwrap().keys() {
            assert!(
                documented.contains(&format!("`{name}`")) || documented.contains(name),
                "{name} is not documented"
            );
        }
    }
    running.terminate();
    watched.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_16_a_large_transaction_shows_its_progress() {
    needs!(postgres);
    let (watched, proxy) = Watched::behind_a_proxy().await;
    let (mut running, address) = watched.ready(&[]);
    proxy.throttle(Direction::ToClient, 1_000_000);
    watched.run("INSERT INTO orders SELECT i, repeat('x', 100) FROM generate_series(1, 60000) i").await;
    let first = until_reason(&mut running, address, "reading_transaction", true);
    let so_far = |status: &Value| status["stream"]["transaction"]["changes"].as_u64();
    assert!(so_far(&first).is_some_and(|changes| changes > 0), "{first}");
    assert!(first["bytes_behind"].as_u64().unwrap() > 0 && first["lag_ms"].as_i64().unwrap() > 0, "{first}");
    running.until("more of it", || {
        so_far(&get(address, "/status").1).filter(|more| Some(*more) > so_far(&first))
    });
    running.until_log("progress: reading transaction ");
    proxy.heal();
    let last = until_reason(&mut running, address, "idle", true);
    assert_eq!(last["stream"]["tables"][0]["insert"], 60_000);
    running.terminate();
    watched.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_19_what_holds_the_restart_position_is_named() {
    needs!(postgres);
    let server = PgServer::builder().setting("max_prepared_transactions", 5).start().await.unwrap();
    let name = server.create_database("watch").await.unwrap();
    let url = server.url(&name);
    let watched = Watched::at(&server, name, &url).await;
    let old = server.connect(&watched.name).await.unwrap();
    let (mut running, address) = watched.ready(&[]);
    old.batch_execute("BEGIN; INSERT INTO other VALUES (1, 'held')").await.unwrap();
    let pid: i32 = old.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let status = until_held(&watched, &mut running, address, |holder| holder["pid"] == pid).await;
    let holder = &status["slot"]["held_by"];
    assert_eq!(holder["ended_by"], format!("SELECT pg_terminate_backend({pid})"));
    assert_eq!(holder["database"], watched.name);
    assert!(holder["age_ms"].is_u64(), "{holder}");
    let lsn = |name: &str| status["slot"][name].as_str().unwrap().parse::<crabka_pgrepl::Lsn>().unwrap();
    assert!(lsn("restart_lsn") < lsn("confirmed_flush_lsn"), "{status}");

    old.batch_execute("PREPARE TRANSACTION 'left behind'").await.unwrap();
    let status = until_held(&watched, &mut running, address, |holder| holder["gid"] == "left behind").await;
    assert_eq!(status["slot"]["held_by"]["ended_by"], "ROLLBACK PREPARED 'left behind'");
    old.batch_execute("ROLLBACK PREPARED 'left behind'").await.unwrap();
    until_held(&watched, &mut running, address, Value::is_null).await;
    running.terminate();
}

/// An innocent session must not be named for want of a better one.
#[tokio::test(flavor = "multi_thread")]
async fn ops_19_nobody_is_named_while_the_ages_are_hidden() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let name = server.create_database("watch").await.unwrap();
    let owner = server.connect(&name).await.unwrap();
    owner.batch_execute("CREATE ROLE plain LOGIN REPLICATION").await.unwrap();
    owner.batch_execute(&format!("GRANT CREATE ON DATABASE {name} TO plain")).await.unwrap();
    let watched = Watched::at(&server, name.clone(), &server.url_as("plain", &name)).await;
    owner.batch_execute("ALTER TABLE orders OWNER TO plain").await.unwrap();
    let (mut running, address) = watched.ready(&[]);
    let old = server.connect(&name).await.unwrap();
    old.batch_execute("BEGIN; INSERT INTO other VALUES (1, 'held')").await.unwrap();
    let pid: i32 = old.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let hidden = "the age of 1 transactions of other roles is hidden: GRANT pg_read_all_stats TO \"plain\"";
    let end = std::time::Instant::now() + LIMIT;
    let status = loop {
        let status = until_held(&watched, &mut running, address, Value::is_null).await;
        if status["slot"]["held_by_hidden"] == hidden {
            break status;
        }
        assert!(std::time::Instant::now() < end, "{status}");
    };
    assert!(!status.to_string().contains("pg_terminate_backend"), "{status}");
    let sampled = || get_text(address, "/metrics").1.contains("crabka_slot_held_for_seconds{");
    running.until("no age in the metrics", || (!sampled()).then_some(()));
    owner.batch_execute("GRANT pg_read_all_stats TO plain").await.unwrap();
    until_held(&watched, &mut running, address, |holder| holder["pid"] == pid).await;
    assert!(sampled());
    running.terminate();
}

/// Changes and checkpoints, so that both positions may move, until the holder is as wanted.
async fn until_held(
    watched: &Watched,
    running: &mut Running,
    address: SocketAddr,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    let end = std::time::Instant::now() + LIMIT;
    loop {
        watched.run("INSERT INTO orders SELECT coalesce(max(id), 0) + 1 FROM orders").await;
        watched.run("CHECKPOINT").await;
        until_reason(running, address, "idle", true);
        let status = get(address, "/status").1;
        if wanted(&status["slot"]["held_by"]) {
            return status;
        }
        assert!(std::time::Instant::now() < end, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_20_a_server_that_sends_nothing_is_not_taken_for_idle() {
    needs!(postgres);
    let watched = Watched::new().await;
    let (mut running, address) = watched.ready(&[]);
    until_reason(&mut running, address, "idle", true);
    let walsender = watched.walsender().await;
    signal(walsender, "STOP");
    watched.run("INSERT INTO orders VALUES (1, 'a')").await;
    let status = until_reason(&mut running, address, "server_silent", false);
    assert!(lsn(&status, "server") > lsn(&status, "received"), "{status}");
    assert!(status["bytes_behind"].as_u64().unwrap() > 0, "{status}");
    signal(walsender, "CONT");
    until_reason(&mut running, address, "idle", true);
    running.terminate();
    watched.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_20_a_stretch_without_captured_changes_is_decoding() {
    needs!(postgres);
    let watched = Watched::new().await;
    let (mut running, address) = watched.ready(&[]);
    let before = until_reason(&mut running, address, "idle", true);
    let server = PgServer::shared_default().await.unwrap();
    let writer = server.connect(&watched.name).await.unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let writing = tokio::spawn(async move {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            let insert = "INSERT INTO other SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i";
            writer.batch_execute(insert).await.unwrap();
        }
    });
    let status = until_reason(&mut running, address, "decoding", true);
    // The server's progress is shown although nothing is captured.
    running.until("received to move", || {
        let status = get(address, "/status").1;
        (lsn(&status, "received") > lsn(&before, "received")).then_some(())
    });
    assert_eq!(status["stream"]["tables"], serde_json::json!([]), "{status}");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writing.await.unwrap();
    until_reason(&mut running, address, "idle", true);
    running.terminate();
    watched.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_20_a_blocked_sink_and_a_slot_held_elsewhere_are_told_apart() {
    needs!(postgres);
    let watched = Watched::new().await;
    // Standard output that nobody reads.
    let log = watched.place.path("stderr.log");
    let text = std::fs::read_to_string(watched.place.config()).unwrap();
    let text = text
        .replace(&format!("type = \"file\"\npath = {:?}", watched.place.path("out")), "type = \"stdout\"");
    let file = watched.place.path("stdout.toml");
    std::fs::write(&file, text).unwrap();
    let child = crabka()
        .args(["run", "-c", &file.display().to_string(), "--log-format", "json"])
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut first = Running::of(child, log);
    let address = first.http_address();
    until_reason(&mut first, address, "idle", true);
    watched.run("INSERT INTO orders SELECT i, repeat('x', 1000) FROM generate_series(1, 2000) i").await;
    let status = until_reason(&mut first, address, "sink", false);
    assert!(status["in_flight"]["records"].as_u64().unwrap() > 0, "{status}");
    assert!(status["oldest_unacknowledged_at_ms"].is_i64(), "{status}");

    let other = Workplace::new(&std::fs::read_to_string(watched.place.config()).unwrap());
    // The checkpoint file is the first one's.
    let offset = format!("checkpoint.path={}", other.path("offset").display());
    let mut second = other.run(&["--log-format", "json", "--set", &offset]);
    let address = second.http_address();
    let status = until_reason(&mut second, address, "slot_held", false);
    assert_eq!(status["last_error"]["sqlstate"], "55006", "{status}");
    drop((first, second));
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_22_attempts_and_the_next_one_are_visible() {
    needs!(postgres);
    let (watched, proxy) = Watched::behind_a_proxy().await;
    let (mut running, address) = watched.ready(&[]);
    proxy.refuse();
    proxy.reset();
    let status = running.until("a third attempt", || {
        let status = get(address, "/status").1;
        (status["attempts"].as_u64()? >= 3 && status["next_attempt_at_ms"].is_i64()).then_some(status)
    });
    assert_eq!((&status["phase"], &status["reason"]["code"]), (&"backing_off".into(), &"source".into()));
    assert_eq!(
        (&status["last_error"]["class"], &status["last_error"]["part"]),
        (&"transient".into(), &"source".into())
    );
    assert!(status["errors"]["transient"].as_u64() >= status["attempts"].as_u64(), "{status}");
    proxy.heal();
    proxy.resume_accept();
    until_reason(&mut running, address, "idle", true);
    watched.run("INSERT INTO orders VALUES (1, 'a')").await;
    running.until("no attempts", || (get(address, "/status").1["attempts"] == 0).then_some(()));
    running.terminate();
    watched.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_23_one_replication_connection_and_one_for_queries_outside_transactions() {
    needs!(postgres);
    let watched = Watched::new().await;
    let (mut running, address) = watched.ready(&["--set", "source.slot_interval_ms=100"]);
    let sessions = format!(
        "SELECT count(*) FILTER (WHERE backend_type = 'walsender'), \
         count(*) FILTER (WHERE backend_type = 'client backend'), \
         count(*) FILTER (WHERE state LIKE 'idle in transaction%') \
         FROM pg_stat_activity WHERE datname = '{}' AND pid <> pg_backend_pid()",
        watched.name
    );
    // A backend takes a moment to end, so one more may be seen with its successor: but not time and again.
    let mut in_a_row = 0;
    for round in 0..60 {
        if round == 20 {
            watched.run(&format!("SELECT pg_terminate_backend({})", watched.walsender().await)).await;
        }
        watched.run(&format!("INSERT INTO orders VALUES ({round}, 'a')")).await;
        let row = watched.sql.query_one(&sessions, &[]).await.unwrap();
        let (senders, queries, idle): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        in_a_row = if senders <= 1 && queries <= 1 && idle == 0 { 0 } else { in_a_row + 1 };
        assert!(in_a_row < 20, "round {round}: {senders}, {queries}, {idle}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    until_reason(&mut running, address, "idle", true);
    running.terminate();
    watched.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn del_39_the_end_of_a_stream_is_followed_by_a_reconnect_and_shown() {
    needs!(postgres);
    let (watched, proxy) = Watched::behind_a_proxy().await;
    let (mut running, address) = watched.ready(&[]);
    let sessions = |status: &Value| status["stream"]["sessions"].as_u64().unwrap();
    let mut begun = sessions(&get(address, "/status").1);
    for (id, way) in ["terminated", "reset"].into_iter().enumerate() {
        match way {
            "terminated" => {
                watched.run(&format!("SELECT pg_terminate_backend({})", watched.walsender().await)).await;
            }
            _ => proxy.reset(),
        }
        running.until("another stream", || (sessions(&get(address, "/status").1) > begun).then_some(()));
        let status = until_reason(&mut running, address, "idle", true);
        begun = sessions(&status);
        assert!(status["last_error"]["message"].is_string(), "{way}: {status}");
        watched.run(&format!("INSERT INTO orders VALUES ({id}, 'a')")).await;
        running.until("the change", || (watched.place.lines("out").len() > id).then_some(()));
    }
    // Open connections over which nothing comes any more: a ping of the database would not tell, and neither a stream
    // that is only open.
    proxy.blackhole(Direction::ToClient);
    watched.run("INSERT INTO orders VALUES (7, 'a')").await;
    let status = until_reason(&mut running, address, "server_silent", false);
    assert!(status["reason"]["text"].as_str().unwrap().contains("for "), "{status}");
    proxy.heal();
    until_reason(&mut running, address, "idle", true);
    running.terminate();
    watched.drop_slot().await;
}

/// Names of samples that a scrape may hold, from its `# TYPE` lines, and the names of those that it does hold.
fn exposed(scrape: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let mut declared = BTreeSet::new();
    for line in scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        match kind {
            "counter" => declared.extend([format!("{name}_total")]),
            "histogram" => declared.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}"))),
            _ => declared.extend([name.to_owned()]),
        }
    }
    let samples = scrape.lines().filter(|line| !line.starts_with('#'));
    let held = samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect();
    (declared, held)
}

/// Every word of a text that begins as our metrics do.
fn asked_for(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("crabka_")).map(str::to_owned).collect()
}

/// The metrics whose alerts fire for a worker that tells none of its own: those of the scrape itself.
fn dead_without_a_worker(rules: &str) -> Vec<&str> {
    let expressions = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let of_the_scrape = expressions.filter(|expression| !expression.contains("crabka_"));
    of_the_scrape.filter_map(|expression| expression.strip_suffix("{job=\"crabka\"} == 0")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_hold_what_the_dashboard_and_the_alerts_ask_for_and_no_values() {
    needs!(postgres);
    const CANARY: &str = "CANARY-v4lue";
    const SECRET: &str = "CANARY-pa55";
    let server = PgServer::builder().setting("max_slot_wal_keep_size", "1GB").start().await.unwrap();
    let name = server.create_database("watch").await.unwrap();
    // The server trusts; what counts is that the password is there.
    let url = server.url(&name).replace('@', &format!(":{SECRET}@"));
    assert!(url.contains(SECRET), "{url}");
    let watched = Watched::at(&server, name, &url).await;
    let (mut running, address) = watched.ready(&[]);
    watched.run(&format!("INSERT INTO orders VALUES (1, '{CANARY}'); DELETE FROM orders")).await;
    let scrape = running.until("the changes in the metrics", || {
        let scrape = get_text(address, "/metrics").1;
        let deleted = format!(
            "crabka_changes_total{{connector=\"{}\",schema=\"public\",table=\"orders\",kind=\"delete\"}} 1",
            watched.name
        );
        let durable = scrape
            .lines()
            .any(|line| line.starts_with("crabka_commit_to_durable_seconds_count{") && !line.ends_with(" 0"));
        (scrape.contains(&deleted) && durable && scrape.contains("crabka_slot_wal_safe_bytes{"))
            .then_some(scrape)
    });
    assert!(scrape.ends_with("# EOF\n"), "{scrape}");
    let (declared, held) = exposed(&scrape);
    assert!(held.is_subset(&declared), "{:?}", held.difference(&declared));
    for (text, least) in [
        (include_str!("../../../deploy/prometheus/crabka.rules.yml"), 12),
        (include_str!("../../../deploy/grafana/crabka.json"), 25),
    ] {
        let asked = asked_for(text);
        assert!(asked.len() >= least, "{asked:?}");
        assert!(asked.is_subset(&declared), "not exposed: {:?}", asked.difference(&declared));
    }
    assert_eq!(dead_without_a_worker(include_str!("../../../deploy/prometheus/crabka.rules.yml")), ["up"]);
    // Nothing is only declared, except where this run has no value to tell.
    let without = ["crabka_sink_records_total", "crabka_next_attempt_seconds", "crabka_slot_lost_in_seconds"];
    let empty: Vec<_> = declared.difference(&held).filter(|name| !without.contains(&name.as_str())).collect();
    assert!(empty.is_empty(), "no sample of {empty:?}:\n{scrape}");

    let told =
        [scrape, get_text(address, "/status").1, get_text(address, "/ready").1, running.log()].concat();
    assert!(!told.contains(CANARY) && !told.contains(SECRET), "{told}");
    running.terminate();
}
