//! What the figures were taken on.

use std::path::Path;
use std::process::Command;

use crabka_testkit::{KafkaBroker, PgInstall};

pub(super) fn describe(
    install: &PgInstall,
    broker: Option<&KafkaBroker>,
    worker: &Path,
) -> Vec<(&'static str, String)> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    let mut facts = vec![
        ("cpu", format!("{cores} x {model}")),
        ("kernel", kernel.trim().to_owned()),
        ("load before", load),
        ("postgresql", install.version().to_owned()),
    ];
    if let Some(broker) = broker {
        facts.push(("kafka", broker.version().unwrap_or("running already").to_owned()));
    }
    if let Some(version) = output(worker, &["--version"]) {
        facts.push(("worker", version));
    }
    if let Some(commit) = output(Path::new("git"), &["describe", "--always", "--dirty"]) {
        facts.push(("commit", commit));
    }
    facts
}

fn output(program: &Path, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
