//! Logs: `tracing` to stderr, for people or as JSON lines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// One readable line per event.
    Human,
    /// One JSON object per line.
    Json,
}

/// Starts logging. `level` is a level or a filter as of `RUST_LOG`, which counts when it is `None`;
/// `default` counts when neither is given.
///
/// # Errors
///
/// What is wrong with the filter.
pub(crate) fn start(format: LogFormat, level: Option<&str>, default: &str) -> Result<(), String> {
    let filter = match (level, std::env::var("RUST_LOG")) {
        (Some(level), _) => level.to_owned(),
        (None, Ok(filter)) if !filter.is_empty() => filter,
        _ => default.to_owned(),
    };
    let refused = || format!("not a log level or filter: {filter}");
    // A mistyped level alone would be a filter that shows nothing but a target of that name.
    if level.is_some_and(|level| !level.contains(['=', ',']) && level.parse::<LevelFilter>().is_err()) {
        return Err(refused());
    }
    let filter = EnvFilter::try_new(&filter).map_err(|_| refused())?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Human => {
            builder.with_ansi(std::io::stderr().is_terminal()).with_target(false).init();
        }
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
