//! One backlog on the server, and as many slots at its beginning as there are clients to measure.

use crabka_testkit::PgServer;
use tokio_postgres::Client as Sql;

use super::options::Form;
use super::shape::Shape;

/// The slot that keeps the backlog: each measured slot is a copy of it.
const ORIGIN: &str = "bench_origin";
pub(super) const PUBLICATION: &str = "bench";
/// One for each measured drain; the server is gone before they are used up.
const SLOTS_MAX: u32 = 1_000;
/// Changes that are looked at for their size.
const SAMPLE: i32 = 5_000;

pub(super) struct Backlog {
    server: PgServer,
    sql: Sql,
    database: String,
    rows: u64,
    /// Everything but the last transaction ends at or before this.
    before_marker: String,
    end: String,
}

impl Backlog {
    /// A new server with the backlog on it, written to disk and quiet.
    pub(super) async fn make(shape: &Shape, rows: u64, major: Option<u32>) -> Result<Self, String> {
        let mut builder = PgServer::builder()
            .setting("shared_buffers", "1GB")
            .setting("max_wal_size", "32GB")
            .setting("checkpoint_timeout", "1h")
            .setting("synchronous_commit", "off")
            .setting("autovacuum", "off")
            .setting("max_replication_slots", SLOTS_MAX);
        if let Some(major) = major {
            builder = builder.major(major);
        }
        let server = builder.start().await.map_err(|error| error.to_string())?;
        let database = server.create_database("bench").await.map_err(|error| error.to_string())?;
        let sql = server.connect(&database).await.map_err(|error| error.to_string())?;
        let run = async |text: &str| sql.batch_execute(text).await.map_err(|error| failed(text, &error));
        run(shape.table).await?;
        run(&format!("CREATE PUBLICATION {PUBLICATION} FOR TABLE bench")).await?;
        run(&format!("SELECT pg_create_logical_replication_slot('{ORIGIN}', 'pgoutput')")).await?;
        run(&shape.fill(rows)).await?;
        let before_marker = position(&sql).await?;
        run(shape.marker()).await?;
        let end = position(&sql).await?;
        run("CHECKPOINT").await?;
        Ok(Self { server, sql, database, rows, before_marker, end })
    }

    /// Changes in it, the marker included.
    pub(super) fn changes(&self) -> u64 {
        self.rows + 1
    }

    /// Changes that are measured.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn server(&self) -> &PgServer {
        &self.server
    }

    pub(super) fn database(&self) -> &str {
        &self.database
    }

    /// Behind the marker: where `pg_recvlogical` is to end.
    pub(super) fn end(&self) -> &str {
        &self.end
    }

    /// Whether the client of a slot has confirmed everything, the marker included.
    pub(super) async fn is_drained(&self, slot: &str) -> Result<bool, String> {
        let query =
            "SELECT confirmed_flush_lsn > $1::text::pg_lsn FROM pg_replication_slots WHERE slot_name = $2";
        let row = self.sql.query_one(query, &[&self.before_marker, &slot]).await;
        Ok(row.map_err(|error| failed(query, &error))?.get(0))
    }

    /// A slot that stands at the beginning of the backlog.
    pub(super) async fn make_slot(&self, name: &str) -> Result<(), String> {
        self.run(&format!("SELECT pg_copy_logical_replication_slot('{ORIGIN}', '{name}')")).await
    }

    /// Whether the server has begun to send to the client of a slot.
    pub(super) async fn is_active(&self, slot: &str) -> Result<bool, String> {
        let query = "SELECT active FROM pg_replication_slots WHERE slot_name = $1";
        let row = self.sql.query_one(query, &[&slot]).await;
        Ok(row.map_err(|error| failed(query, &error))?.get(0))
    }

    async fn run(&self, statement: &str) -> Result<(), String> {
        self.sql.batch_execute(statement).await.map_err(|error| failed(statement, &error))
    }

    /// Mean size of a row message.
    pub(super) async fn message_bytes(&self, form: Form) -> Result<f64, String> {
        // A transaction is looked at whole, and a huge one is too much.
        let query = format!(
            "SELECT avg(length(data))::float8 FROM pg_logical_slot_peek_binary_changes('{ORIGIN}', NULL, {SAMPLE}, \
             'proto_version', '1', 'publication_names', '{PUBLICATION}', 'binary', '{}') \
             WHERE get_byte(data, 0) IN (ascii('I'), ascii('U'))",
            form == Form::Binary
        );
        let row = self.sql.query_one(&query, &[]).await.map_err(|error| failed(&query, &error))?;
        Ok(row.get(0))
    }
}

async fn position(sql: &Sql) -> Result<String, String> {
    let query = "SELECT pg_current_wal_insert_lsn()::text";
    let row = sql.query_one(query, &[]).await;
    Ok(row.map_err(|error| failed(query, &error))?.get(0))
}

fn failed(statement: &str, error: &tokio_postgres::Error) -> String {
    let reason = error.as_db_error().map_or_else(|| error.to_string(), |reason| reason.to_string());
    format!("{reason}: {statement}")
}
