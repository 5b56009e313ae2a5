//! The worker between a server and a file: nothing but the server is needed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crabka_testkit::PgServer;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{BATCH_RECORDS, Database, Ledger, Worker};

/// How long the rest may take to arrive when the load has ended.
const CATCH_UP: Duration = Duration::from_secs(90);

/// A database of its own, and the configuration that streams one of its tables into a file.
pub struct FileRun {
    /// The server.
    pub server: Arc<PgServer>,
    /// The database.
    pub database: Database,
    /// The worker's directory.
    pub dir: TempDir,
    /// The worker's configuration.
    pub config: String,
}

impl FileRun {
    /// On a server of its own.
    pub async fn new(setup: &str, table: &str) -> Self {
        let server = Arc::new(PgServer::start().await.unwrap());
        let database = Database::on(&server, setup).await;
        Self::of(server, database, table)
    }

    /// With a database that exists; the worker goes to the database's URL.
    pub fn of(server: Arc<PgServer>, database: Database, table: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            r#"
            name = "{}"
            [source]
            url = "{}"
            tables = ["{table}"]
            heartbeat_interval_ms = 500
            [sink]
            type = "file"
            path = "{}"
            [checkpoint]
            store = "file"
            path = "{}"
            [runtime]
            max_batch_records = {BATCH_RECORDS}
            retry_first_delay_ms = 50
            retry_max_delay_ms = 500
            "#,
            database.name,
            database.url,
            path("changes.jsonl"),
            path("checkpoint"),
        );
        Self { server, database, dir, config }
    }

    /// Starts the worker.
    pub fn worker(&self) -> Worker {
        Worker::run(self.path(), &self.config)
    }

    /// The worker's directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The file checkpoint.
    pub fn checkpoint(&self) -> PathBuf {
        self.path().join("checkpoint")
    }

    /// The lines of the sink, heartbeats included, as far as they are complete.
    pub fn all_lines(&self) -> Vec<Value> {
        all_lines(&self.path().join("changes.jsonl"))
    }

    /// The lines of the sink that are no heartbeats, as far as they are complete.
    pub fn lines(&self) -> Vec<Value> {
        read_lines(&self.path().join("changes.jsonl"))
    }

    /// Waits until everything the writers wrote has come into the ledger table's lines.
    ///
    /// # Panics
    ///
    /// When something is missing, or it does not come in time.
    pub async fn read_ledger(&self, last: &[i64]) -> Ledger {
        let deadline = Instant::now() + CATCH_UP;
        loop {
            let mut ledger = Ledger::default();
            for line in self.lines() {
                ledger.take_key(&line["key"]);
            }
            if ledger.is_complete(last) {
                return ledger;
            }
            assert!(Instant::now() < deadline, "not everything came: {ledger:?}, written {last:?}");
            sleep(Duration::from_millis(200)).await;
        }
    }
}

fn all_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let complete = text.rsplit_once('\n').map_or("", |(complete, _torn)| complete);
    let parse = |line| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    complete.lines().map(parse).collect()
}

/// The complete lines of a file sink that are no heartbeats.
pub(crate) fn read_lines(path: &Path) -> Vec<Value> {
    let mut lines = all_lines(path);
    lines.retain(|line| !is_heartbeat(line));
    lines
}

/// Whether a line of the sink is a heartbeat's.
pub fn is_heartbeat(line: &Value) -> bool {
    line["topic"].as_str().is_some_and(|topic| topic.starts_with("__debezium-heartbeat"))
}
