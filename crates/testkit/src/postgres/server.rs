//! One throw-away cluster: start, stop in each of the ways there are, start again.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_postgres::NoTls;

use super::builder::PgServerBuilder;
use super::cluster::{Cluster, STOP_TIMEOUT};
use super::install::PgInstall;
use super::template::SUPERUSER;
use crate::error::Error;
use crate::process;

/// PostgreSQL's three ways to shut down: <https://www.postgresql.org/docs/15/server-shutdown.html>.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Waits until every client has gone (SIGTERM).
    Smart,
    /// Ends the clients; waits until each walsender has sent and had acknowledged everything (SIGINT).
    Fast,
    /// Ends all processes at once; crash recovery follows at the next start (SIGQUIT).
    Immediate,
}

/// How a server came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// From the signal to the end of the process.
    pub took: Duration,
    /// Exit code as a shell gives it: 0 for an orderly shutdown, 128 + signal when a signal ended it.
    pub code: i32,
}

/// A throw-away PostgreSQL cluster. Dropping it stops the server and removes its files; so does the end of the test
/// process, however it ends. It belongs to no runtime: any thread and any runtime may use it.
///
/// Superuser is `postgres`, without a password; the database `postgres` exists.
#[derive(Debug)]
pub struct PgServer {
    cluster: Arc<Cluster>,
}

impl PgServer {
    /// A cluster with the default settings: `wal_level = logical`, room for slots and senders, no fsync.
    ///
    /// # Errors
    ///
    /// As [`PgServerBuilder::start`].
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// Describes a cluster that is to differ from the default.
    #[must_use]
    pub fn builder() -> PgServerBuilder {
        PgServerBuilder::default()
    }

