//! `crabka demo`: a throw-away PostgreSQL with a little traffic, streamed into Kafka, read back and shown.
//!
//! The stream is the real one: the same source, runtime and sink as `crabka run`, built from the same configuration.
//! Kafka is librdkafka's in-process mock cluster unless a broker is named. At the end what was read back is compared
//! with what was done, so the demo fails when something is lost, repeated or out of order.

mod kafka;
mod server;
mod shown;
mod traffic;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use crabka_connect::ConnectError;
use tokio::time::{Instant, sleep_until, timeout};

use crate::cli::Global;
use crate::config::{Config, Entries};
use crate::exit::Failure;
use crate::http;
use crate::output::print;
use crate::pipeline::{self, Pipeline};
use crate::signals::Signals;

use kafka::{DemoKafka, Reader};
use server::DemoServer;
use shown::{HEADER, Progress};
use traffic::Traffic;

/// How long the last records may take to come back once the traffic has ended.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(20);

/// Flags of the verb.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How long the traffic lasts.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// A real broker instead of the in-process mock cluster; the demo's topics are deleted at the end.
    #[arg(long, value_name = "HOST:PORT")]
    kafka: Option<String>,
    /// A server of your own instead of a throw-away one (needs wal_level = logical); what the demo makes in it is
    /// dropped at the end.
    #[arg(long, value_name = "URL", conflicts_with = "pg_bin")]
    pg: Option<String>,
    /// Directory of initdb and postgres for the throw-away server.
    #[arg(long, value_name = "DIR", env = "CRABKA_TEST_PG_BIN")]
    pg_bin: Option<PathBuf>,
}

/// Runs the demo until its time is up or a signal comes.
pub(crate) async fn demo(args: DemoArgs, global: &Global) -> Result<(), Failure> {
    let mut signals = Signals::catch()?;
    // Dropped last: the server must outlive everything that is connected to it.
    let server = match &args.pg {
        Some(_) => None,
        None => {
            let bin = args.pg_bin.clone();
            let started = tokio::task::spawn_blocking(move || DemoServer::start(bin.as_deref())).await;
            Some(started.map_err(|error| ConnectError::bug("starting the server").with_source(error))??)
        }
    };
    let url = match (&server, args.pg) {
        (Some(server), _) => server.url(),
        (None, url) => url.unwrap_or_default(),
    };
    let name = format!("crabka-demo-{}", std::process::id());
    let kafka = DemoKafka::start(args.kafka.as_deref(), &name)?;
    let mut traffic = Traffic::prepare(&url, &name).await?;
    let outcome = stream(&name, &url, &kafka, &mut traffic, args.seconds, global, &mut signals).await;
    let cleaned = traffic.clean_up().await;
    kafka.clean_up().await;
    tokio::task::spawn_blocking(move || drop(server))
        .await
        .map_err(|error| ConnectError::bug("stopping the server").with_source(error))?;
    outcome?;
    Ok(cleaned?)
}

/// Streams while there is traffic, and shows what comes back.
async fn stream(
    name: &str,
    url: &str,
    kafka: &DemoKafka,
    traffic: &mut Traffic,
    seconds: u64,
    global: &Global,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let config = configuration(name, url, kafka, global)?;
    // As `crabka init`: from here on nothing that is committed is missed.
    traffic.make_slot(&pipeline::source(&config)?).await?;
    let Pipeline { runtime, watch, .. } = pipeline::pipeline(&config, None)?;
    let handle = runtime.handle();
    let _endpoints = match &config.http.listen {
        Some(address) => Some(http::serve(address, watch).await?),
        None => None,
    };
    let mut run = tokio::spawn(runtime.run());
    let mut progress = Progress::new();
    print(&format!("{}\n{}\n{HEADER}\n", traffic.describe(), kafka.describe()))?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let shown = tokio::select! {
        // A run that ends by itself has failed, and its error says why.
        ended = &mut run => return Err(run_error(ended)),
        shown = show(kafka, traffic, &mut progress, end) => Some(shown),
        signal = signals.first() => {
            tracing::info!(signal, "ending early");
            None
        }
    };
    handle.stop();
    let ended = signals.until(&mut run, || handle.abort()).await;
    print(&progress.summary())?;
    match (ended, shown) {
        (Ok(Ok(())), Some(shown)) => shown.and_then(|()| Ok(progress.verdict()?)),
        // Broken off: a change may be on its way, and nothing is said about the whole.
        (Ok(Ok(())), None) => Ok(()),
        (ended, _) => Err(run_error(ended)),
    }
}

/// Makes changes until `end`, and prints what comes back, to the last of it.
async fn show(
    kafka: &DemoKafka,
    traffic: &mut Traffic,
    progress: &mut Progress,
    end: Instant,
) -> Result<(), Failure> {
    let mut reader = Reader::open(kafka)?;
    let mut next_change = Instant::now();
    loop {
        tokio::select! {
            record = reader.next() => print(&progress.read(record?))?,
            () = sleep_until(next_change) => {
                progress.done(&traffic.step().await?);
                next_change = Instant::now() + Traffic::PAUSE;
            }
            () = sleep_until(end) => break,
        }
    }
    let caught_up = async {
        while !progress.is_complete() {
            print(&progress.read(reader.next().await?))?;
        }
        Ok::<_, Failure>(())
    };
    match timeout(CATCH_UP_LIMIT, caught_up).await {
        Ok(caught_up) => caught_up,
        Err(_) => {
            tracing::warn!("not everything came back in time");
            Ok(())
        }
    }
}

fn run_error(ended: Result<Result<(), ConnectError>, tokio::task::JoinError>) -> Failure {
    match ended {
        Ok(Err(error)) => error.into(),
        Ok(Ok(())) => ConnectError::bug("the run ended although nobody asked for it").into(),
        Err(error) => ConnectError::bug("the run did not end in order").with_source(error).into(),
    }
}

/// The configuration of the demo, as a file and flags would give it.
fn configuration(name: &str, url: &str, kafka: &DemoKafka, global: &Global) -> Result<Config, Failure> {
    let mut entries = Entries::default();
    for (option, value) in &global.set {
        entries.set(option, value, "--set");
    }
    let servers = kafka.bootstrap_servers();
    for (section, option, value) in [
        ("", "name", name),
        ("source", "url", url),
        ("source", "tables", Traffic::TABLE),
        ("sink", "type", "kafka"),
        ("sink", "bootstrap_servers", &servers),
        ("sink", "partitions", "1"),
        // The mock cluster makes and describes no topics by request.
        ("sink", "create_topics", if kafka.is_mock() { "false" } else { "true" }),
        ("sink", "describe_topics", if kafka.is_mock() { "false" } else { "true" }),
        ("checkpoint", "store", "memory"),
    ] {
        entries.preset(section, option, value, "the demo");
    }
    Ok(Config::from_entries(entries)?)
}
