//! Every example runs against real servers and does what its first lines say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crabka_testkit::{KafkaBroker, PgServer, needs};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// How long an example may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The built example: `cargo test` builds the examples of a package beside its tests.
fn example(name: &str) -> PathBuf {
    // target/debug/deps/test-binary → target/debug/examples/name
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(path.is_file(), "not built: {}", path.display());
    path
}

struct Shop {
    url: String,
    sql: Client,
}

impl Shop {
    async fn new() -> Self {
        let server = PgServer::shared_default().await.unwrap();
        let name = server.create_database("examples").await.unwrap();
        let sql = server.connect(&name).await.unwrap();
        let table =
            "CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, quantity int NOT NULL)";
        sql.batch_execute(table).await.unwrap();
        Self { url: server.url(&name), sql }
    }

    /// Starts an example and waits until its slot is there: what is committed from then on is its to see.
    async fn start(&self, name: &str, arguments: &[&str]) -> Running {
        let child = Command::new(example(name))
            .arg(&self.url)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut running = Running(Some(child));
        let active = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND active \
                      AND database = current_database()";
        let end = Instant::now() + LIMIT;
        while self.sql.query_one(active, &[&name]).await.unwrap().get::<_, i64>(0) == 0 {
            assert!(running.0.as_mut().unwrap().try_wait().unwrap().is_none(), "{name} has ended");
            assert!(Instant::now() < end, "{name} does not stream");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        running
    }

    async fn run(&self, sql: &str) {
        self.sql.batch_execute(sql).await.unwrap();
    }

    async fn drop_slot(&self, name: &str) {
        self.run(&format!("SELECT pg_drop_replication_slot('{name}')")).await;
    }
}

/// A running example; killed when it is dropped.
struct Running(Option<Child>);

impl Running {
    /// What it printed; panics when it does not end well and in time.
    fn output(mut self) -> String {
        let end = Instant::now() + LIMIT;
        while self.0.as_mut().unwrap().try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "still running");
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Slots are named after the example, and a server has one of a name: the examples of this file take turns.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn own_loop_sums_up_and_goes_on_where_it_stopped() {
    needs!(postgres);
    let _turn = TURN.lock().await;
    let shop = Shop::new().await;
    let directory = tempfile::tempdir().unwrap();
    let offset = directory.path().join("offset").display().to_string();
    let running = shop.start("own_loop", &[&offset, "3"]).await;
    shop.run(
        "INSERT INTO orders VALUES (1, 'ada', 2), (2, 'carl', 1); INSERT INTO orders VALUES (3, 'ada', 5)",
    )
    .await;
    let printed = running.output();
    assert!(printed.ends_with("ada: 7\ncarl: 1\n"), "{printed}");

    shop.run("INSERT INTO orders VALUES (4, 'emmy', 9)").await;
    let again = Command::new(example("own_loop")).args([&shop.url, &offset, "1"]).output().unwrap();
    assert_eq!(String::from_utf8(again.stdout).unwrap(), "emmy: 9\n");
    shop.drop_slot("own_loop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_runtime_prints_every_change() {
    needs!(postgres);
    let _turn = TURN.lock().await;
    let shop = Shop::new().await;
    let running = shop.start("with_runtime", &["3"]).await;
    shop.run("INSERT INTO orders VALUES (1, 'ada', 2)").await;
    shop.run("UPDATE orders SET quantity = 3").await;
    shop.run("INSERT INTO orders VALUES (2, 'carl', 1)").await;
    let printed = running.output();
    let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rows: Vec<&Value> =
        lines.iter().map(|line| &line["value"]["after"]).filter(|row| !row.is_null()).collect();
    assert!(rows.len() >= 2, "{printed}");
    assert_eq!(rows[0], &json!({"id": 1, "customer": "ada", "quantity": 2}));
    assert_eq!(rows[1], &json!({"id": 1, "customer": "ada", "quantity": 3}));
    shop.drop_slot("with_runtime").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn to_kafka_makes_changes_durable() {
    needs!(postgres, kafka);
    let _turn = TURN.lock().await;
    let shop = Shop::new().await;
    let broker = KafkaBroker::start().await.unwrap();
    let running = shop.start("to_kafka", &[&broker.bootstrap_servers(), "1"]).await;
    shop.run("INSERT INTO orders VALUES (1, 'ada', 2)").await;
    let printed = running.output();
    assert!(printed.contains("durable in Kafka and released in PostgreSQL"), "{printed}");
    shop.drop_slot("to_kafka").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_sink_keeps_rows_and_position_together() {
    needs!(postgres);
    let _turn = TURN.lock().await;
    let shop = Shop::new().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("orders.json").display().to_string();
    let read = || -> Value { serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap() };
    let mut running = shop.start("custom_sink", &[&file]).await;
    shop.run("INSERT INTO orders VALUES (1, 'ada', 2), (2, 'carl', 1)").await;
    shop.run("UPDATE orders SET quantity = 7 WHERE id = 1; DELETE FROM orders WHERE id = 2").await;
    let end = Instant::now() + LIMIT;
    let rows = loop {
        let rows = if Path::new(&file).is_file() { read()[0].clone() } else { Value::Null };
        if rows["{\"id\":1}"]["quantity"] == 7 && rows["{\"id\":2}"].is_null() {
            break rows;
        }
        assert!(Instant::now() < end, "{rows}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(rows.as_object().unwrap().len(), 1);
    assert!(read()[1]["position"]["lsn"].is_string());

    // Killed, it goes on from the position in the file.
    running.0.as_mut().unwrap().kill().unwrap();
    drop(running);
    shop.run("INSERT INTO orders VALUES (3, 'emmy', 9)").await;
    let again = Command::new(example("custom_sink")).args([&shop.url, &file, "1"]).output().unwrap();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let rows = read()[0].clone();
    assert_eq!((&rows["{\"id\":1}"]["quantity"], &rows["{\"id\":3}"]["quantity"]), (&json!(7), &json!(9)));
    shop.drop_slot("custom_sink").await;
}
