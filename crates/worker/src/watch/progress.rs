//! A line in the log now and then, so that a run that works for hours does not look stuck.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{Watch, ms};

/// Writes the lines until it is dropped.
pub(crate) struct ProgressLog {
    task: JoinHandle<()>,
}

impl Drop for ProgressLog {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ProgressLog {
    /// One line every `pause`.
    pub(crate) fn start(watch: Watch, pause: Duration) -> Self {
        Self { task: tokio::spawn(write_lines(watch, pause)) }
    }
}

async fn write_lines(watch: Watch, pause: Duration) {
    let mut ticks = interval_at(Instant::now() + pause, pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = (0_u64, Instant::now());
    loop {
        ticks.tick().await;
        let view = watch.view();
        let now = Instant::now();
        let (records, seconds) =
            (view.status.records_delivered, now.duration_since(before.1).as_secs_f64().max(0.001));
        #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = (records.saturating_sub(before.0) as f64 / seconds).round();
        before = (records, now);
        let reason = view.reason();
        let slot = view.source.slot.as_ref();
        tracing::info!(
            ready = reason.ready,
            reason = reason.code.as_str(),
            records_delivered = records,
            records_per_second = rate,
            bytes_behind = view.bytes_behind(),
            lag_ms = view.lag_ms(),
            wal_retained_bytes = slot.and_then(|look| look.wal_retained_bytes),
            received = view.source.received.map(tracing::field::display),
            acknowledged = view.source.acknowledged.map(tracing::field::display),
            last_read_ms = view.source.last_read.map(ms),
            "progress: {}",
            reason.text
        );
    }
}
