//! The built command as a process.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod database;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long something that must happen may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The command with nothing of this process' settings that would change what it does.
pub(crate) fn crabka() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crabka"));
    // CRABKA_TEST_PG_BIN stands for the demo's --pg-bin, which excludes --pg.
    for name in [
        "RUST_LOG",
        "CRABKA_CONFIG",
        "CRABKA_LOG_FORMAT",
        "CRABKA_TEST_PG_BIN",
        "PGPASSWORD",
        "PGUSER",
        "PGHOST",
        "PGDATABASE",
    ] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn output(arguments: &[&str]) -> Output {
    crabka().args(arguments).output().unwrap()
}

/// Standard output as text.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The last line of standard error.
pub(crate) fn last_line(output: &Output) -> String {
    stderr(output).lines().last().unwrap_or_default().to_owned()
}

/// A directory with a configuration file.
pub(crate) struct Workplace {
    directory: tempfile::TempDir,
}

impl Workplace {
    pub(crate) fn new(config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("crabka.toml"), config).unwrap();
        Self { directory }
    }

    /// The configuration file.
    pub(crate) fn config(&self) -> String {
        self.path("crabka.toml").display().to_string()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The lines of a file, parsed; a line that is still being written is left out.
    pub(crate) fn lines(&self, name: &str) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Runs a verb with `-c` to its end.
    pub(crate) fn output(&self, verb: &str, arguments: &[&str]) -> Output {
        crabka().args([verb, "-c", &self.config()]).args(arguments).output().unwrap()
    }

    /// Starts `crabka run`.
    pub(crate) fn run(&self, arguments: &[&str]) -> Running {
        let log = self.path("stderr.log");
        let file = std::fs::File::options().create(true).append(true).open(&log).unwrap();
        let child = crabka()
            .args(["run", "-c", &self.config()])
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap();
        Running { child, log }
    }
}

/// A running command; killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// A command that was started some other way, with its log.
    pub(crate) fn of(child: Child, log: PathBuf) -> Self {
        Self { child, log }
    }

    /// Starts any command line, standard output into a file.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> (Self, PathBuf) {
        let (log, out) = (directory.join("stderr.log"), directory.join("stdout"));
        let child = crabka()
            .args(arguments)
            .stdout(std::fs::File::create(&out).unwrap())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        (Self { child, log }, out)
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The end of the log, for messages of tests.
    fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// The exit code; panics when it does not end in time.
    pub(crate) fn code(&mut self) -> Option<i32> {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "still running:\n{}", self.log_end());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it with SIGTERM, which must be graceful.
    pub(crate) fn terminate(mut self) {
        self.signal("TERM");
        let code = self.code();
        assert_eq!(code, Some(0), "{}", self.log());
    }

    /// Waits until `condition` gives something; panics when the command ends, or it takes too long.
    pub(crate) fn until<T>(&mut self, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(found) = condition() {
                return found;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended while waiting for {what}:\n{}", self.log());
            assert!(Instant::now() < end, "no {what} in time:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the log holds `text`.
    pub(crate) fn until_log(&mut self, text: &str) {
        let log = self.log.clone();
        self.until(text, || std::fs::read_to_string(&log).unwrap_or_default().contains(text).then_some(()));
    }

    /// Where its HTTP endpoints listen, from a JSON log.
    pub(crate) fn http_address(&mut self) -> SocketAddr {
        let log = self.log.clone();
        self.until("http address", || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let addresses =
                text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            addresses.filter_map(|line| line["address"].as_str()?.parse().ok()).next_back()
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// GET over HTTP: the status and the JSON.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, serde_json::Value) {
    let (status, body) = get_text(address, path);
    (status, serde_json::from_str(&body).unwrap())
}

/// GET over HTTP: the status and the body.
pub(crate) fn get_text(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}
