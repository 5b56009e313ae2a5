//! From commit to Kafka: a steady load of small transactions, and what a reader of the topic sees.
//!
//! The load, the reader and the produce round trips beside it are a program of their own, the bench `latency` of
//! `crabka-tests`: it needs a Kafka client, which this crate is to be built without.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use crabka_testkit::PgServer;
use serde_json::{Value, json};

use super::backlog::PUBLICATION;
use super::drain::{Bench, tail};
use super::options::Options;
use super::process::Process;
use crate::cargo;

/// The table of the load, as the probe fills it.
const TABLE: &str = "CREATE TABLE load (id bigint PRIMARY KEY, customer int, note text)";
const END_LIMIT: Duration = Duration::from_secs(60);
/// p99 from commit to Kafka is to be at most this many produce round trips,
const ROUND_TRIPS_MAX: f64 = 3.0;
/// and this many milliseconds.
const MARGIN_MS: f64 = 5.0;

/// Of one rate: what the probe told.
pub(super) struct Latency {
    told: Value,
}

impl Latency {
    fn ms(&self, what: &str, quantile: &str) -> f64 {
        self.told[what][quantile].as_f64().unwrap_or(f64::NAN)
    }

    /// The largest p99 that counts as reached.
    fn target_ms(&self) -> f64 {
        ROUND_TRIPS_MAX * self.ms("round_trip_ms", "p99") + MARGIN_MS
    }

    pub(super) fn print(&self) {
        println!(
            "\nlatency at {} transactions/s, {} counted over {} s",
            self.told["rate"], self.told["transactions"], self.told["seconds"]
        );
        for (what, name) in
            [("commit_to_reader_ms", "commit to reader"), ("round_trip_ms", "produce round trip")]
        {
            let [p50, p99, p999, max] =
                ["p50", "p99", "p99_9", "max"].map(|quantile| self.ms(what, quantile));
            println!("{name:>20}  p50 {p50:>7.2}  p99 {p99:>7.2}  p99.9 {p999:>7.2}  max {max:>7.2} ms");
        }
        let (p99, target) = (self.ms("commit_to_reader_ms", "p99"), self.target_ms());
        println!("{:>20}  p99 {p99:.2} ms, to reach: at most {target:.2} ms", "");
    }

    pub(super) fn json(&self) -> Value {
        let mut told = self.told.clone();
        told["target_p99_ms"] = json!(self.target_ms());
        told
    }
}

/// One run per rate, each on a new server.
pub(super) async fn measure(
    bench: &Bench<'_>,
    options: &Options,
    kafka: &str,
    latencies: &mut Vec<Latency>,
) -> Result<(), String> {
    for rate in &options.rates {
        println!("== latency: {rate} transactions/s for {} s", options.latency_seconds);
        latencies.push(at_rate(bench, options, kafka, *rate).await?);
    }
    Ok(())
}

async fn at_rate(bench: &Bench<'_>, options: &Options, kafka: &str, rate: u32) -> Result<Latency, String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let mut builder = PgServer::builder().setting("checkpoint_timeout", "1h").setting("max_wal_size", "32GB");
    if let Some(major) = options.major {
        builder = builder.major(major);
    }
    let server = builder.start().await.map_err(|error| told(&error))?;
    let slot = crabka_testkit::unique_name("latency");
    let database = server.create_database("bench").await.map_err(|error| told(&error))?;
    let sql = server.connect(&database).await.map_err(|error| told(&error))?;
    let publication = format!("CREATE PUBLICATION {PUBLICATION} FOR TABLE load");
    let make_slot = format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')");
    for statement in [TABLE, &publication, &make_slot] {
        sql.batch_execute(statement).await.map_err(|error| format!("{error:?}: {statement}"))?;
    }
    let sink = format!(
        "[sink]\ntype = \"kafka\"\nbootstrap_servers = \"{kafka}\"\n[checkpoint]\nstore = \"kafka\"\n"
    );
    let url = server.url(&database);
    let mut command = bench.worker(&url, &slot, "", &sink)?;
    let log = bench.dir.join(format!("{slot}.log"));
    let output = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    let mut worker =
        Process::start(&mut command).map_err(|error| format!("crabka does not start: {error}"))?;
    let probe = tokio::task::spawn_blocking({
        let topic = format!("{slot}.public.load");
        let (kafka, seconds) = (kafka.to_owned(), options.latency_seconds);
        move || probe(&[&url, &kafka, &topic, &rate.to_string(), &seconds.to_string()])
    });
    let told = probe.await.map_err(|error| error.to_string())?;
    if worker.has_ended() {
        return Err(format!("crabka ended by itself: {}", tail(&log)));
    }
    worker.terminate(END_LIMIT)?;
    Ok(Latency { told: told? })
}

/// Runs the probe to its end; it tells its figures as one line of JSON.
fn probe(arguments: &[&str]) -> Result<Value, String> {
    let output = cargo::cargo()
        .args(["bench", "--package", "crabka-tests", "--bench", "latency", "--"])
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let told = text.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    told.filter(|_| output.status.success())
        .ok_or_else(|| format!("the latency probe failed: {}", output.status))
}
