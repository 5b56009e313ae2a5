//! The role of `migrations/` is enough for every verb, and no password and no value of a row is in what they say, at the
//! most talkative log level (OPS-05).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

mod command;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Output;

use command::{Running, Workplace, crabka, stderr, stdout};
use crabka_testkit::{PgServer, needs};
use tokio_postgres::Client;

/// In the password and in every row; nowhere else.
const CANARY: &str = "kT7q_Zx9";

const MIGRATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/");

/// A database that was prepared with `migrations/`, and the role `crabka` that logs in with a password.
struct Prepared {
    server: PgServer,
    owner: Client,
    /// The role's URL, without its password.
    url: String,
}

impl Prepared {
    async fn new() -> Self {
        let server =
            PgServer::builder().hba("host all crabka 127.0.0.1/32 scram-sha-256").start().await.unwrap();
        let name = server.create_database("least").await.unwrap();
        let owner = server.connect(&name).await.unwrap();
        owner
            .batch_execute(
                "CREATE TABLE orders (id text PRIMARY KEY, n numeric(40, 2), j jsonb, b bytea);
                 ALTER TABLE orders REPLICA IDENTITY FULL;
                 CREATE TABLE broken (id text, amount numeric, PRIMARY KEY (id, amount))",
            )
            .await
            .unwrap();
        for file in ["001_role.sql", "002_publication.sql", "003_checkpoint.sql"] {
            let sql = std::fs::read_to_string(format!("{MIGRATIONS}{file}")).unwrap();
            owner.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{file}: {error}"));
        }
        owner
            .batch_execute(&format!(
                "ALTER ROLE crabka PASSWORD '{CANARY}';
                 GRANT USAGE ON SCHEMA public TO crabka;
                 GRANT SELECT ON orders TO crabka;
                 GRANT SELECT, INSERT, UPDATE ON crabka_checkpoint TO crabka;
                 ALTER ROLE crabka SET log_statement = 'all'"
            ))
            .await
            .unwrap();
        let url = server.url_as("crabka", &name);
        Self { server, owner, url }
    }

    fn place(&self) -> Workplace {
        let place = Workplace::new("");
        let url = self.url.replace("crabka@", "crabka:${SECRET}@");
        assert_ne!(url, self.url);
        let config = format!(
            "name = \"orders\"\n[source]\nurl = {url:?}\ntables = [\"public.orders\"]\nheartbeat_interval_ms = 200\n\
             [sink]\ntype = \"file\"\npath = {:?}\n[checkpoint]\nstore = \"postgres\"\n\
             [http]\nlisten = \"127.0.0.1:0\"\n",
            place.path("out")
        );
        std::fs::write(place.path("crabka.toml"), config).unwrap();
        place
    }
}

/// A verb that is to succeed. What it says is looked through for the canary, its answer on request.
fn verb(arguments: &[&str]) -> String {
    let output = crabka()
        .args(arguments)
        .args(["--log-level", "trace"])
        .env("SECRET", CANARY)
        .env("PGPASSWORD", CANARY)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}:\n{}{}", stdout(&output), stderr(&output));
    tells_nothing(&format!("{arguments:?}"), &stderr(&output));
    stdout(&output)
}

fn tells_nothing(who: &str, text: &str) {
    let place = text.find(CANARY).map(|at| text[..at].lines().last().unwrap_or_default().to_owned());
    assert_eq!(place, None, "the canary is in what {who} says");
}

