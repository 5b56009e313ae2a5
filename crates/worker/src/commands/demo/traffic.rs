//! The demo's traffic: one session that inserts, updates and deletes orders.

use std::time::Duration;

use crabka_connect::ConnectError;
use crabka_connect_postgres::{PostgresSourceConfig, SqlConnection, setup};

/// What one change must become in Kafka.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expected {
    /// `c`, `u`, `d`, or `None` for a tombstone.
    pub(super) op: Option<&'static str>,
    /// The order's key.
    pub(super) id: i64,
}

/// The session, and what it has done.
pub(super) struct Traffic {
    sql: SqlConnection,
    name: String,
    version: String,
    step: usize,
    next_id: i64,
    open_orders: Vec<i64>,
}

const CUSTOMERS: [&str; 6] = ["Ada", "Blaise", "Carl", "Dorothy", "Emmy", "Grace"];
const ITEMS: [&str; 5] = ["tea", "bread", "olives", "cheese", "ink"];

impl Traffic {
    /// The demo's table.
    pub(super) const TABLE: &str = "crabka_demo.orders";
    /// Between two changes.
    pub(super) const PAUSE: Duration = Duration::from_millis(400);

    /// Makes the table.
    pub(super) async fn prepare(url: &str, name: &str) -> Result<Self, ConnectError> {
        let sql = SqlConnection::connect_url(url).await?;
        let make = "CREATE SCHEMA crabka_demo; CREATE TABLE crabka_demo.orders (id bigint PRIMARY KEY, customer text NOT NULL, item text NOT NULL, \
             placed_at timestamptz NOT NULL DEFAULT now(), quantity int NOT NULL)";
        sql.simple("making the demo's table", make).await.map_err(|error| match error.sqlstate() {
            Some("42P06") => {
                error.with_fix("DROP SCHEMA crabka_demo CASCADE, if an earlier demo left it behind")
            }
            _ => error,
        })?;
        let version = sql.query_one("reading the version", "SHOW server_version", &[]).await?;
        let version = version.try_get(0).unwrap_or_default();
        Ok(Self { sql, name: name.to_owned(), version, step: 0, next_id: 1, open_orders: Vec::new() })
    }

    /// Makes publication and slot.
    pub(super) async fn make_slot(&self, source: &PostgresSourceConfig) -> Result<(), ConnectError> {
        let request = source.setup_request();
        let plan = setup::plan(&self.sql, &request).await?;
        setup::apply(&self.sql, &source.connection, &request, &plan, std::future::pending()).await.map(drop)
    }

    /// One line about the server.
    pub(super) fn describe(&self) -> String {
        format!("PostgreSQL {}: table {}, slot and publication {}", self.version, Self::TABLE, self.name)
    }

    /// Makes the next change and says what must come of it.
    pub(super) async fn step(&mut self) -> Result<Vec<Expected>, ConnectError> {
        let step = self.step;
        self.step += 1;
        match step % 5 {
            2 | 3 => self.update(step).await,
            4 => self.delete().await,
            _ => self.insert(step).await,
        }
    }

    async fn insert(&mut self, step: usize) -> Result<Vec<Expected>, ConnectError> {
        let id = self.next_id;
        self.next_id += 1;
        self.open_orders.push(id);
        let (customer, item) = (CUSTOMERS[step % CUSTOMERS.len()], ITEMS[step % ITEMS.len()]);
        let quantity = 1 + step % 9;
        let sql = format!(
            "INSERT INTO crabka_demo.orders (id, customer, item, quantity) \
             VALUES ({id}, '{customer}', '{item}', {quantity})"
        );
        self.sql.simple("inserting an order", &sql).await?;
        Ok(vec![Expected { op: Some("c"), id }])
    }

    async fn update(&mut self, step: usize) -> Result<Vec<Expected>, ConnectError> {
        let Some(id) = self.open_orders.last().copied() else { return Ok(Vec::new()) };
        let quantity = 10 + step % 90;
        let sql = format!("UPDATE crabka_demo.orders SET quantity = {quantity} WHERE id = {id}");
        self.sql.simple("updating an order", &sql).await?;
        Ok(vec![Expected { op: Some("u"), id }])
    }

    async fn delete(&mut self) -> Result<Vec<Expected>, ConnectError> {
        if self.open_orders.is_empty() {
            return Ok(Vec::new());
        }
        let id = self.open_orders.remove(0);
        self.sql
            .simple("deleting an order", &format!("DELETE FROM crabka_demo.orders WHERE id = {id}"))
            .await?;
        Ok(vec![Expected { op: Some("d"), id }, Expected { op: None, id }])
    }

    /// Removes what the demo made in the server.
    pub(super) async fn clean_up(self) -> Result<(), ConnectError> {
        let Self { sql, name, .. } = self;
        let (slot, publication) = (name.replace('-', "_"), name);
        let drop_slot = format!(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{slot}'"
        );
        sql.simple("dropping the demo's slot", &drop_slot).await?;
        let drop = format!(
            "DROP PUBLICATION IF EXISTS \"{publication}\"; DROP TABLE {}; DROP SCHEMA crabka_demo",
            Self::TABLE
        );
        sql.simple("dropping the demo's table", &drop).await?;
        Ok(())
    }
}
