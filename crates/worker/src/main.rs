//! The `crabka` command: streams PostgreSQL changes into Kafka.
//!
//! The only crate that names concrete sources, sinks and checkpoint stores. A verb is a module in [`commands`], an
//! option a declaration in [`config`], a sink or store a line in the registry.
#![allow(clippy::disallowed_methods)]

mod cli;
mod commands;
mod config;
mod exit;
mod logging;
mod output;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use exit::Failure;

fn main() -> ExitCode {
    exit::install_panic_hook();
    let cli = Cli::parse();
    exit::set_format(cli.global.log_format);
    exit::end(run(cli))
}

fn run(cli: Cli) -> Result<(), Failure> {
    logging::start(cli.global.log_format, cli.global.log_level.as_deref()).map_err(Failure::Usage)?;
    match cli.command {
        Command::Config { what } => commands::config::config(what, &cli.global),
    }
}