    /// The one server of this major version that all tests of this process share; each makes its own database with
    /// [`create_database`](Self::create_database). It is started by the first call and must not be stopped.
    ///
    /// # Errors
    ///
    /// As [`PgServerBuilder::start`]; a later call tries again.
    pub async fn shared(major: u32) -> Result<&'static Self, Error> {
        static SHARED: Mutex<Option<HashMap<u32, &'static PgServer>>> = Mutex::new(None);
        process::blocking(move || {
            // Held while the server starts: the other tests wait for it.
            let mut guard = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            let servers = guard.get_or_insert_with(HashMap::new);
            if let Some(server) = servers.get(&major) {
                return Ok(*server);
            }
            let cluster = Cluster::launch(PgServerBuilder::default().major(major))?;
            // A static is not dropped: the supervisor ends the server when this process is gone.
            let server: &'static Self = Box::leak(Box::new(Self { cluster: Arc::new(cluster) }));
            servers.insert(major, server);
            Ok(server)
        })
        .await
    }

    /// [`shared`](Self::shared) in the version that tests without a wish of their own get.
    ///
    /// # Errors
    ///
    /// As [`PgServerBuilder::start`].
    pub async fn shared_default() -> Result<&'static Self, Error> {
        crate::servers::check_allowed("postgres")?;
        Self::shared(PgInstall::find(None)?.major()).await
    }

    pub(crate) async fn launch(builder: PgServerBuilder) -> Result<Self, Error> {
        let cluster = process::blocking(move || Cluster::launch(builder)).await?;
        Ok(Self { cluster: Arc::new(cluster) })
    }

    /// Major version of the server.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.cluster.install().major()
    }

    /// The programs it runs from.
    #[must_use]
    pub fn install(&self) -> &PgInstall {
        self.cluster.install()
    }

    /// TCP port on 127.0.0.1; the same over every stop and start.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.cluster.port()
    }

    /// Directory of the unix socket.
    #[must_use]
    pub fn socket_dir(&self) -> PathBuf {
        self.cluster.dir().join("s")
    }

    /// The cluster's data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.cluster.dir().join("data")
    }

    /// `postgres://` URL over TCP, as superuser.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_as(SUPERUSER, database)
    }

    /// `postgres://` URL over TCP, as this user.
    #[must_use]
    pub fn url_as(&self, user: &str, database: &str) -> String {
        format!("postgres://{}@127.0.0.1:{}/{}", percent(user), self.port(), percent(database))
    }

    /// `postgres://` URL over the unix socket, as superuser.
    #[must_use]
    pub fn unix_url(&self, database: &str) -> String {
        let host = percent(&self.socket_dir().to_string_lossy());
        format!("postgres://{SUPERUSER}@{host}:{}/{}", self.port(), percent(database))
    }

    /// An SQL connection as superuser. Its background task runs on the caller's runtime and ends with the client.
    ///
    /// # Errors
    ///
    /// [`Error::Sql`] when the server refuses.
    pub async fn connect(&self, database: &str) -> Result<tokio_postgres::Client, Error> {
        self.connect_as(SUPERUSER, database).await
    }

    /// An SQL connection as this user, without a password.
    ///
    /// # Errors
    ///
    /// [`Error::Sql`] when the server refuses.
    pub async fn connect_as(&self, user: &str, database: &str) -> Result<tokio_postgres::Client, Error> {
        let (client, connection) = tokio_postgres::connect(&self.url_as(user, database), NoTls).await?;
        // A broken connection shows itself in the client's next call.
        tokio::spawn(async move { drop(connection.await) });
        Ok(client)
    }

    /// Makes a database whose name begins with `prefix` and is new on this server, and returns the name.
    ///
    /// # Errors
    ///
    /// [`Error::Sql`] when the server refuses.
    pub async fn create_database(&self, prefix: &str) -> Result<String, Error> {
        let name = crate::unique_name(prefix);
        let client = self.connect("postgres").await?;
        // template0 has no sessions that a copy would have to wait for.
        let statement = format!("CREATE DATABASE \"{}\" TEMPLATE template0", name.replace('"', "\"\""));
        client.batch_execute(&statement).await?;
        Ok(name)
    }

    /// Changes a line of `postgresql.conf`: for the next start, or after [`reload`](Self::reload).
    ///
    /// # Errors
    ///
    /// [`Error::File`] when the file cannot be written.
    pub async fn set(&self, name: &str, value: impl ToString) -> Result<(), Error> {
        let (name, value) = (name.to_owned(), value.to_string());
        self.blocking(move |cluster| cluster.set(name, value)).await
    }

    /// Makes the server read its configuration files again (SIGHUP). It does so a moment later.
    ///
    /// # Errors
    ///
    /// [`Error::State`] when it does not run.
    pub async fn reload(&self) -> Result<(), Error> {
        self.blocking(|cluster| cluster.signal("HUP")).await
    }

    /// Replaces `pg_hba.conf` by these lines, followed by the default ones; for the next start or reload.
    ///
    /// # Errors
    ///
    /// [`Error::File`] when the file cannot be written.
    pub async fn set_hba(&self, lines: &[&str]) -> Result<(), Error> {
        let builder = lines.iter().fold(PgServerBuilder::default(), |builder, line| builder.hba(*line));
        self.blocking(move |cluster| cluster.put("pg_hba.conf", builder.hba_file().as_bytes())).await
    }

    /// Stops the server and waits up to 60 s for its end.
    ///
    /// # Errors
    ///
    /// [`Error::StillRunning`] when it is not over by then; it is left running. [`Error::State`] when it does not run.
    ///
    /// # Cancel safety
    ///
    /// The shutdown goes on when the future is dropped.
    pub async fn stop(&self, mode: StopMode) -> Result<Stopped, Error> {
        self.stop_within(mode, STOP_TIMEOUT).await
    }

    /// Stops the server and waits as long as `limit` for its end.
    ///
    /// # Errors
    ///
    /// As [`stop`](Self::stop).
    ///
    /// # Cancel safety
    ///
    /// The shutdown goes on when the future is dropped.
    pub async fn stop_within(&self, mode: StopMode, limit: Duration) -> Result<Stopped, Error> {
        let signal = match mode {
            StopMode::Smart => "TERM",
            StopMode::Fast => "INT",
            StopMode::Immediate => "QUIT",
        };
        self.blocking(move |cluster| cluster.end(signal, limit)).await
    }

    /// Kills the postmaster and all its children with SIGKILL, and returns when none is left: a crash of everything
    /// but the operating system.
    ///
    /// # Errors
    ///
    /// [`Error::State`] when it does not run.
    pub async fn kill9(&self) -> Result<Stopped, Error> {
        self.blocking(Cluster::kill9).await
    }

    /// Starts a stopped or crashed server on its old port and data; it accepts connections when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`] with the end of its log, [`Error::State`] when it already runs.
    pub async fn start_again(&self) -> Result<(), Error> {
        self.blocking(Cluster::start_again).await
    }

    /// Whether the postmaster runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.cluster.is_running()
    }

    /// What the server has logged, from its first start on.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.cluster.dir().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Cluster) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let cluster = Arc::clone(&self.cluster);
        process::blocking(move || work(&cluster)).await
    }
}

fn percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
