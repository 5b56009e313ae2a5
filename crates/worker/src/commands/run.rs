//! `crabka run`: streams until it is told to stop.

use std::sync::Arc;
use std::time::Duration;

use crabka_connect::{ConnectError, Observer};
use crabka_connect_postgres::SlotWatch;

use crate::config::{Config, Given};
use crate::exit::Failure;
use crate::http;
use crate::pipeline::{self, Pipeline};
use crate::signals::Signals;
use crate::watch::progress::ProgressLog;

/// Runs until a signal (a graceful end) or an error that is not retried. The command has no observer.
pub(crate) async fn run(given: &Given, observer: Option<Arc<dyn Observer>>) -> Result<(), Failure> {
    let config = Config::load(given)?;
    let mut signals = Signals::catch()?;
    let Pipeline { runtime, source, watch } = pipeline::pipeline(&config, observer)?;
    let handle = runtime.handle();
    let _endpoints = match &config.http.listen {
        Some(address) => Some(http::serve(address, watch.clone()).await?),
        None => None,
    };
    let slot_interval = Duration::from_millis(config.source.slot_interval_ms);
    let _slot_watch = SlotWatch::spawn(&source, Arc::clone(&watch.source), slot_interval);
    let _progress = ProgressLog::start(watch, Duration::from_millis(config.runtime.progress_interval_ms));
    tracing::info!(connector = %config.name, version = env!("CARGO_PKG_VERSION"), "starting");
    let mut run = tokio::spawn(runtime.run());
    let ended = tokio::select! {
        ended = &mut run => ended,
        signal = signals.first() => {
            tracing::info!(signal, "ending: what was read is finished first");
            handle.stop();
            signals.until(&mut run, || handle.abort()).await
        }
    };
    let status = handle.status();
    tracing::info!(
        phase = %status.phase,
        records_delivered = status.records_delivered,
        records_acknowledged = status.records_acknowledged,
        "ended"
    );
    let outcome =
        ended.map_err(|error| ConnectError::bug("the run did not end in order").with_source(error))?;
    outcome.map_err(|error| Failure::Run(error, status.checkpointed))
}
