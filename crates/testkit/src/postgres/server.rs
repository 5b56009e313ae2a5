//! One throw-away cluster: start, stop in each of the ways there are, start again.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use super::builder::PgServerBuilder;
use super::install::PgInstall;
use super::template::{self, SUPERUSER};
use crate::account::Account;
use crate::error::Error;
use crate::port::free_port;
use crate::process;
use crate::supervisor::{Process, Supervisor, shell_word};

/// How long a start may take where the builder says nothing.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long [`PgServer::stop`] waits.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

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
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    install: PgInstall,
    account: Account,
    dir: PathBuf,
    start_timeout: Duration,
    port: AtomicU16,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    supervisor: Supervisor,
    settings: Vec<(String, String)>,
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
            let inner = Inner::launch(PgServerBuilder::default().major(major))?;
            // A static is not dropped: the supervisor ends the server when this process is gone.
            let server: &'static Self = Box::leak(Box::new(Self { inner: Arc::new(inner) }));
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
        let inner = process::blocking(move || Inner::launch(builder)).await?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Major version of the server.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.inner.install.major()
    }

    /// The programs it runs from.
    #[must_use]
    pub fn install(&self) -> &PgInstall {
        &self.inner.install
    }

    /// TCP port on 127.0.0.1; the same over every stop and start.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.inner.port()
    }

    /// Directory of the unix socket.
    #[must_use]
    pub fn socket_dir(&self) -> PathBuf {
        self.inner.dir.join("s")
    }

    /// The cluster's data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.inner.dir.join("data")
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
        let pair = (name.to_owned(), value.to_string());
        self.with_state(move |inner, state| {
            state.settings.push(pair);
            inner.write_settings(&state.settings)
        })
        .await
    }

    /// Makes the server read its configuration files again (SIGHUP). It does so a moment later.
    ///
    /// # Errors
    ///
    /// [`Error::State`] when it does not run.
    pub async fn reload(&self) -> Result<(), Error> {
        self.with_state(|_, state| {
            let pid = state.running()?;
            state.supervisor.signal("HUP", &[pid])
        })
        .await
    }

    /// Replaces `pg_hba.conf` by these lines, followed by the default ones; for the next start or reload.
    ///
    /// # Errors
    ///
    /// [`Error::File`] when the file cannot be written.
    pub async fn set_hba(&self, lines: &[&str]) -> Result<(), Error> {
        let builder = lines.iter().fold(PgServerBuilder::default(), |builder, line| builder.hba(*line));
        self.with_state(move |inner, _| inner.put("pg_hba.conf", builder.hba_file().as_bytes())).await
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
        self.with_state(move |inner, state| {
            let pid = state.running()?;
            let began = Instant::now();
            state.supervisor.signal(signal, &[pid])?;
            state.ended(inner, began, limit)
        })
        .await
    }

    /// Kills the postmaster and all its children with SIGKILL, and returns when none is left: a crash of everything
    /// but the operating system.
    ///
    /// # Errors
    ///
    /// [`Error::State`] when it does not run.
    pub async fn kill9(&self) -> Result<Stopped, Error> {
        self.with_state(|inner, state| {
            let postmaster = state.running()?;
            let began = Instant::now();
            // The postmaster first: it must not clean up after its children.
            let mut pids = vec![postmaster];
            pids.extend(process::children(postmaster));
            state.supervisor.signal("KILL", &pids)?;
            let stopped = state.ended(inner, began, STOP_TIMEOUT)?;
            process::wait_gone(&pids, STOP_TIMEOUT)?;
            Ok(stopped)
        })
        .await
    }

    /// Starts a stopped or crashed server on its old port and data; it accepts connections when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`] with the end of its log, [`Error::State`] when it already runs.
    pub async fn start_again(&self) -> Result<(), Error> {
        self.with_state(|inner, state| inner.start(state)).await
    }

    /// Whether the postmaster runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.inner.lock().supervisor.pid().is_some()
    }

    /// What the server has logged, from its first start on.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.inner.dir.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    async fn with_state<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner, &mut State) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = Arc::clone(&self.inner);
        process::blocking(move || work(&inner, &mut inner.lock())).await
    }
}

impl State {
    fn running(&self) -> Result<u32, Error> {
        self.supervisor.pid().ok_or_else(|| Error::State("the postgresql server does not run".into()))
    }

    fn ended(&self, inner: &Inner, began: Instant, limit: Duration) -> Result<Stopped, Error> {
        match self.supervisor.wait_end(limit) {
            Some(Process::Ended(code)) => Ok(Stopped { took: began.elapsed(), code }),
            Some(other) => Err(Error::State(format!("the supervisor lost the server: {other:?}"))),
            None => Err(Error::StillRunning {
                what: inner.name(),
                waited: began.elapsed(),
                log: self.supervisor.log_tail(),
            }),
        }
    }
}

