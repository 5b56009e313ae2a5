//! What a run tells about itself while it runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio::sync::watch;
use tokio::time::Instant;

use super::figures::{CommitTimes, RunFigures};
use crate::{Clock, ConnectError, Part, SourceOffset};

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Built, or opening source and sink.
    Starting,
    /// Polling and committing.
    Running,
    /// Everything polled is delivered, checkpointed and acknowledged; the source is not polled.
    Paused,
    /// Waits after a transient error before it reopens source and sink.
    BackingOff,
    /// A stop was asked for; the running batch is being finished.
    Draining,
    /// Ended by a graceful stop.
    Stopped,
    /// Ended by an abort, or by dropping the run: what was in flight was left.
    Aborted,
    /// Ended by an error.
    Failed,
}

impl Phase {
    /// The name used in logs, metrics and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::BackingOff => "backing_off",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
        }
    }

    /// Whether the run has ended.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Stopped | Self::Aborted | Self::Failed)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The batch on its way to the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct InFlight {
    /// How many records it has.
    pub records: u64,
    /// Their encoded size: keys, values and headers.
    pub bytes: u64,
    /// When the sink got it, milliseconds since 1970-01-01 UTC.
    pub since_at_ms: i64,
    /// The same by a clock that nobody sets.
    #[serde(skip)]
    pub since: Instant,
    /// Durable in the sink; what is missing is its saved position.
    pub durable: bool,
}

/// The error seen last, as text: what a status page shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastError {
    /// Name of the [`ErrorClass`](crate::ErrorClass).
    pub class: &'static str,
    /// Name of the [`Part`](crate::Part) that it comes from, where the runtime knows.
    pub part: Option<&'static str>,
    /// What happened, with its causes.
    pub message: String,
    /// The SQL, setting or command that fixes it, if there is one.
    pub fix: Option<String>,
    /// SQLSTATE, if PostgreSQL reported it.
    pub sqlstate: Option<String>,
    /// Milliseconds since 1970-01-01 UTC.
    pub at_ms: i64,
}

/// A snapshot of a run.
///
/// `records_acknowledged ≤ records_checkpointed ≤ records_delivered ≤ records_received`. The counters count from the
/// start of the run, and a record that is read again after an error counts again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// Connector name.
    pub connector: String,
    /// What it is doing.
    pub phase: Phase,
    /// When the run was started, milliseconds since 1970-01-01 UTC; 0 before that.
    pub started_at_ms: i64,
    /// Records polled from the source.
    pub records_received: u64,
    /// Records durable in the sink.
    pub records_delivered: u64,
    /// Records behind which an offset is saved.
    pub records_checkpointed: u64,
    /// Records behind which the source was told.
    pub records_acknowledged: u64,
    /// Batches durable and checkpointed.
    pub batches: u64,
    /// Encoded bytes of those batches: keys, values and headers.
    pub bytes: u64,
    /// The batch on its way to the sink.
    pub in_flight: Option<InFlight>,
    /// The offset behind the last batch that is durable in the sink.
    #[serde(serialize_with = "offset")]
    pub delivered: Option<Arc<SourceOffset>>,
    /// The offset saved last, or restored at the start.
    #[serde(serialize_with = "offset")]
    pub checkpointed: Option<Arc<SourceOffset>>,
    /// The offset acknowledged last.
    #[serde(serialize_with = "offset")]
    pub acknowledged: Option<Arc<SourceOffset>>,
    /// When an offset was saved last, milliseconds since 1970-01-01 UTC.
    pub last_progress_at_ms: Option<i64>,
    /// How often source and sink were reopened after a transient error.
    pub retries: u64,
    /// Failed attempts in a row since the last saved offset.
    pub attempts: u32,
    /// A batch has failed, and since then neither was one saved nor the offset found behind it: that sink and checkpoint
    /// could be opened again does not show that they work.
    pub batch_failed: bool,
    /// When the next attempt is due, milliseconds since 1970-01-01 UTC; only while backing off.
    pub next_attempt_at_ms: Option<i64>,
    /// The error seen last; stays after recovery, so that a short trouble can be seen.
    pub last_error: Option<LastError>,
}

