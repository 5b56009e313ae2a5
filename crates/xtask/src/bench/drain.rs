//! One client drains one backlog, and is measured.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::backlog::{Backlog, PUBLICATION};
use super::options::{Client, Form};
use super::process::Process;

/// How often it is looked whether a client is through; what this and the client's last status take is a part of its time.
const LOOK: Duration = Duration::from_millis(10);
/// Heartbeats are records too; a drain has time for a few.
const HEARTBEATS_MAX: u64 = 10;
/// Nothing takes that long; a client that hangs must not hang the benchmark.
const LIMIT: Duration = Duration::from_secs(600);
const END_LIMIT: Duration = Duration::from_secs(60);

/// What a client took for a backlog.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drained {
    pub(super) rows: u64,
    /// From the start of the process until the server knows that everything is durable.
    pub(super) took: Duration,
    /// Of which until the server began to send.
    pub(super) start_up: Duration,
    /// User and system time of the process until then.
    pub(super) cpu: Duration,
    pub(super) peak_kb: u64,
}

impl Drained {
    pub(super) fn rows_per_second(&self) -> f64 {
        self.rows as f64 / self.took.as_secs_f64()
    }

    pub(super) fn cpu_us_per_row(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.rows as f64
    }
}

/// The programs and servers that clients need.
pub(super) struct Bench<'a> {
    pub(super) worker: &'a Path,
    pub(super) recvlogical: &'a Path,
    pub(super) kafka: Option<String>,
    pub(super) set: &'a [String],
    /// For configurations and logs.
    pub(super) dir: &'a Path,
}

impl Bench<'_> {
    /// Drains the backlog with a slot of its own.
    pub(super) async fn drain(
        &self,
        backlog: &Backlog,
        client: Client,
        form: Form,
    ) -> Result<Drained, String> {
        let slot = crabka_testkit::unique_name("bench");
        backlog.make_slot(&slot).await?;
        let log = self.dir.join(format!("{slot}.log"));
        let mut command = match client {
            Client::Recvlogical => self.recvlogical(backlog, &slot, form),
            Client::Null | Client::Kafka => self.crabka(backlog, &slot, client, form)?,
        };
        let output = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let drained = measure(backlog, &slot, client, &mut command, &log).await;
        let drained = drained.map_err(|reason| format!("{}: {reason}: {}", client.name(), tail(&log)))?;
        // Kept after a failure only.
        for file in [log, self.config_file(&slot)] {
            let _ = std::fs::remove_file(file);
        }
        Ok(drained)
    }

    fn recvlogical(&self, backlog: &Backlog, slot: &str, form: Form) -> Command {
        let mut command = Command::new(self.recvlogical);
        command
            .args(["--start", "--no-loop", "--file", "/dev/null", "--slot", slot, "--endpos", backlog.end()])
            .args(["--dbname", &backlog.server().url(backlog.database())])
            .args(["-o", "proto_version=1", "-o", &format!("publication_names={PUBLICATION}")])
            .args(["-o", "messages=true", "-o", &format!("binary={}", form == Form::Binary)]);
        command
    }

    fn crabka(&self, backlog: &Backlog, slot: &str, client: Client, form: Form) -> Result<Command, String> {
        let sink = match (client, &self.kafka) {
            (Client::Kafka, Some(servers)) => format!(
                "[sink]\ntype = \"kafka\"\nbootstrap_servers = \"{servers}\"\n\
                 [sink.topic_config]\n\"retention.ms\" = \"10000\"\n\"segment.bytes\" = \"67108864\"\n\
                 [checkpoint]\nstore = \"kafka\"\n"
            ),
            _ => "[sink]\ntype = \"null\"\n[checkpoint]\nstore = \"memory\"\n".to_owned(),
        };
        let source = format!("binary = {}", form == Form::Binary);
        self.worker(&backlog.server().url(backlog.database()), slot, &source, &sink)
    }

    /// `crabka run` of a slot and publication that exist.
    pub(super) fn worker(&self, url: &str, slot: &str, source: &str, sink: &str) -> Result<Command, String> {
        let config = format!(
            "name = \"{slot}\"\n[source]\nurl = \"{url}\"\npublication = \"{PUBLICATION}\"\ncreate = false\n{source}\n\
             [envelope]\ntype = \"debezium\"\n{sink}"
        );
        let file = self.config_file(slot);
        std::fs::write(&file, config).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut command = Command::new(self.worker);
        command.args(["run", "--log-format", "json", "-c"]).arg(&file);
        command.args(self.set.iter().flat_map(|option| ["--set", option]));
        Ok(command)
    }

    fn config_file(&self, slot: &str) -> PathBuf {
        self.dir.join(format!("{slot}.toml"))
    }
}

async fn measure(
    backlog: &Backlog,
    slot: &str,
    client: Client,
    command: &mut Command,
    log: &Path,
) -> Result<Drained, String> {
    let began = Instant::now();
    let mut process = Process::start(command).map_err(|error| format!("it does not start: {error}"))?;
    let mut streaming = None;
    while !backlog.is_drained(slot).await? {
        if streaming.is_none() && backlog.is_active(slot).await? {
            streaming = Some(began.elapsed());
        }
        process.peak_kb();
        // `pg_recvlogical` ends in the moment in which it confirms.
        if process.has_ended() && !backlog.is_drained(slot).await? {
            return Err("it ended before everything was confirmed".into());
        }
        if began.elapsed() > LIMIT {
            return Err(format!("not through after {} s", LIMIT.as_secs()));
        }
        tokio::time::sleep(LOOK).await;
    }
    let (took, cpu) = (began.elapsed(), process.cpu());
    let peak_kb = process.peak_kb();
    if !process.terminate(END_LIMIT)? {
        return Err("it ended with an error".into());
    }
    if client != Client::Recvlogical {
        let delivered = delivered(log)?;
        if !(backlog.changes()..=backlog.changes() + HEARTBEATS_MAX).contains(&delivered) {
            return Err(format!(
                "{} changes were to be delivered, it tells of {delivered}",
                backlog.changes()
            ));
        }
    }
    Ok(Drained { rows: backlog.rows(), took, start_up: streaming.unwrap_or(took), cpu, peak_kb })
}

/// Records that were durable in the sink, as the last line of the log tells.
fn delivered(log: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(log).map_err(|error| error.to_string())?;
    let told = text.lines().rev().find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        line.get("records_delivered")?.as_u64()
    });
    told.ok_or_else(|| "its log does not tell how many records were delivered".to_owned())
}

/// The last lines of a log, on one line.
pub(super) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}