impl Inner {
    fn launch(builder: PgServerBuilder) -> Result<Self, Error> {
        crate::servers::check_allowed("postgres")?;
        let install = match &builder.install {
            Some(install) => install.clone(),
            None => PgInstall::find(builder.major)?,
        };
        let dir = process::server_dir("crabka-pg-")?;
        let account = Account::unprivileged(dir.path())?;
        template::new_cluster(&install, &account, &dir.path().join("data"))?;
        std::fs::create_dir(dir.path().join("s")).map_err(Error::file(dir.path()))?;
        let bin = install.bin_for(&account)?;
        let run =
            format!("exec {} -D {}\n", shell_word(bin.join("postgres")), shell_word(dir.path().join("data")));
        std::fs::write(dir.path().join("run"), run).map_err(Error::file(dir.path()))?;
        account.own(dir.path())?;

        let supervisor = Supervisor::new(dir.path(), &account, "QUIT", "")?;
        let mut settings = PgServerBuilder::default_settings();
        settings.extend(builder.settings.iter().cloned());
        let inner = Self {
            install,
            account,
            dir: dir.keep(),
            start_timeout: builder.start_timeout.unwrap_or(START_TIMEOUT),
            port: AtomicU16::new(0),
            state: Mutex::new(State { supervisor, settings }),
        };
        inner.append_include()?;
        inner.put("pg_hba.conf", builder.hba_file().as_bytes())?;
        for (name, contents) in &builder.files {
            inner.put(name, contents)?;
        }
        inner.start_on_a_free_port()?;
        Ok(inner)
    }

    /// Between looking for a port and using it another process may take it.
    fn start_on_a_free_port(&self) -> Result<(), Error> {
        let mut state = self.lock();
        for _ in 0..4 {
            self.port.store(free_port()?, Ordering::Relaxed);
            self.write_settings(&state.settings)?;
            match self.start(&mut state) {
                Err(Error::NotReady { log, .. }) if log.contains("Address already in use") => {}
                outcome => return outcome,
            }
        }
        Err(Error::State("four free ports in turn were taken by somebody else".into()))
    }

    fn start(&self, state: &mut State) -> Result<(), Error> {
        let began = Instant::now();
        state.supervisor.start()?;
        loop {
            if is_ready(&self.dir.join("data/postmaster.pid"), state.supervisor.pid()) {
                return Ok(());
            }
            let reason = match state.supervisor.process() {
                Process::Running(_) if began.elapsed() < self.start_timeout => {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                Process::Running(pid) => {
                    // Not to be left half started: the next start would find its lock file.
                    state.supervisor.signal("KILL", &[pid])?;
                    state.supervisor.wait_end(STOP_TIMEOUT);
                    format!("not ready after {} s", began.elapsed().as_secs())
                }
                Process::Ended(code) => format!("it ended with exit code {code}"),
                other => format!("its supervisor is gone: {other:?}"),
            };
            return Err(Error::NotReady { what: self.name(), reason, log: state.supervisor.log_tail() });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self) -> String {
        format!("postgresql {}", self.install.version())
    }

    fn port(&self) -> u16 {
        self.port.load(Ordering::Relaxed)
    }

    fn append_include(&self) -> Result<(), Error> {
        let path = self.dir.join("data/postgresql.conf");
        let mut text = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
        text.push_str("\ninclude 'test.conf'\n");
        std::fs::write(&path, text).map_err(Error::file(&path))
    }

    fn write_settings(&self, settings: &[(String, String)]) -> Result<(), Error> {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(text, "{name} = '{}'", value.replace('\'', "''"));
        };
        line("listen_addresses", "127.0.0.1");
        line("port", &self.port().to_string());
        line("unix_socket_directories", &self.dir.join("s").to_string_lossy());
        for (name, value) in settings {
            line(name, value);
        }
        self.put("test.conf", text.as_bytes())
    }

    fn put(&self, name: &str, contents: &[u8]) -> Result<(), Error> {
        use std::io::Write as _;
        let path = self.dir.join("data").join(name);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&path).and_then(|mut file| file.write_all(contents)).map_err(Error::file(&path))?;
        self.account.own(&path)
    }
}

/// The postmaster writes its state into the eighth line of its lock file; an old file has another pid in the first.
fn is_ready(lock_file: &Path, pid: Option<u32>) -> bool {
    let Ok(text) = std::fs::read_to_string(lock_file) else { return false };
    let mut lines = text.lines();
    let ours = lines.next().and_then(|line| line.trim().parse().ok()) == pid && pid.is_some();
    ours && lines.nth(6).is_some_and(|state| matches!(state.trim(), "ready" | "standby"))
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
