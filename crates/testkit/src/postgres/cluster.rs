//! The files and the process of one throw-away cluster; blocking, under the lock of whoever holds it.

use std::fmt::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::builder::PgServerBuilder;
use super::install::PgInstall;
use super::server::Stopped;
use super::template;
use crate::account::Account;
use crate::cache;
use crate::container::container_name;
use crate::error::Error;
use crate::port::free_port;
use crate::process;
use crate::supervisor::{self, Process, Supervisor, Watch, shell_word};

/// How long a start may take where the builder says nothing.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How much of the log an error shows.
const LOG_LINES: usize = 40;

/// How long a stop may take where the caller says nothing.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// One cluster on disk, and its process.
#[derive(Debug)]
pub(super) struct Cluster {
    install: PgInstall,
    account: Account,
    /// Used when the programs are a container image's.
    container_name: String,
    dir: PathBuf,
    start_timeout: Duration,
    port: AtomicU16,
    watch: Watch,
    state: Mutex<ClusterState>,
}

/// What changes in a cluster's life.
#[derive(Debug)]
struct ClusterState {
    supervisor: Supervisor,
    settings: Vec<(String, String)>,
}

impl Cluster {
    pub(super) fn launch(builder: PgServerBuilder) -> Result<Self, Error> {
        crate::servers::check_allowed("postgres")?;
        let install = match &builder.install {
            Some(install) => install.clone(),
            None => PgInstall::find(builder.major)?,
        };
        let dir = process::server_dir("crabka-pg-")?;
        let account = Account::unprivileged(dir.path())?;
        let data = dir.path().join("data");
        match &builder.backup {
            Some(backup) => cache::copy_tree(backup.path(), &data)?,
            None => template::new_cluster(&install, &account, &data)?,
        }
        std::fs::create_dir(dir.path().join("s")).map_err(Error::file(dir.path()))?;
        let container_name = container_name("postgres");
        let run = run_script(&install, &account, dir.path(), &container_name)?;
        std::fs::write(dir.path().join("run"), run).map_err(Error::file(dir.path()))?;
        account.own(dir.path())?;

        let supervisor = match install.container() {
            // Whoever runs the tests may talk to the engine; the server's account may not.
            Some(container) => {
                Supervisor::new(dir.path(), &Account::Own, "KILL", &container.removal(&container_name))?
            }
            None => Supervisor::new(dir.path(), &account, "QUIT", "")?,
        };
        let mut settings = PgServerBuilder::default_settings();
        settings.extend(builder.settings.iter().cloned());
        let inner = Self {
            install,
            account,
            container_name,
            dir: dir.keep(),
            start_timeout: builder.start_timeout.unwrap_or(START_TIMEOUT),
            port: AtomicU16::new(0),
            watch: supervisor.watch(),
            state: Mutex::new(ClusterState { supervisor, settings }),
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

    fn start(&self, state: &mut ClusterState) -> Result<(), Error> {
        let began = Instant::now();
        let lock_file = self.dir.join("data/postmaster.pid");
        let in_container = self.install.container().is_some();
        if in_container && self.watch.pid().is_none() {
            // In its container every postmaster has pid 1: what a killed one left would be taken for the new one's.
            let _ = std::fs::remove_file(&lock_file);
        }
        state.supervisor.start()?;
        loop {
            let pid = if in_container { Some(1) } else { self.watch.pid() };
            if is_ready(&lock_file, pid) {
                return Ok(());
            }
            let reason = match self.watch.process() {
                Process::Running(_) if began.elapsed() < self.start_timeout => {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                Process::Running(pid) => {
                    // Not to be left half started: the next start would find its lock file.
                    state.supervisor.signal("KILL", &[pid])?;
                    self.watch.wait_end(STOP_TIMEOUT);
                    format!("not ready after {} s", began.elapsed().as_secs())
                }
                Process::Ended(code) => format!("it ended with exit code {code}"),
                other => format!("its supervisor is gone: {other:?}"),
            };
            return Err(Error::NotReady { what: self.name(), reason, log: self.log_tail() });
        }
    }

    /// Sends a signal to the postmaster.
    pub(super) fn signal(&self, signal: &str) -> Result<(), Error> {
        let pid = self.running()?;
        match self.install.container() {
            Some(container) => container.signal(&self.container_name, signal),
            None => self.lock().supervisor.signal(signal, &[pid]),
        }
    }

    /// Sends a signal and waits for the end. Not under the lock: others may look, or kill what takes too long.
    pub(super) fn end(&self, signal: &str, limit: Duration) -> Result<Stopped, Error> {
        let began = Instant::now();
        self.signal(signal)?;
        self.ended(began, limit)
    }

    pub(super) fn kill9(&self) -> Result<Stopped, Error> {
        let postmaster = self.running()?;
        let began = Instant::now();
        if self.install.container().is_some() {
            return self.end("KILL", STOP_TIMEOUT);
        }
        // The postmaster first: it must not clean up after its children.
        let mut pids = vec![postmaster];
        pids.extend(process::children(postmaster));
        self.lock().supervisor.signal("KILL", &pids)?;
        let stopped = self.ended(began, STOP_TIMEOUT)?;
        process::wait_gone(&pids, STOP_TIMEOUT)?;
        Ok(stopped)
    }

    pub(super) fn start_again(&self) -> Result<(), Error> {
        self.start(&mut self.lock())
    }

    pub(super) fn set(&self, name: String, value: String) -> Result<(), Error> {
        let mut state = self.lock();
        state.settings.push((name, value));
        self.write_settings(&state.settings)
    }

    pub(super) fn is_running(&self) -> bool {
        self.watch.pid().is_some()
    }

    pub(super) fn install(&self) -> &PgInstall {
        &self.install
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn running(&self) -> Result<u32, Error> {
        self.watch.pid().ok_or_else(|| Error::State("the postgresql server does not run".into()))
    }

    fn ended(&self, began: Instant, limit: Duration) -> Result<Stopped, Error> {
        match self.watch.wait_end(limit) {
            Some(Process::Ended(code)) => Ok(Stopped { took: began.elapsed(), code }),
            Some(other) => Err(Error::State(format!("the supervisor lost the server: {other:?}"))),
            None => {
                Err(Error::StillRunning { what: self.name(), waited: began.elapsed(), log: self.log_tail() })
            }
        }
    }

    fn log_tail(&self) -> String {
        supervisor::tail(&self.dir.join("log"), LOG_LINES)
    }

    fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self) -> String {
        format!("postgresql {}", self.install.version())
    }

    pub(super) fn port(&self) -> u16 {
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

    pub(super) fn put(&self, name: &str, contents: &[u8]) -> Result<(), Error> {
        use std::io::Write as _;
        let path = self.dir.join("data").join(name);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&path).and_then(|mut file| file.write_all(contents)).map_err(Error::file(&path))?;
        self.account.own(&path)
    }
}

/// What the supervisor executes.
fn run_script(
    install: &PgInstall,
    account: &Account,
    dir: &Path,
    container_name: &str,
) -> Result<String, Error> {
    let data = shell_word(dir.join("data"));
    let Some(container) = install.container() else {
        return Ok(format!("exec {} -D {data}\n", shell_word(install.bin_for(account)?.join("postgres"))));
    };
    let words: Vec<String> =
        container.words(container_name, dir, account, "postgres").iter().map(shell_word).collect();
    Ok(format!("{}\nexec {} -D {data}\n", container.removal(container_name), words.join(" ")))
}

/// The postmaster writes its state into the eighth line of its lock file; an old file has another pid in the first.
fn is_ready(lock_file: &Path, pid: Option<u32>) -> bool {
    let Ok(text) = std::fs::read_to_string(lock_file) else { return false };
    let mut lines = text.lines();
    let ours = lines.next().and_then(|line| line.trim().parse().ok()) == pid && pid.is_some();
    ours && lines.nth(6).is_some_and(|state| matches!(state.trim(), "ready" | "standby"))
}
