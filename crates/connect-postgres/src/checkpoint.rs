//! Offsets in a table of a PostgreSQL database: the table of `migrations/003_checkpoint.sql`.
//!
//! The store has a connection of its own, opened at the first use and opened again when it was lost. It may be in
//! another database, or on another server, than the one whose changes are streamed.
//!
//! A save that brought no answer may still be running on the server, and commit later: closing a connection does not end
//! what its backend does. So the next use ends that backend first, and waits until it is gone.

use std::time::Duration;

use async_trait::async_trait;
use crabka_connect::{CheckpointStore, ConnectError, SourceOffset};
use crabka_pgrepl::Config;
use tokio::time::{Instant, sleep};
use tokio_postgres::types::Type;

use crate::catalog::TableName;
use crate::sql::{Parameter, SqlConnection, column};

/// The SQL that makes the table.
pub const CHECKPOINT_TABLE_SQL: &str = include_str!("../../../migrations/003_checkpoint.sql");

const READING: &str = "reading the checkpoint";
const SAVING: &str = "saving the checkpoint";
const SETTLING: &str = "ending an unanswered save of the checkpoint";

/// How long the backend of a save that was not answered may take to end.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);

/// A session as the server knows it: a process id alone may be used again.
#[derive(Debug, Clone)]
struct Backend {
    pid: i32,
    started: String,
}

struct Open {
    connection: SqlConnection,
    backend: Backend,
}

/// Keeps one offset per connector in a table.
///
/// The connection must lead to a backend of its own, and not to one that a pooler shares between transactions: a save
/// that was not answered is ended together with its backend.
pub struct PostgresCheckpointStore {
    config: Config,
    table: TableName,
    open: Option<Open>,
    /// The backend of a save that was not answered: it may still commit. `None` while a connection is kept open.
    unsettled: Option<Backend>,
}

impl PostgresCheckpointStore {
    /// A store in the table `public.crabka_checkpoint` of the database that `config` names. Connects at the first use.
    pub fn new(config: Config) -> Self {
        let table = TableName { schema: "public".to_owned(), table: "crabka_checkpoint".to_owned() };
        Self { config, table, open: None, unsettled: None }
    }

    /// The same store in another table of that form.
    #[must_use]
    pub fn with_table(mut self, table: TableName) -> Self {
        self.table = table;
        self
    }

    /// The open connection, or a new one. Nothing saved before is undecided when this returns.
    async fn connect(&mut self) -> Result<Open, ConnectError> {
        if let Some(open) = self.open.take() {
            return Ok(open);
        }
        let connection = SqlConnection::connect(&self.config).await?;
        // A role or database may have synchronous_commit off. Then a crash of the server could take back an offset that
        // was already acknowledged to the source.
        let durable = "SELECT set_config('synchronous_commit', 'on', false) \
                       WHERE current_setting('synchronous_commit') = 'off'";
        connection.simple("setting up the checkpoint session", durable).await?;
        if let Some(backend) = &self.unsettled {
            end(&connection, backend).await?;
            self.unsettled = None;
        }
        let backend = backend_of(&connection).await?;
        Ok(Open { connection, backend })
    }

