//! `crabka status`: one screen of what a connector does, why nothing moves, and what it costs the server.
//!
//! A running worker tells all of it over its `/status` endpoint. Without one, the server and the checkpoint store are
//! asked for what they alone can tell.

mod screen;
mod server;

use std::time::Duration;

use clap::Args;
use crabka_connect::ConnectError;
use serde_json::{Value, json};

use self::server::ServerView;
use crate::cli::{ConfigFile, Global};
use crate::config::Config;
use crate::exit::Failure;
use crate::output::{Written, print, write};
use crate::signals::Signals;
use crate::{pipeline, worker_status};

/// How often `--watch` looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Back to the first line and column, and nothing below.
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";

/// Flags of the verb.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Print one JSON object instead of a screen; with --watch one a line.
    #[arg(long)]
    json: bool,
    /// Show it anew every second, until SIGINT or SIGTERM.
    #[arg(long)]
    watch: bool,
}

/// What was seen at one time.
struct Seen {
    /// The worker's own status, or why there is none.
    worker: Result<Value, ConnectError>,
    /// What the server tells; only without a worker.
    server: Option<Value>,
}

impl Seen {
    fn in_json(&self) -> Value {
        let (worker, why) = match &self.worker {
            Ok(status) => (Some(status), None),
            Err(error) => (None, Some(error.message())),
        };
        json!({ "worker": worker, "no_worker_because": why, "server": self.server })
    }

    /// An error unless a worker answered that is ready.
    fn verdict(self) -> Result<(), Failure> {
        let status = self.worker?;
        if status["ready"] == true {
            return Ok(());
        }
        let text = screen::reason(&status);
        Err(ConnectError::transient(format!("the worker is not ready: {text}")).into())
    }
}

/// Looks once and ends with what the exit code tells, or again and again until a signal.
pub(crate) async fn status(args: StatusArgs, global: &Global) -> Result<(), Failure> {
    let config = Config::load(&args.config.with(global))?;
    let mut server = ServerView::new(&config, pipeline::source(&config)?);
    if !args.watch {
        let seen = look(&config, &mut server).await;
        print(&shown(&config, &seen, args.json)?)?;
        return seen.verdict();
    }
    let mut signals = Signals::catch()?;
    let clears = !args.json && std::io::IsTerminal::is_terminal(&std::io::stdout());
    let watching = async {
        loop {
            let seen = look(&config, &mut server).await;
            let screen = shown(&config, &seen, args.json)?;
            let before = match (clears, args.json) {
                (true, _) => CLEAR_SCREEN,
                (false, true) => "",
                (false, false) => "\n",
            };
            if write(format!("{before}{screen}").as_bytes())? == Written::NobodyReads {
                return Ok(());
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::select! {
        ended = watching => ended,
        _signal = signals.first() => Ok(()),
    }
}

async fn look(config: &Config, server: &mut ServerView<'_>) -> Seen {
    let worker = match &config.http.listen {
        Some(listen) => worker_status::fetch(listen).await.and_then(|status| ours(config, listen, status)),
        None => Err(ConnectError::transient("a worker cannot be asked: http.listen is not set")
            .with_fix("set http.listen = \"127.0.0.1:8080\", so that a worker that runs can be asked")),
    };
    let server = match &worker {
        Ok(_) => None,
        Err(_) => Some(server.look().await),
    };
    Seen { worker, server }
}

/// Another connector's worker may listen on the address of ours.
fn ours(config: &Config, listen: &str, status: Value) -> Result<Value, ConnectError> {
    match status["connector"].as_str() {
        Some(name) if name == config.name => Ok(status),
        other => Err(ConnectError::transient(format!(
            "what answers on {listen} is not the worker of {}: {}",
            config.name,
            other.unwrap_or("no worker")
        ))),
    }
}

fn shown(config: &Config, seen: &Seen, as_json: bool) -> Result<String, Failure> {
    if as_json {
        return Ok(format!("{}\n", seen.in_json()));
    }
    Ok(match (&seen.worker, &seen.server) {
        (Ok(status), _) => screen::of_worker(status),
        (Err(error), server) => {
            screen::of_server(&config.name, error, server.as_ref().unwrap_or(&Value::Null))
        }
    })
}
