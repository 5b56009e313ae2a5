//! An ordinary SQL connection beside the replication connection: catalogue look-ups, checks, set-up.
//!
//! Every setting that a look-up depends on is set on the session itself, so that what `ALTER ROLE` or
//! `ALTER DATABASE` says for applications cannot cut it short or change its result.

mod login;
mod transport;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crabka_connect::ConnectError;
use crabka_pgrepl::{Config, Peer};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, Row, SimpleQueryMessage};

use self::login::log_in;
use crate::classify::{postgres_error, replication_error};

/// How long one statement may run on the server, unless [`SqlConnection::set_statement_limit`] says otherwise.
pub const STATEMENT_LIMIT: Duration = Duration::from_secs(20);

/// How long a statement waits for a lock before it gives up.
pub const LOCK_LIMIT: Duration = Duration::from_secs(5);

/// What is added to the server's own limit before the answer is no longer waited for: a server that is alive has
/// cancelled the statement by then.
const ANSWER_GRACE: Duration = Duration::from_secs(3);

/// `transaction_timeout` exists from 17 on; a setting that the server does not have is left alone.
const PIN_SETTINGS: &str = "SET search_path = pg_catalog; SET client_encoding = 'UTF8'; SET datestyle = 'ISO'; \
    SET intervalstyle = 'postgres'; SET timezone = 'UTC'; SET bytea_output = 'hex'; SET extra_float_digits = 3; \
    SET quote_all_identifiers = off; SET default_transaction_read_only = off; \
    SET default_transaction_isolation = 'read committed'; SET idle_in_transaction_session_timeout = 0; \
    SELECT set_config(name, '0', false) FROM pg_settings \
    WHERE name IN ('transaction_timeout', 'idle_session_timeout'); \
    SELECT current_setting('server_version_num')";

/// A parameter of a statement with its type.
pub type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Ends the task that drives a connection together with the connection's owner.
#[derive(Debug)]
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An SQL connection. The task that drives it ends with it.
#[derive(Debug)]
pub struct SqlConnection {
    client: Client,
    task: AbortOnDrop,
    /// Closed once the connection has ended, and says since when.
    open: watch::Receiver<Option<Instant>>,
    peer: Peer,
    version_num: u32,
    /// Milliseconds.
    statement_limit_ms: AtomicU64,
}

