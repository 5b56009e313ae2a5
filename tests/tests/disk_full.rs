//! A full disk under the file sink and under the file checkpoint: the run waits, acknowledges nothing that is not
//! durable, and goes on by itself when there is room.
//!
//! The disk is a limit on the size of files, which the worker gets from a shell that also lets it see the error instead
//! of a signal. Raising the limit is how room is made.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crabka_pgrepl::Lsn;
use crabka_testkit::needs;
use crabka_tests::{FileRun, LEDGER_TABLE, Writers, crabka};
use tokio::time::{Instant, sleep};

const LIMIT: Duration = Duration::from_secs(60);

/// A worker whose files may not grow beyond a size; its log is kept in memory, for it would be such a file.
struct Limited {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Limited {
    /// With files of at most so many blocks of 512 bytes.
    fn start(run: &FileRun, blocks: u32) -> Self {
        let file = run.path().join("crabka.toml");
        std::fs::write(&file, &run.config).unwrap();
        let script = format!("trap '' XFSZ; ulimit -S -f {blocks}; exec \"$@\"");
        let mut child = Command::new("sh")
            .args(["-c", &script, "sh"])
            .arg(crabka())
            .args(["run", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, kept) = (BufReader::new(child.stderr.take().unwrap()).lines(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut kept = kept.lock().unwrap();
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        Self { child, log }
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    async fn until_log(&mut self, words: &str) {
        let deadline = Instant::now() + LIMIT;
        while !self.log().contains(words) {
            assert!(self.child.try_wait().unwrap().is_none(), "ended:\n{}", self.log());
            assert!(Instant::now() < deadline, "does not say {words}:\n{}", self.log());
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// There is room again.
    fn lift(&self) {
        let lifted = Command::new("prlimit")
            .args(["--fsize=unlimited", "--pid", &self.child.id().to_string()])
            .status();
        assert!(lifted.expect("prlimit of util-linux").success());
    }

    async fn terminate(mut self) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}:\n{}", self.log());
                return;
            }
            assert!(Instant::now() < deadline, "still running:\n{}", self.log());
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is confirmed once it and the number of lines have stayed the same for a while.
async fn until_nothing_moves(run: &FileRun, slot: &str) -> Lsn {
    let deadline = Instant::now() + LIMIT;
    loop {
        let (lines, confirmed) = (run.lines().len(), run.database.confirmed_of(slot).await);
        sleep(Duration::from_secs(2)).await;
        if run.lines().len() == lines && run.database.confirmed_of(slot).await == confirmed {
            return confirmed;
        }
        assert!(Instant::now() < deadline, "goes on without room: {lines} lines, confirmed {confirmed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_under_the_file_sink_stops_nothing_and_loses_nothing() {
    needs!(postgres);
    let run = FileRun::new(LEDGER_TABLE, "public.ledger").await;
    let slot = run.database.slot();
    let mut worker = Limited::start(&run, 600);
    run.database.slot_made(&slot).await;
    let writers = Writers::start(Arc::clone(&run.server), &run.database, 2);
    worker.until_log("cannot append to the file").await;
    let last = writers.stop().await;
    // A later attempt may begin with a smaller batch, which still fits. Once none does, both stay.
    let full = until_nothing_moves(&run, &slot).await;
    let written = run.database.wal_end().await;
    assert!(full < written);

    worker.lift();
    let ledger = run.read_ledger(&last).await;
    assert_eq!(ledger.repeats, 0);
    run.database.confirmed_at_least(&slot, written, LIMIT).await;
    worker.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_under_the_file_checkpoint_acknowledges_nothing_until_there_is_room() {
    needs!(postgres);
    let mut run = FileRun::new(LEDGER_TABLE, "public.ledger").await;
    let slot = run.database.slot();
    // The checkpoint is the only file that is written.
    let sink =
        format!("type = \"file\"\n            path = \"{}\"", run.path().join("changes.jsonl").display());
    let config = run.config.replace(&sink, "type = \"null\"");
    assert_ne!(config, run.config);
    run.config = config;
    let mut worker = Limited::start(&run, 0);
    run.database.slot_made(&slot).await;
    let before = run.database.confirmed_of(&slot).await;
    run.database.run("INSERT INTO ledger VALUES (0, 1)").await;
    worker.until_log("cannot write the checkpoint file").await;
    run.database.run("INSERT INTO ledger VALUES (0, 2)").await;
    let written = run.database.wal_end().await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(run.database.confirmed_of(&slot).await, before, "acknowledged and not saved");
    assert!(!run.checkpoint().exists(), "a torn checkpoint file");

    worker.lift();
    run.database.confirmed_at_least(&slot, written, LIMIT).await;
    assert!(run.checkpoint().is_file());
    worker.terminate().await;
}
