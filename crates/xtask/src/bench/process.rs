//! What the kernel tells of a process that was started here.

use std::io;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A child that is killed when this is dropped.
pub(super) struct Process {
    child: Child,
    peak_kb: u64,
}

/// State letter, and user and system time in clock ticks.
struct Stat {
    state: char,
    ticks: u64,
}

impl Process {
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        Ok(Self { child: command.spawn()?, peak_kb: 0 })
    }

    /// Whether it has ended. It stays a zombie until it is waited for, so that its times can still be read.
    pub(super) fn has_ended(&self) -> bool {
        self.stat().is_none_or(|stat| stat.state == 'Z')
    }

    /// User and system time of all its threads, those that have ended included.
    pub(super) fn cpu(&self) -> Duration {
        // USER_HZ is 100 on every Linux that Rust runs on: it is part of the kernel's interface.
        Duration::from_millis(self.stat().map_or(0, |stat| stat.ticks * 10))
    }

    /// The most memory that was resident at once, in kB, as far as it was looked at while it ran.
    pub(super) fn peak_kb(&mut self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        self.peak_kb = self.peak_kb.max(now);
        self.peak_kb
    }

    /// Ends it with SIGTERM, waits, and tells whether it ended well.
    pub(super) fn terminate(&mut self, limit: Duration) -> Result<bool, String> {
        let pid = self.child.id().to_string();
        // It may have ended by itself.
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status.success()),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                Ok(None) => return Err(format!("a process does not end: {pid}")),
                Err(error) => return Err(format!("waiting for a process: {error}")),
            }
        }
    }

    fn stat(&self) -> Option<Stat> {
        parse(&std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?)
    }
}

/// The name, in parentheses, may hold anything.
fn parse(stat: &str) -> Option<Stat> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat { state: fields.first()?.chars().next()?, ticks: ticks(11)? + ticks(12)? })
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_memory_of_a_process_that_works_and_ends() {
        let mut process = Process::start(
            Command::new("sh").args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]),
        )
        .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !process.has_ended() && Instant::now() < deadline {
            process.peak_kb();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(process.cpu() > Duration::ZERO, "a zombie's times are still there");
        assert!(process.peak_kb() > 0, "seen while it ran");
        assert_eq!(process.terminate(Duration::from_secs(10)), Ok(true));
    }

    #[test]
    fn a_name_with_parentheses_and_blanks_is_passed_over() {
        let stat = parse("12 (a) b) S 1 2 3 4 5 6 7 8 9 10 40 2 0 0").unwrap();
        assert_eq!((stat.state, stat.ticks), ('S', 42));
    }
}
