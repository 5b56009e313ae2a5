//! A database of its own for a test, with what a source of it needs.

use std::time::Duration;

use crabka_connect_postgres::{PostgresSourceConfig, SlotMode};
use crabka_pgrepl::Lsn;
use crabka_testkit::PgServer;
use tokio_postgres::Client;

/// A fresh database on a test server.
pub struct Database {
    /// URL of the database.
    pub url: String,
    /// An SQL session in it.
    pub sql: Client,
    /// Its name; also used for slot, publication and topic prefix.
    pub name: String,
}

impl Database {
    /// On the shared server of this process, with `setup` run in it.
    pub async fn new(setup: &str) -> Self {
        Self::on(PgServer::shared_default().await.unwrap(), setup).await
    }

    /// On a given server.
    pub async fn on(server: &PgServer, setup: &str) -> Self {
        let name = server.create_database("e2e").await.unwrap();
        let sql = server.connect(&name).await.unwrap();
        sql.batch_execute(setup).await.unwrap();
        Self { url: server.url(&name), sql, name }
    }

    /// Source configuration: publication and slot are made at the first start.
    pub fn config(&self, tables: &[&str]) -> PostgresSourceConfig {
        let mut config = PostgresSourceConfig::new(&self.name, self.url.parse().unwrap()).unwrap();
        config.topic_prefix = "t".into();
        config.tables = tables.iter().map(|table| table.parse().unwrap()).collect();
        config.slot_mode = SlotMode::CreateIfMissing;
        config
    }

    /// Runs statements; each is a transaction of its own only if they come in separate calls.
    pub async fn run(&self, sql: &str) {
        self.sql.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// The slot's `confirmed_flush_lsn`.
    pub async fn confirmed(&self) -> Lsn {
        self.confirmed_of(&self.slot()).await
    }

    /// Another slot's `confirmed_flush_lsn`.
    pub async fn confirmed_of(&self, slot: &str) -> Lsn {
        let query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1";
        let row = self.sql.query_one(query, &[&slot]).await.unwrap();
        row.get::<_, String>(0).parse().unwrap()
    }

    /// Waits until a slot is made and complete.
    pub async fn slot_made(&self, slot: &str) {
        let query =
            "SELECT 1 FROM pg_replication_slots WHERE slot_name = $1 AND confirmed_flush_lsn IS NOT NULL";
        while self.sql.query(query, &[&slot]).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Drops every slot of the database: a server shared by many tests has room for a few dozen.
    pub async fn drop_slots(&self) {
        let drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots \
            WHERE database = current_database()";
        // The reader that has just closed may still count as active.
        while let Err(error) = self.sql.batch_execute(drop).await {
            let code = error.code().map(|code| code.code());
            assert_eq!(code, Some("55006"), "{error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The slot's name.
    pub fn slot(&self) -> String {
        self.name.clone()
    }

    /// End of the server's WAL.
    pub async fn wal_end(&self) -> Lsn {
        let row = self.sql.query_one("SELECT pg_current_wal_lsn()::text", &[]).await.unwrap();
        row.get::<_, String>(0).parse().unwrap()
    }

    /// Waits until a slot is confirmed at `lsn` or later; panics after `limit`.
    pub async fn confirmed_at_least(&self, slot: &str, lsn: Lsn, limit: Duration) {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let confirmed = self.confirmed_of(slot).await;
            if confirmed >= lsn {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "confirmed {confirmed}, wanted {lsn} within {limit:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
