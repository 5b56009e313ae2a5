//! The pipeline inside the test: settings that the command does not have, such as a short patience with a silent server.

use std::path::{Path, PathBuf};

use crabka_connect::{
    ConnectError, ConnectorRuntime, FileCheckpointStore, Limits, LineSink, RetryPolicy, RuntimeHandle, Sink,
    Source, SystemClock,
};
use crabka_connect_postgres::envelope::{DebeziumConverter, DebeziumOptions};
use crabka_connect_postgres::{ChangeEvent, ChangeKey, PostgresSource, PostgresSourceConfig};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant, sleep};

use crate::{BATCH_RECORDS, Ledger};

/// How long the rest may take to arrive when the load has ended.
const CATCH_UP: Duration = Duration::from_secs(90);

/// A running pipeline into a file, with a file checkpoint.
pub struct Embedded {
    /// Steers and watches it.
    pub handle: RuntimeHandle,
    running: JoinHandle<Result<(), ConnectError>>,
    dir: TempDir,
}

impl Embedded {
    /// Starts it without a stored position.
    pub async fn start(config: PostgresSourceConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = changes(dir.path());
        let store = FileCheckpointStore::open(dir.path().join("checkpoint")).await.unwrap();
        let retry = RetryPolicy {
            first_delay: Duration::from_millis(50),
            max_delay: Duration::from_millis(500),
            ..RetryPolicy::default()
        };
        let runtime = ConnectorRuntime::<ChangeKey, ChangeEvent>::builder("embedded")
            .source(move || {
                let source = PostgresSource::new(config.clone());
                async move { Ok(Box::new(source?) as Box<dyn Source<_, _>>) }
            })
            .sink(move || {
                let open = LineSink::append(file.clone());
                async move { Ok(Box::new(open.await?) as Box<dyn Sink<_, _>>) }
            })
            .converter(
                DebeziumConverter::new(DebeziumOptions::default(), std::sync::Arc::new(SystemClock)).unwrap(),
            )
            .checkpoint_store(store)
            .limits(Limits { max_batch_records: BATCH_RECORDS, ..Limits::default() })
            .retry(retry)
            .build()
            .unwrap();
        Self { handle: runtime.handle(), running: tokio::spawn(runtime.run()), dir }
    }

    /// The lines of the rows so far.
    pub fn lines(&self) -> Vec<Value> {
        crate::file_run::read_lines(&changes(self.dir.path()))
    }

    /// Waits until something more than now is saved: the stream goes on.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub async fn goes_on(&self, what: &str) {
        let before = self.handle.status().records_checkpointed;
        let goes_on = self.handle.until(|status| status.records_checkpointed > before + 20);
        let status = tokio::time::timeout(CATCH_UP, goes_on).await;
        let status = status.unwrap_or_else(|_| panic!("{what}: nothing came: {:?}", self.handle.status()));
        assert!(!status.phase.has_ended(), "{what}: ended: {status:?}");
    }

    /// Waits until everything the writers wrote has come.
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
            assert!(
                Instant::now() < deadline,
                "not everything came: {ledger:?}, written {last:?}: {:?}",
                self.handle.status()
            );
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// A graceful end.
    pub async fn stop(self) {
        self.handle.stop();
        tokio::time::timeout(CATCH_UP, self.running).await.expect("it ends").expect("no panic").unwrap();
    }
}

fn changes(dir: &Path) -> PathBuf {
    dir.join("changes.jsonl")
}
