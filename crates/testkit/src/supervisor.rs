//! Keeps one server process, and ends it when this process ends in whatever way.
//!
//! Between us and the server stands a small `sh`. It reads our commands from a pipe; when the pipe closes, because
//! the owner was dropped or because this process was killed with SIGKILL, it stops the server and removes its
//! directory. It reports starts and ends on its standard output, which a plain thread reads: nothing here belongs to
//! an async runtime, so a server outlives the runtime of the test that happened to start it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::account::Account;
use crate::error::Error;

/// `$1` directory to remove at the end, `$2` signal that ends the server, `$3` script run after the server's end
/// (empty for none). The server is `$1/run`, a script that must `exec` it, so that its pid is the one reported.
const SCRIPT: &str = r#"
dir=$1 final=$2 after=$3
while read -r verb rest; do
  case $verb in
    start)
      ( sh "$dir/run" </dev/null >>"$dir/log" 2>&1 &
        echo $! >"$dir/pid"
        echo "started $!"
        wait $!
        code=$?
        rm -f "$dir/pid"
        echo "ended $code" ) &
      ;;
    signal) kill -s $rest ;;
  esac
done
for signal in $final KILL; do
  [ -s "$dir/pid" ] || break
  kill -s $signal "$(cat "$dir/pid")"
  tries=0
  while [ -e "$dir/pid" ] && [ $tries -lt 500 ]; do
    sleep 0.02
    tries=$((tries + 1))
  done
done
[ -z "$after" ] || sh -c "$after"
cd /
rm -rf "$dir"
"#;

/// How long the supervisor may take to answer a start; it only has to fork.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// What is known of the server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Process {
    /// Never started, or its end was taken note of by a new start.
    Idle,
    /// Runs with this pid.
    Running(u32),
    /// Ended; exit code as a shell gives it (128 + signal when a signal ended it).
    Ended(i32),
    /// The supervisor itself is gone.
    Lost,
}

/// What is known of one server process, for whoever waits for a change of it; no lock of the owner is needed.
#[derive(Debug, Clone)]
pub(crate) struct Watch(Arc<Watched>);

#[derive(Debug)]
struct Watched {
    process: Mutex<Process>,
    changed: Condvar,
}

impl Watch {
    pub(crate) fn process(&self) -> Process {
        *self.0.lock()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        match self.process() {
            Process::Running(pid) => Some(pid),
            _ => None,
        }
    }

    /// Waits until the server has ended; `None` when it still runs after `limit`.
    pub(crate) fn wait_end(&self, limit: Duration) -> Option<Process> {
        match self.0.wait_while(limit, |process| matches!(process, Process::Running(_))) {
            Process::Running(_) => None,
            process => Some(process),
        }
    }
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, process: Process) {
        *self.lock() = process;
        self.changed.notify_all();
    }

    fn wait_while(&self, limit: Duration, condition: impl Fn(Process) -> bool) -> Process {
        let until = Instant::now() + limit;
        let mut process = self.lock();
        while condition(*process) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            process = self.changed.wait_timeout(process, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *process
    }
}

/// One server process and the shell that watches over it. Dropping it stops the server and removes its directory.
#[derive(Debug)]
pub(crate) struct Supervisor {
    shell: Child,
    commands: Option<ChildStdin>,
    watched: Arc<Watched>,
}

impl Supervisor {
    /// Takes over `dir` (it is removed at the end) and waits for commands. `final_signal` ends the server when the
    /// owner is gone; `after`, a shell command, is run then.
    pub(crate) fn new(dir: &Path, account: &Account, final_signal: &str, after: &str) -> Result<Self, Error> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(SCRIPT).arg("supervisor").arg(dir).arg(final_signal).arg(after);
        account.apply(&mut command);
        // Its own process group: Ctrl-C at a terminal reaches the test, whose end then ends the server in order.
        command.process_group(0).current_dir(dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = command.spawn().map_err(Error::io("starting sh"))?;
        let commands = shell.stdin.take();
        let watched = Arc::new(Watched { process: Mutex::new(Process::Idle), changed: Condvar::new() });
        if let Some(reports) = shell.stdout.take() {
            let watched = Arc::clone(&watched);
            std::thread::spawn(move || {
                for line in BufReader::new(reports).lines().map_while(Result::ok) {
                    match line.split_once(' ') {
                        Some(("started", pid)) => watched.set(Process::Running(pid.parse().unwrap_or(0))),
                        Some(("ended", code)) => watched.set(Process::Ended(code.parse().unwrap_or(-1))),
                        _ => {}
                    }
                }
                watched.set(Process::Lost);
            });
        }
        Ok(Self { shell, commands, watched })
    }

    pub(crate) fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.watched))
    }

    /// Runs `DIR/run` and returns its pid.
    pub(crate) fn start(&mut self) -> Result<u32, Error> {
        if let Some(pid) = self.watch().pid() {
            return Err(Error::State(format!("the server already runs: pid {pid}")));
        }
        self.watched.set(Process::Idle);
        self.say("start")?;
        match self.watched.wait_while(ANSWER_TIMEOUT, |process| process == Process::Idle) {
            Process::Running(pid) => Ok(pid),
            // A server that cannot even exec is over at once; the caller finds the reason in its log.
            Process::Ended(_) => Ok(0),
            other => Err(Error::State(format!("the supervisor did not start the server: {other:?}"))),
        }
    }

    /// Sends a signal (`INT`, `KILL`, …) to these processes.
    pub(crate) fn signal(&mut self, signal: &str, pids: &[u32]) -> Result<(), Error> {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        self.say(&format!("signal {signal} {}", pids.join(" ")))
    }

    fn say(&mut self, line: &str) -> Result<(), Error> {
        let pipe = self.commands.as_mut().ok_or_else(|| Error::State("the supervisor is closed".into()))?;
        pipe.write_all(format!("{line}\n").as_bytes()).map_err(Error::io("telling the supervisor"))
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.commands = None;
        // The shell bounds its own end; without the wait a test's last server would outlive the test.
        let _ = self.shell.wait();
    }
}

/// Last `lines` lines of a file that may not exist.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// `text` as one word of a POSIX shell.
pub(crate) fn shell_word(text: impl AsRef<std::ffi::OsStr>) -> String {
    format!("'{}'", text.as_ref().to_string_lossy().replace('\'', r"'\''"))
}
