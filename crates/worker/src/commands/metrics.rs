//! `crabka metrics`: what `/metrics` exposes.

use crate::cli::MetricsCommand;
use crate::exit::Failure;
use crate::output;
use crate::watch::metrics;

/// Prints the reference.
pub(crate) fn metrics(what: &MetricsCommand) -> Result<(), Failure> {
    match what {
        MetricsCommand::Reference => output::print(&metrics::reference()),
    }
}
