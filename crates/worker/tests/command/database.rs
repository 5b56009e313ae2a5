//! A database of a test, and what the command is told of it.

use std::time::{Duration, Instant};

use crabka_testkit::PgServer;
use serde_json::Value;
use tokio_postgres::Client;

use super::{LIMIT, Running, Workplace};

const TABLE: &str =
    "CREATE TABLE orders (id int PRIMARY KEY, v text); CREATE TABLE other (id int PRIMARY KEY)";

/// A database with two tables, and configurations that stream one of them.
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) sql: Client,
}

impl Database {
    pub(crate) async fn new() -> Self {
        Self::on(PgServer::shared_default().await.unwrap()).await
    }

    pub(crate) async fn on(server: &PgServer) -> Self {
        let name = server.create_database("cli").await.unwrap();
        let sql = server.connect(&name).await.unwrap();
        sql.batch_execute(TABLE).await.unwrap();
        Self { url: server.url(&name), name, sql }
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.sql.batch_execute(sql).await.unwrap();
    }

    /// Drops the slot that the configuration's runs have read.
    pub(crate) async fn drop_slot(&self) {
        self.run(&format!("SELECT pg_drop_replication_slot('{}')", self.name)).await;
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        self.sql.query_one(&format!("SELECT count(*) FROM {sql}"), &[]).await.unwrap().get(0)
    }

    pub(crate) async fn slots(&self) -> i64 {
        self.count("pg_replication_slots WHERE database = current_database()").await
    }

    /// Waits until there are so many slots of this database, all complete.
    pub(crate) async fn slots_become(&self, number: i64) {
        let complete =
            "pg_replication_slots WHERE database = current_database() AND confirmed_flush_lsn IS NOT NULL";
        let end = Instant::now() + LIMIT;
        while self.count(complete).await != number {
            assert!(Instant::now() < end, "not {number} slots in time");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A configuration that writes lines into the file `out`.
    pub(crate) fn config(&self) -> Workplace {
        let place = Workplace::new("");
        let config = format!(
            "name = {:?}\n[source]\nurl = {:?}\ntables = [\"public.orders\"]\nheartbeat_interval_ms = 200\n\
             [sink]\ntype = \"file\"\npath = {:?}\n[checkpoint]\nstore = \"file\"\npath = {:?}\n",
            self.name,
            self.url,
            place.path("out"),
            place.path("offset")
        );
        std::fs::write(place.path("crabka.toml"), config).unwrap();
        place
    }
}

/// The lines that are changes: heartbeats are records too.
pub(crate) fn changes(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| !line["topic"].as_str().unwrap().starts_with("__debezium-heartbeat")).collect()
}

/// The keys of the changes in the file `out`.
pub(crate) fn ids(place: &Workplace) -> Vec<i64> {
    changes(&place.lines("out")).iter().map(|line| line["key"]["id"].as_i64().unwrap()).collect()
}

/// Waits until the file `out` has exactly these.
pub(crate) fn until_ids(running: &mut Running, place: &Workplace, expected: &[i64]) {
    running.until("changes", || (ids(place).len() >= expected.len()).then_some(()));
    assert_eq!(ids(place), expected);
}
