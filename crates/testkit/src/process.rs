//! Small facts about processes, and the way from async tests to blocking work.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;

/// Longest path of a directory that a unix socket named `.s.PGSQL.12345` still fits below.
const SOCKET_DIR_BYTES_MAX: usize = 80;

/// Runs blocking work beside the runtime: servers come and go in real time, also in a test whose tokio clock is
/// paused, and live longer than the runtime that started them.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(Error::State(format!("the runtime ended: {error}"))),
        },
    }
}

/// A new directory for a server's files, on a path short enough for a unix socket.
pub(crate) fn server_dir(prefix: &str) -> Result<tempfile::TempDir, Error> {
    let parent = std::env::temp_dir();
    let parent = if parent.as_os_str().len() + prefix.len() + 10 < SOCKET_DIR_BYTES_MAX {
        &parent
    } else {
        Path::new("/tmp")
    };
    tempfile::Builder::new().prefix(prefix).tempdir_in(parent).map_err(Error::file(parent))
}

/// Processes whose parent is `pid`, as far as this system tells (Linux).
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|child| stat(*child).is_some_and(|(_, parent)| parent == pid)).collect()
}

/// Waits until none of these processes is left; one that only waits to be reaped counts as gone.
pub(crate) fn wait_gone(pids: &[u32], limit: Duration) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        let left: Vec<u32> =
            pids.iter().copied().filter(|pid| stat(*pid).is_some_and(|(state, _)| state != 'Z')).collect();
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > limit {
            return Err(Error::State(format!("processes that do not die: {left:?}")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// State letter and parent of a process. Its name, in parentheses, may hold anything.
fn stat(pid: u32) -> Option<(char, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// `prefix`, an underscore, and letters that no other call in this or another process has got.
#[must_use]
pub fn unique_name(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}_{:x}_{count}_{:06x}", std::process::id(), rand::random::<u32>() & 0xff_ffff)
}

/// The program of this name on `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

/// Runs a program to its end; what it printed is part of the error when it fails.
pub(crate) fn output(command: &mut Command, program: &str) -> Result<(), Error> {
    let output = command.output().map_err(Error::io(format!("starting {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(Error::Program { program: program.into(), reason: format!("{}: {}", output.status, text.trim()) })
}
