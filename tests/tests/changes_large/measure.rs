//! What this process uses.

use tokio::sync::{Mutex, MutexGuard};

static ALONE: Mutex<()> = Mutex::const_new(());

/// Waits until no other test of this process measures.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}

/// Resident set, in kB.
pub(crate) fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Processor time of all threads that still run, in ns.
pub(crate) fn processor_ns() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok())
        .map(|text| text.split_whitespace().next().unwrap().parse::<u64>().unwrap())
        .sum()
}

/// A number from the environment, so that a case can be run at its full size.
pub(crate) fn size(variable: &str, default: u32) -> u32 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}