/// Whatever is there, as it came over the wire.
fn fetched(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn run(place: &Workplace, more: &[&str]) -> Running {
    let log = place.path("stderr.log");
    let child = crabka()
        .args(["run", "-c", &place.config(), "--log-level", "trace", "--log-format", "json"])
        .args(more)
        .env("SECRET", CANARY)
        .stdout(std::process::Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    Running::of(child, log)
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_05_the_role_of_the_migrations_is_enough_and_nothing_is_told() {
    needs!(postgres);
    let prepared = Prepared::new().await;
    let place = prepared.place();
    let config = place.config();
    let shown = verb(&["config", "show", "-c", &config]);
    assert!(shown.contains("crabka:***@"), "{shown}");
    tells_nothing("config show", &shown);
    tells_nothing("init --dry-run", &verb(&["init", "-c", &config, "--dry-run"]));
    tells_nothing("init", &verb(&["init", "-c", &config]));
    tells_nothing("check", &verb(&["check", "-c", &config]));
    tells_nothing("check --json", &verb(&["check", "-c", &config, "--json"]));

    let mut running = run(&place, &[]);
    let address = running.http_address();
    let change = format!(
        "INSERT INTO orders VALUES ('{CANARY}', 1, '{{\"secret\": \"{CANARY}\"}}', '{CANARY}');
         UPDATE orders SET n = 2; DELETE FROM orders"
    );
    prepared.owner.batch_execute(&change).await.unwrap();
    running.until("the changes", || {
        let text = std::fs::read_to_string(place.path("out")).unwrap_or_default();
        (text.matches(CANARY).count() >= 6).then_some(())
    });
    for path in ["/status", "/ready", "/live", "/metrics"] {
        tells_nothing(path, &fetched(address, path));
    }
    // Where the worker really listens: the file leaves the port to the system.
    let listen = format!("http.listen={address}");
    tells_nothing("status", &verb(&["status", "-c", &config, "--set", &listen]));
    tells_nothing("status --json", &verb(&["status", "-c", &config, "--json", "--set", &listen]));
    tells_nothing("slots list", &verb(&["slots", "list", "-c", &config]));
    let arguments = std::fs::read(format!("/proc/{}/cmdline", running.id())).unwrap();
    tells_nothing("the list of processes", &String::from_utf8_lossy(&arguments));
    // What the server shows to its other users: activity, and each statement in its log.
    let activity =
        "SELECT string_agg(query || application_name, ' ') FROM pg_stat_activity WHERE usename = 'crabka'";
    let activity: String = prepared.owner.query_one(activity, &[]).await.unwrap().get(0);
    tells_nothing("pg_stat_activity", &activity);
    tells_nothing("the server's log", &prepared.server.log());
    let log = place.path("stderr.log");
    running.terminate();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("TRACE") && log.contains("ended"), "{log}");
    tells_nothing("run", &log);

    prepared.owner.batch_execute(&change).await.unwrap();
    let tail =
        ["tail", &prepared.url, "--publication", "orders", "--from-slot", "orders", "--exit-when-caught-up"];
    assert!(verb(&tail).contains(CANARY), "it prints rows");
    verb(&["tail", &prepared.url, "--publication", "orders", "--exit-when-caught-up"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_05_an_error_about_a_row_does_not_show_it() {
    needs!(postgres);
    let prepared = Prepared::new().await;
    prepared.owner.batch_execute("ALTER PUBLICATION orders ADD TABLE broken").await.unwrap();
    let place = prepared.place();
    let both = ["--set", "source.tables=public.orders,public.broken"];
    let mut running = run(&place, &both);
    running.until_log("\"streaming\"");
    let address = running.http_address();
    // A key that no field can hold.
    let insert = format!("INSERT INTO broken VALUES ('{CANARY}', 'NaN')");
    prepared.owner.batch_execute(&insert).await.unwrap();
    let code = running.code();
    let log = running.log();
    assert_eq!(code, Some(12), "the data class: {address} {log}");
    assert!(log.contains("public.broken") && log.contains("amount"), "{log}");
    tells_nothing("a failing run", &log);
}

/// Wrong in one place each, with the canary as the password.
#[test]
fn ops_05_a_password_with_the_urls_own_characters_is_not_told() {
    for url in [
        format!("postgres://app:pw/{CANARY}@127.0.0.1:1/shop"),
        format!("postgres://app:{CANARY}/pw@127.0.0.1:1/shop"),
        format!("postgres://app:pw@{CANARY}@127.0.0.1:1/shop"),
        format!("postgres://app:pw/x?{CANARY}@127.0.0.1:1/shop"),
        format!("postgres://app:pw?{CANARY}@127.0.0.1:1/shop"),
        format!("postgres://app:pw#{CANARY}@127.0.0.1:1/shop"),
        format!("host=127.0.0.1 port=1 user=app password=pw {CANARY}"),
    ] {
        let place = Workplace::new(&format!(
            "name = \"orders\"\n[source]\nurl = {url:?}\n[sink]\ntype = \"null\"\n[checkpoint]\nstore = \"memory\"\n"
        ));
        let tail: Output = crabka().args(["tail", &url, "--log-level", "trace"]).output().unwrap();
        let check = place.output("check", &["--log-level", "trace"]);
        for output in [tail, check] {
            assert_ne!(output.status.code(), Some(0));
            tells_nothing(&url.replace(CANARY, "..."), &stderr(&output));
        }
    }
}