impl SqlConnection {
    /// Connects to the first host that works and is what `target_session_attrs` asks for, with the hosts, TLS, credentials and name of `config`, and pins the
    /// session's settings.
    ///
    /// # Errors
    ///
    /// Transient when the server cannot be reached or is starting; configuration when it refuses the credentials, or
    /// asks for a password in a way that others could read.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(config: &Config) -> Result<Self, ConnectError> {
        let (client, connection, peer) = config
            .connect_with(|transport| log_in(config, transport))
            .await
            .map_err(|error| replication_error("connecting to PostgreSQL", error))?;
        let (held_while_open, open) = watch::channel(None);
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "sql connection ended");
            }
            held_while_open.send_replace(Some(Instant::now()));
        });
        Self::prepare(client, task, open, peer).await
    }

    /// [`connect`](Self::connect) with a libpq URL; `PG*` variables and the password file fill what it leaves open.
    ///
    /// # Errors
    ///
    /// Configuration when the URL is wrong; else as [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_url(url: &str) -> Result<Self, ConnectError> {
        let config = url.parse().map_err(|error| replication_error("reading the connection URL", error))?;
        Self::connect(&config).await
    }

    async fn prepare(
        client: Client,
        task: JoinHandle<()>,
        open: watch::Receiver<Option<Instant>>,
        peer: Peer,
    ) -> Result<Self, ConnectError> {
        let mut connection = Self {
            client,
            task: AbortOnDrop(task),
            open,
            peer,
            version_num: 0,
            statement_limit_ms: AtomicU64::new(duration_ms(STATEMENT_LIMIT)),
        };
        let limits = format!(
            "SET statement_timeout = {}; SET lock_timeout = {}; {PIN_SETTINGS}",
            STATEMENT_LIMIT.as_millis(),
            LOCK_LIMIT.as_millis()
        );
        let answer = connection.simple("setting up the SQL session", &limits).await?;
        let version = answer.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        connection.version_num = version
            .and_then(|version| version.parse().ok())
            .ok_or_else(|| ConnectError::bug("the server did not tell its version number"))?;
        Ok(connection)
    }

    /// What the connection leads to; `Config::pinned_to` makes more connections to the same server.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Waits until the connection has ended, by whichever side, and says since when it has. A server that stops ends its ordinary sessions first,
    /// and those that replicate when everything else is done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn ended(&self) -> Instant {
        let mut open = self.open.clone();
        while open.changed().await.is_ok() {}
        let ended_at = *open.borrow();
        ended_at.unwrap_or_else(Instant::now)
    }

    /// `server_version_num`: 150018 is 15.18.
    pub fn version_num(&self) -> u32 {
        self.version_num
    }

    /// Whether the server is of this major version or a later one.
    pub fn is_at_least(&self, major: u32) -> bool {
        self.version_num >= major * 10_000
    }

    /// The client below, for statements that need more than [`query`](Self::query): transactions, cursors, COPY.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How long one statement may run on the server.
    pub fn statement_limit(&self) -> Duration {
        Duration::from_millis(self.statement_limit_ms.load(Ordering::Relaxed))
    }

    /// Sets how long one statement may run on the server, and so how long its answer is waited for.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query).
    pub async fn set_statement_limit(&self, limit: Duration) -> Result<(), ConnectError> {
        let limit_ms = duration_ms(limit).max(1);
        self.simple("setting statement_timeout", &format!("SET statement_timeout = {limit_ms}")).await?;
        self.statement_limit_ms.store(limit_ms, Ordering::Relaxed);
        Ok(())
    }

    /// Runs one statement with parameters. `doing` begins the message of an error.
    ///
    /// # Errors
    ///
    /// As [`crate::classify::postgres_error`] classifies them; transient when no answer came in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the answer; the server finishes the statement.
    pub async fn query(
        &self,
        doing: &str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, ConnectError> {
        self.in_time(doing, self.client.query_typed(sql, parameters)).await
    }

    /// Runs one statement that gives exactly one row.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query); a bug when there is none.
    pub async fn query_one(
        &self,
        doing: &str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Row, ConnectError> {
        let rows = self.query(doing, sql, parameters).await?;
        rows.into_iter().next().ok_or_else(|| ConnectError::bug(format!("{doing}: no row in the answer")))
    }

    /// Runs one or more statements without parameters.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query).
    pub async fn simple(&self, doing: &str, sql: &str) -> Result<Vec<SimpleQueryMessage>, ConnectError> {
        self.in_time(doing, self.client.simple_query(sql)).await
    }

    async fn in_time<T>(
        &self,
        doing: &str,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, ConnectError> {
        let limit = self.statement_limit() + ANSWER_GRACE;
        match timeout(limit, answer).await {
            Ok(answer) => answer.map_err(|error| postgres_error(doing, error)),
            Err(_) => {
                Err(ConnectError::transient(format!("{doing}: no answer within {} s", limit.as_secs_f32())))
            }
        }
    }

    /// Ends the session in order: the server is told before the socket closes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the socket.
    pub async fn close(self) {
        let Self { client, mut task, .. } = self;
        drop(client);
        if timeout(ANSWER_GRACE, &mut task.0).await.is_err() {
            tracing::debug!("sql connection did not end in time");
        }
    }
}

fn duration_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A column of a row, or a bug that names it.
pub(crate) fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, ConnectError> {
    row.try_get(name).map_err(|error| {
        ConnectError::bug(format!("catalogue column {name} has an unexpected form")).with_source(error)
    })
}
