//! The worker between a server and a broker of which both may be disturbed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crabka_testkit::{PgServer, unique_name};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::{Database, LEDGER_TABLE, Ledger, TopicReader, Worker};

/// Records in a batch of the worker: small, so that a run of a few hundred milliseconds has many.
pub const BATCH_RECORDS: usize = 50;

/// How long the rest may take to arrive when the load has ended.
const CATCH_UP: Duration = Duration::from_secs(90);

/// A ledger database of its own, and the configuration that streams it into one topic of one partition.
pub struct KafkaRun {
    /// The server.
    pub server: Arc<PgServer>,
    /// The database with the ledger.
    pub database: Database,
    /// The worker's directory.
    pub dir: TempDir,
    /// The worker's configuration.
    pub config: String,
    /// Where the ledger's rows go.
    pub topic: String,
    /// Replication slot.
    pub slot: String,
    /// The connector's name.
    pub name: String,
}

impl KafkaRun {
    /// On a server of its own.
    pub async fn new(bootstrap_servers: &str) -> Self {
        Self::on(Arc::new(PgServer::start().await.unwrap()), bootstrap_servers).await
    }

    /// On a given server.
    pub async fn on(server: Arc<PgServer>, bootstrap_servers: &str) -> Self {
        let database = Database::on(&server, LEDGER_TABLE).await;
        let dir = tempfile::tempdir().unwrap();
        let name = unique_name("ledger");
        let config = format!(
            r#"
            name = "{name}"
            [source]
            url = "{}"
            tables = ["public.ledger"]
            heartbeat_interval_ms = 1000
            [sink]
            type = "kafka"
            bootstrap_servers = "{bootstrap_servers}"
            partitions = 1
            [checkpoint]
            store = "kafka"
            topic = "{name}-offsets"
            [runtime]
            max_batch_records = {BATCH_RECORDS}
            retry_first_delay_ms = 50
            retry_max_delay_ms = 500
            "#,
            database.url
        );
        let topic = format!("{name}.public.ledger");
        let slot = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        Self { server, database, dir, config, topic, slot, name }
    }

    /// Starts the worker.
    pub fn worker(&self) -> Worker {
        Worker::run(self.path(), &self.config)
    }

    /// The worker's directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Reads the topic until everything the writers wrote has come, then makes sure that nothing follows.
    pub async fn read_ledger(&self, bootstrap_servers: &str, last: Vec<i64>) -> Ledger {
        let (topic, bootstrap_servers) = (self.topic.clone(), bootstrap_servers.to_owned());
        tokio::task::spawn_blocking(move || {
            let reader = TopicReader::open(&bootstrap_servers, &topic);
            let mut ledger = Ledger::default();
            let deadline = Instant::now() + CATCH_UP;
            while !ledger.is_complete(&last) {
                assert!(Instant::now() < deadline, "not everything came: {ledger:?}, written {last:?}");
                if let Some(record) = reader.next(Duration::from_millis(100)) {
                    ledger.take_key(&record.key);
                }
            }
            while let Some(record) = reader.next(Duration::from_secs(1)) {
                ledger.take_key(&record.key);
                assert!(ledger.is_complete(&last), "more came than was written");
            }
            ledger
        })
        .await
        .unwrap()
    }
}
