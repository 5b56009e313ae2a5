//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::check::CheckArgs;
use crate::commands::demo::DemoArgs;
use crate::commands::init::InitArgs;
use crate::commands::slots::SlotsCommand;
use crate::commands::status::StatusArgs;
use crate::commands::tail::TailArgs;
use crate::config::Given;
use crate::logging::LogFormat;

/// Streams PostgreSQL changes into Kafka.
#[derive(Debug, Parser)]
#[command(name = "crabka", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every verb.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Set an option over the configuration file; may be given more than once.
    #[arg(long = "set", value_name = "SECTION.OPTION=VALUE", global = true, value_parser = assignment)]
    pub(crate) set: Vec<(String, String)>,
    /// How log lines on stderr are written.
    #[arg(long, value_enum, default_value = "human", env = "CRABKA_LOG_FORMAT", global = true)]
    pub(crate) log_format: LogFormat,
    /// Log level (error, warn, info, debug, trace) or filter; without it RUST_LOG counts, then
    /// info for run and init, warn for the other verbs.
    #[arg(long, global = true)]
    pub(crate) log_level: Option<String>,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Stream until SIGTERM or SIGINT.
    Run(ConfigFile),
    /// Find everything that would keep a run from working, each with what fixes it.
    Check(CheckArgs),
    /// Make publication and slot; print what is done.
    Init(InitArgs),
    /// Show what the connector does, why nothing moves, and what it costs the server.
    Status(StatusArgs),
    /// Show or drop replication slots.
    Slots {
        #[command(subcommand)]
        what: SlotsCommand,
    },
    /// Print decoded changes of a server, one JSON object per line, without keeping anything.
    Tail(TailArgs),
    /// Stream a throw-away PostgreSQL into Kafka and show what arrives.
    Demo(DemoArgs),
    /// Print every metric that a run exposes.
    Metrics {
        #[command(subcommand)]
        what: MetricsCommand,
    },
    /// Print every option, or the configuration in effect.
    Config {
        #[command(subcommand)]
        what: ConfigCommand,
    },
}

/// `crabka config ...`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Every option with type, unit and default, in Markdown.
    Reference,
    /// The configuration in effect, secrets redacted, each value with where it comes from.
    Show(ConfigFile),
}

/// `crabka metrics ...`
#[derive(Debug, Subcommand)]
pub(crate) enum MetricsCommand {
    /// Every metric with its kind and labels, in Markdown.
    Reference,
}

/// The configuration file.
#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// Configuration file (TOML).
    #[arg(short = 'c', long = "config", value_name = "FILE", env = "CRABKA_CONFIG")]
    pub(crate) file: PathBuf,
}

impl ConfigFile {
    /// The file with the flags that set over it.
    pub(crate) fn with(self, global: &Global) -> Given {
        Given { file: Some(self.file), set: global.set.clone() }
    }
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && !name.trim().ends_with('.') => {
            Ok((name.trim().to_owned(), value.to_owned()))
        }
        // The text may hold a secret, so clap alone repeats it, and only what was typed.
        _ => Err("must be SECTION.OPTION=VALUE".to_owned()),
    }
}
