//! The pipeline of the `crabka` command, held at a named point until it is killed there.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crabka_connect::Point;

/// How long the way to the point may take.
const HOLD_LIMIT: Duration = Duration::from_secs(60);

/// A run that stands still at its point.
pub struct Held {
    child: Child,
    log: PathBuf,
    journal: PathBuf,
}

impl Held {
    /// Starts `host` (`crabka-held`) with a configuration and returns when it stands at `point` for the `nth` time.
    ///
    /// # Panics
    ///
    /// With its log, when it ends or does not get there.
    pub async fn at(host: &Path, dir: &Path, config: &str, point: Point, nth: u32) -> Self {
        let (file, log, journal) =
            (dir.join("held.toml"), dir.join("held.log"), dir.join(format!("journal-{point}-{nth}")));
        std::fs::write(&file, config).expect("the configuration is written");
        // Of an earlier run to the same point.
        let _ = std::fs::remove_file(&journal);
        let output = std::fs::File::options().create(true).append(true).open(&log).expect("a log file");
        let mut child = Command::new(host)
            .arg(&file)
            .args([point.as_str(), &nth.to_string()])
            .arg(&journal)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(output)
            .spawn()
            .expect("crabka-held starts");
        let stdout = child.stdout.take().expect("a pipe");
        let held = Self { child, log, journal };
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let line = BufReader::new(stdout).lines().map_while(Result::ok).next();
            // Nobody waits any more when the test has failed.
            let _ = sender.send(line);
        });
        let line = tokio::task::spawn_blocking(move || receiver.recv_timeout(HOLD_LIMIT)).await;
        match line.expect("no panic") {
            Ok(Some(line)) => assert_eq!(line, format!("held at {point}")),
            other => panic!("not held at {point} ({other:?}):\n{}", held.log()),
        }
        held
    }

    /// SIGKILL; gives the points that it had passed, in order, the one at which it stood included.
    pub fn kill9(mut self) -> Vec<String> {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        let journal = std::fs::read_to_string(&self.journal).expect("a journal");
        journal.lines().map(str::to_owned).collect()
    }

    /// What it has logged, runs before this one in the same directory included.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
