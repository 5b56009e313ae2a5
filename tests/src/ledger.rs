//! The ledger: every writer numbers its rows, so that gaps and repeats can be told exactly.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crabka_testkit::PgServer;
use tokio::task::JoinHandle;

use crate::Database;

/// The table that [`Writers`] fill.
pub const LEDGER_TABLE: &str = "CREATE TABLE ledger (writer int, seq bigint, PRIMARY KEY (writer, seq))";

/// Sessions that insert numbered rows until they are stopped, in transactions of one to seven rows.
pub struct Writers {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<i64>>,
}

impl Writers {
    /// Starts `count` of them. A server that goes away is waited for; a commit whose fate is unknown is looked up.
    pub fn start(server: Arc<PgServer>, database: &Database, count: i32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (0..count)
            .map(|writer| {
                let (server, name, stop) = (Arc::clone(&server), database.name.clone(), Arc::clone(&stop));
                tokio::spawn(async move { write(&server, &name, writer, &stop).await })
            })
            .collect();
        Self { stop, tasks }
    }

    /// Ends them; gives the last number of each.
    pub async fn stop(self) -> Vec<i64> {
        self.stop.store(true, Ordering::SeqCst);
        let mut last = Vec::new();
        for task in self.tasks {
            last.push(task.await.expect("the writer ends"));
        }
        last
    }
}

async fn write(server: &PgServer, database: &str, writer: i32, stop: &AtomicBool) -> i64 {
    let mut last = 0_i64;
    while !stop.load(Ordering::SeqCst) {
        let Ok(session) = server.connect(database).await else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        // After a broken connection the last commit may or may not have happened.
        let known = format!("SELECT coalesce(max(seq), 0) FROM ledger WHERE writer = {writer}");
        match session.query_one(&known, &[]).await {
            Ok(row) => last = row.get(0),
            Err(_) => continue,
        }
        while !stop.load(Ordering::SeqCst) {
            let rows = last % 7 + 1;
            let sql = format!(
                "INSERT INTO ledger SELECT {writer}, g FROM generate_series({}, {}) g",
                last + 1,
                last + rows
            );
            if session.batch_execute(&sql).await.is_err() {
                break;
            }
            last += rows;
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
    last
}

/// Reads the ledger out of a stream of records.
#[derive(Debug, Default)]
pub struct Ledger {
    seen: BTreeMap<i64, i64>,
    /// Records that came again.
    pub repeats: usize,
}

impl Ledger {
    /// Takes the next record in.
    ///
    /// # Panics
    ///
    /// When a number is missing before it.
    pub fn take(&mut self, writer: i64, seq: i64) {
        let last = self.seen.entry(writer).or_default();
        if seq <= *last {
            self.repeats += 1;
        } else {
            assert_eq!(seq, *last + 1, "writer {writer}: a gap");
            *last = seq;
        }
    }

    /// Takes a record's key in.
    ///
    /// # Panics
    ///
    /// As [`take`](Self::take), or when it is no key of the ledger table.
    pub fn take_key(&mut self, key: &serde_json::Value) {
        let number = |name: &str| key[name].as_i64().unwrap_or_else(|| panic!("no {name}: {key}"));
        self.take(number("writer"), number("seq"));
    }

    /// Whether everything the writers wrote has come.
    pub fn is_complete(&self, last: &[i64]) -> bool {
        last.iter().zip(0..).all(|(last, writer)| self.seen.get(&writer).copied().unwrap_or(0) == *last)
    }
}