/// The run's own end of the status.
#[derive(Clone)]
pub(super) struct StatusWriter {
    sender: Arc<watch::Sender<Status>>,
    clock: Arc<dyn Clock>,
    figures: Arc<RunFigures>,
}

impl StatusWriter {
    pub(super) fn new(connector: &str, clock: Arc<dyn Clock>) -> Self {
        let status = Status {
            connector: connector.to_owned(),
            phase: Phase::Starting,
            started_at_ms: 0,
            records_received: 0,
            records_delivered: 0,
            records_checkpointed: 0,
            records_acknowledged: 0,
            batches: 0,
            bytes: 0,
            in_flight: None,
            delivered: None,
            checkpointed: None,
            acknowledged: None,
            last_progress_at_ms: None,
            retries: 0,
            attempts: 0,
            batch_failed: false,
            next_attempt_at_ms: None,
            last_error: None,
        };
        Self { sender: Arc::new(watch::Sender::new(status)), clock, figures: Arc::default() }
    }

    pub(super) fn figures(&self) -> Arc<RunFigures> {
        Arc::clone(&self.figures)
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Status> {
        self.sender.subscribe()
    }

    pub(super) fn started(&self) {
        let now = self.clock.now_ms();
        self.sender.send_modify(|status| status.started_at_ms = now);
    }

    pub(super) fn phase(&self, phase: Phase) {
        self.sender.send_if_modified(|status| {
            let changed = status.phase != phase;
            status.phase = phase;
            if phase != Phase::BackingOff {
                status.next_attempt_at_ms = None;
            }
            changed
        });
    }

    pub(super) fn received(&self, records: usize) {
        self.sender.send_modify(|status| status.records_received += count(records));
    }

    /// A batch is on its way to the sink.
    pub(super) fn sent(&self, records: usize, bytes: usize) {
        let since_at_ms = self.clock.now_ms();
        self.figures.batch_sent();
        self.sender.send_modify(|status| {
            status.in_flight = Some(InFlight {
                records: count(records),
                bytes: count(bytes),
                since_at_ms,
                since: Instant::now(),
                durable: false,
            });
        });
    }

    /// The attempt has failed with this batch; source and sink are closed next, which may take its time.
    pub(super) fn batch_failed(&self, error: &ConnectError) {
        let now = self.clock.now_ms();
        self.figures.batch_failed();
        self.sender.send_modify(|status| {
            status.in_flight = None;
            status.attempts += 1;
            status.batch_failed = true;
            status.last_error = Some(LastError::new(error, now));
        });
    }

    pub(super) fn delivered(&self, records: usize, offset: &Arc<SourceOffset>, commits: &CommitTimes) {
        self.figures.batch_durable(commits, self.clock.now_ms());
        self.sender.send_modify(|status| {
            status.records_delivered += count(records);
            status.delivered = Some(Arc::clone(offset));
            if let Some(batch) = &mut status.in_flight {
                batch.durable = true;
            }
        });
    }

    pub(super) fn restored(&self, offset: &Arc<SourceOffset>) {
        self.sender.send_modify(|status| {
            // Saving it failed, but the store has it: its records do not come again.
            if status.checkpointed.as_ref() != Some(offset) {
                status.batch_failed = false;
            }
            status.delivered = Some(Arc::clone(offset));
            status.checkpointed = Some(Arc::clone(offset));
        });
    }

    pub(super) fn checkpointed(&self, records: usize, bytes: usize, offset: &Arc<SourceOffset>) {
        let now = self.clock.now_ms();
        self.sender.send_modify(|status| {
            status.records_checkpointed += count(records);
            status.batches += 1;
            status.bytes += count(bytes);
            status.checkpointed = Some(Arc::clone(offset));
            status.last_progress_at_ms = Some(now);
            status.attempts = 0;
            status.batch_failed = false;
            status.in_flight = None;
        });
    }

    pub(super) fn acknowledged(&self, records: usize, offset: &Arc<SourceOffset>) {
        self.sender.send_modify(|status| {
            status.records_acknowledged += count(records);
            status.acknowledged = Some(Arc::clone(offset));
        });
    }

    pub(super) fn backing_off(&self, error: &ConnectError, attempts: u32, delay: Duration) {
        let now = self.clock.now_ms();
        self.figures.error(error.class());
        let delay_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        self.sender.send_modify(|status| {
            status.phase = Phase::BackingOff;
            status.in_flight = None;
            status.attempts = attempts;
            status.retries += 1;
            status.next_attempt_at_ms = Some(now.saturating_add(delay_ms));
            status.last_error = Some(LastError::new(error, now));
        });
    }

    pub(super) fn ended(&self, phase: Phase, error: Option<&ConnectError>) {
        let now = self.clock.now_ms();
        if let Some(error) = error {
            self.figures.error(error.class());
        }
        self.sender.send_modify(|status| {
            status.phase = phase;
            status.in_flight = None;
            status.next_attempt_at_ms = None;
            if let Some(error) = error {
                status.last_error = Some(LastError::new(error, now));
            }
        });
    }
}

impl LastError {
    fn new(error: &ConnectError, at_ms: i64) -> Self {
        Self {
            class: error.class().as_str(),
            part: error.part().map(Part::as_str),
            message: error.with_causes(),
            fix: error.fix().map(str::to_owned),
            sqlstate: error.sqlstate().map(str::to_owned),
            at_ms,
        }
    }
}

fn offset<S: Serializer>(offset: &Option<Arc<SourceOffset>>, serializer: S) -> Result<S::Ok, S::Error> {
    offset.as_deref().serialize(serializer)
}

fn count(records: usize) -> u64 {
    u64::try_from(records).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemClock;

    fn offset(n: u64) -> Arc<SourceOffset> {
        Arc::new(SourceOffset::new([], [("n", crate::Scalar::from(n))]))
    }

    fn writer() -> (StatusWriter, watch::Receiver<Status>) {
        let writer = StatusWriter::new("orders", Arc::new(SystemClock));
        let status = writer.subscribe();
        (writer, status)
    }

    #[tokio::test]
    async fn only_a_failed_batch_stays_unproven_until_one_is_saved() {
        let (writer, status) = writer();
        let away = ConnectError::transient("away");
        writer.backing_off(&away, 1, Duration::ZERO);
        assert_eq!((status.borrow().attempts, status.borrow().batch_failed), (1, false), "opening failed");
        writer.sent(5, 50);
        writer.batch_failed(&away);
        writer.backing_off(&away, 1, Duration::ZERO);
        assert!(status.borrow().batch_failed);
        writer.checkpointed(5, 50, &offset(5));
        assert_eq!((status.borrow().attempts, status.borrow().batch_failed), (0, false));
        // The position of the next one was stored although saving it failed: nothing comes again.
        writer.batch_failed(&away);
        writer.restored(&offset(5));
        assert!(status.borrow().batch_failed, "not stored: its records come again");
        writer.restored(&offset(9));
        assert!(!status.borrow().batch_failed);
    }

    #[tokio::test]
    async fn each_batch_says_for_itself_whether_it_is_durable() {
        let (writer, status) = writer();
        let durable = || status.borrow().in_flight.map(|batch| batch.durable);
        writer.sent(5, 50);
        assert_eq!(durable(), Some(false));
        writer.delivered(5, &offset(5), &CommitTimes::default());
        assert_eq!(durable(), Some(true));
        writer.batch_failed(&ConnectError::transient("the store is away"));
        assert_eq!(durable(), None);
        // The same records again: what was delivered before says nothing about them.
        writer.sent(5, 50);
        assert_eq!(durable(), Some(false));
    }
}