    /// Runs `sql`; when the connection was lost meanwhile, once more on a new one. Both statements may be repeated.
    async fn run(
        &mut self,
        doing: &str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, ConnectError> {
        let was_open = self.open.is_some();
        let outcome = match self.run_once(doing, sql, parameters).await {
            Err(error) if was_open && error.is_transient() => {
                tracing::debug!(%error, "checkpoint connection lost: connecting again");
                self.run_once(doing, sql, parameters).await
            }
            outcome => outcome,
        };
        outcome.map_err(|error| self.explain(error))
    }

    async fn run_once(
        &mut self,
        doing: &str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, ConnectError> {
        let open = self.connect().await?;
        // Before the statement leaves: this future may be dropped. After an error the connection is given up, so a
        // look whether its backend is gone costs little, also where the outcome is known.
        self.unsettled = Some(open.backend.clone());
        let rows = open.connection.query(doing, sql, parameters).await?;
        self.unsettled = None;
        self.open = Some(open);
        Ok(rows)
    }

    /// Adds what fixes it to the errors that only the one who prepares the table can act on.
    fn explain(&self, error: ConnectError) -> ConnectError {
        match error.sqlstate() {
            // No such table, schema or column. A column that our own SQL names is missing because of the table.
            Some(code @ ("42P01" | "3F000" | "42703")) => {
                let (message, code) = (error.message().to_owned(), code.to_owned());
                ConnectError::configuration(message).with_sqlstate(code).with_source(error).with_fix(format!(
                    "make the table {} with migrations/003_checkpoint.sql (`crabka init --with checkpoint` does): {}",
                    self.table,
                    statement()
                ))
            }
            Some("42501") => {
                error.with_fix(format!("GRANT SELECT, INSERT, UPDATE ON {} TO the role", self.table))
            }
            _ => error,
        }
    }
}

async fn backend_of(connection: &SqlConnection) -> Result<Backend, ConnectError> {
    let sql = "SELECT pid, backend_start::text AS started FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    let row = connection.query_one("looking at the checkpoint session", sql, &[]).await?;
    Ok(Backend { pid: column(&row, "pid")?, started: column(&row, "started")? })
}

/// Ends a backend that may be in the middle of a save, and waits until it is gone: what it saved is committed then, or
/// never will be.
async fn end(connection: &SqlConnection, backend: &Backend) -> Result<(), ConnectError> {
    let sql =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2";
    let parameters: [Parameter<'_>; 2] = [(&backend.pid, Type::INT4), (&backend.started, Type::TEXT)];
    let deadline = Instant::now() + SETTLE_LIMIT;
    // Empty as soon as the backend is gone; to end it again does no harm.
    while !connection.query(SETTLING, sql, &parameters).await?.is_empty() {
        if Instant::now() >= deadline {
            return Err(ConnectError::transient(format!(
                "an earlier save of the checkpoint has not ended, it may still commit; process id: {}",
                backend.pid
            ))
            .with_fix(format!("SELECT pg_terminate_backend({})", backend.pid)));
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The CREATE TABLE of the migration on one line.
fn statement() -> String {
    let code = CHECKPOINT_TABLE_SQL.lines().filter(|line| !line.starts_with("--"));
    let code = code.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    code.split_inclusive(';').next().unwrap_or_default().to_owned()
}

#[async_trait]
impl CheckpointStore for PostgresCheckpointStore {
    /// Nothing saved before can change afterwards what this returns.
    ///
    /// # Errors
    ///
    /// Also transient while a save that was not answered has not ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection; the next call opens another.
    async fn load(&mut self, connector: &str) -> Result<Option<SourceOffset>, ConnectError> {
        let sql =
            format!("SELECT \"offset\"::text AS stored FROM {} WHERE connector = $1", self.table.quoted());
        let rows = self.run(READING, &sql, &[(&connector, Type::TEXT)]).await?;
        match rows.first() {
            Some(row) => {
                let stored: String = column(row, "stored")?;
                SourceOffset::from_json(stored.as_bytes()).map(Some).map_err(|error| {
                    error.context(format!("{READING}: table {}, connector {connector}", self.table)).with_fix(
                        format!(
                            "correct the row, or remove it to start at the slot's own position: {}",
                            self.table
                        ),
                    )
                })
            }
            None => Ok(None),
        }
    }

    /// # Durability
    ///
    /// The row is committed with `synchronous_commit`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection; either the old or the new offset is stored, and the next call finds
    /// that decided.
    async fn save(&mut self, connector: &str, offset: &SourceOffset) -> Result<(), ConnectError> {
        let sql = format!(
            "INSERT INTO {} AS stored (connector, \"offset\", updated_at) VALUES ($1, $2::jsonb, now()) \
             ON CONFLICT (connector) DO UPDATE SET \"offset\" = EXCLUDED.\"offset\", updated_at = EXCLUDED.updated_at",
            self.table.quoted()
        );
        let json = offset.to_json();
        self.run(SAVING, &sql, &[(&connector, Type::TEXT), (&json, Type::TEXT)]).await.map(drop)
    }
}

impl std::fmt::Debug for PostgresCheckpointStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresCheckpointStore").field("table", &self.table).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fix_of_a_missing_table_is_the_statement_that_makes_it() {
        let statement = statement();
        assert!(
            statement.starts_with("CREATE TABLE IF NOT EXISTS public.crabka_checkpoint ("),
            "{statement}"
        );
        assert!(statement.ends_with(");"), "{statement}");
    }

    #[test]
    fn debug_does_not_show_the_password() {
        let store = PostgresCheckpointStore::new("postgres://app:CANARY@localhost/shop".parse().unwrap());
        assert!(!format!("{store:?}").contains("CANARY"));
    }
}
