//! The `crabka` command: streams PostgreSQL changes into Kafka.
//!
//! The only crate that names concrete sources, sinks and checkpoint stores. A verb is a module in `commands`, an
//! option a declaration in `config`, a sink or store an arm in `pipeline`.
//!
//! A library beside the binary so that a test can run the very same pipeline and hold it at a named point
//! ([`run_observed`]); the command itself has no switch for that. It has no other users, and no stable interface.
#![allow(clippy::disallowed_methods)]

mod cli;
mod commands;
mod config;
mod exit;
mod http;
mod logging;
mod output;
mod pipeline;
mod signals;
mod stored;
mod watch;
mod worker_status;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use crabka_connect::{ConnectError, Observer};

use cli::{Cli, Command};
use config::Given;
use exit::Failure;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    exit::install_panic_hook();
    let cli = Cli::parse();
    exit::set_format(cli.global.log_format);
    exit::end(start(cli))
}

/// `crabka run -c FILE` with an observer of the runtime, for crash tests.
pub fn run_observed(file: PathBuf, observer: Arc<dyn Observer>) -> ExitCode {
    exit::install_panic_hook();
    let given = Given { file: Some(file), set: Vec::new() };
    let logging = logging::start(logging::LogFormat::Human, None, "info").map_err(Failure::Usage);
    exit::end(logging.and_then(|()| block_on(commands::run::run(&given, Some(observer)))))
}

fn start(cli: Cli) -> Result<(), Failure> {
    // Verbs that answer on standard output are quiet beside it.
    let default_level = match &cli.command {
        Command::Run(_) | Command::Init(_) => "info",
        Command::Check(_)
        | Command::Slots { .. }
        | Command::Status(_)
        | Command::Tail(_)
        | Command::Demo(_)
        | Command::Metrics { .. }
        | Command::Config { .. } => "warn",
    };
    logging::start(cli.global.log_format, cli.global.log_level.as_deref(), default_level)
        .map_err(Failure::Usage)?;
    block_on(perform(cli))
}

fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| ConnectError::transient("the async runtime does not start").with_source(error))?;
    let outcome = runtime.block_on(async {
        let outcome = work.await;
        signals::settled().await;
        outcome
    });
    // A blocking thread may still wait for a broker or a disk; nothing that counts is left to it.
    runtime.shutdown_background();
    outcome
}

async fn perform(cli: Cli) -> Result<(), Failure> {
    let Cli { global, command } = cli;
    match command {
        Command::Run(file) => commands::run::run(&file.with(&global), None).await,
        Command::Check(args) => commands::check::check(args, &global).await,
        Command::Init(args) => commands::init::init(args, &global).await,
        Command::Status(args) => commands::status::status(args, &global).await,
        Command::Slots { what } => commands::slots::slots(what, &global).await,
        Command::Tail(args) => commands::tail::tail(args, &global).await,
        Command::Demo(args) => commands::demo::demo(args, &global).await,
        Command::Metrics { what } => commands::metrics::metrics(&what),
        Command::Config { what } => commands::config::config(what, &global),
    }
}
