//! What a run tells about itself: readiness, `/status`, metrics, and the progress lines of the log.
//!
//! Everything is read from figures that the parts of the run write without waiting for anybody, so looking never
//! touches what does the work. One [`View`] is one look; all answers are made from it.

pub(crate) mod metrics;
pub(crate) mod progress;
mod reason;
mod status;

use std::sync::Arc;
use std::time::Duration;

use crabka_connect::{Clock, RunFigures, RuntimeHandle, Status, SystemClock};
use crabka_connect_kafka::KafkaSinkCounters;
use crabka_connect_postgres::figures::PAGE_HEADER_BYTES;
use crabka_connect_postgres::{SourceFigures, SourceSnapshot};
use crabka_pgrepl::Lsn;
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use self::reason::{Code, Reason};

/// Where a run is watched from. Clones watch the same run.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) run: Arc<RunFigures>,
    pub(crate) source: Arc<SourceFigures>,
    pub(crate) sink: SinkFigures,
    /// How long something may stand still before it counts as stuck.
    pub(crate) stall_limit: Duration,
}

/// What is known of the sink.
#[derive(Clone)]
pub(crate) struct SinkFigures {
    pub(crate) kind: &'static str,
    /// Of the Kafka sink.
    pub(crate) kafka: Option<Arc<KafkaSinkCounters>>,
}

/// A run at one moment.
pub(crate) struct View {
    pub(crate) at: Instant,
    pub(crate) at_ms: i64,
    pub(crate) status: Status,
    pub(crate) run: Arc<RunFigures>,
    pub(crate) source: SourceSnapshot,
    pub(crate) sink: SinkFigures,
    pub(crate) stall_limit: Duration,
}

impl Watch {
    pub(crate) fn new(
        handle: &RuntimeHandle,
        source: Arc<SourceFigures>,
        sink: SinkFigures,
        stall_limit: Duration,
    ) -> Self {
        Self { status: handle.watch(), run: handle.figures(), source, sink, stall_limit }
    }

    pub(crate) fn view(&self) -> View {
        // Against the stream, as everything moves meanwhile: what comes later in it is read earlier, and so never ahead.
        let acknowledged = self.source.acknowledged_lsn();
        let status = self.status.borrow().clone();
        let source = SourceSnapshot { acknowledged, ..self.source.snapshot() };
        View {
            at: Instant::now(),
            at_ms: SystemClock.now_ms(),
            status,
            run: Arc::clone(&self.run),
            source,
            sink: self.sink.clone(),
            stall_limit: self.stall_limit,
        }
    }
}

impl View {
    /// What it does, or why nothing moves.
    pub(crate) fn reason(&self) -> Reason {
        reason::of(self)
    }

    /// Bytes of WAL that the server has and we have not received.
    pub(crate) fn unread_bytes(&self) -> Option<u64> {
        let behind = self.source.server_wal_end?.as_u64().saturating_sub(self.source.received?.as_u64());
        Some(if behind <= PAGE_HEADER_BYTES { 0 } else { behind })
    }

    /// Bytes of WAL between what was acknowledged and the server's end.
    pub(crate) fn bytes_behind(&self) -> Option<u64> {
        Some(self.source.server_wal_end?.as_u64().saturating_sub(self.source.acknowledged?.as_u64()))
    }

    /// Age of the oldest change that is not acknowledged, milliseconds; 0 when there is none and the stream is at the
    /// server's end.
    pub(crate) fn lag_ms(&self) -> Option<i64> {
        match self.oldest_unacknowledged_at_ms() {
            Some(at_ms) => Some(self.at_ms.saturating_sub(at_ms).max(0)),
            None => (self.reason().code == Code::Idle).then_some(0),
        }
    }

    pub(crate) fn oldest_unacknowledged_at_ms(&self) -> Option<i64> {
        self.source.oldest_unacknowledged_us.map(|us| us.div_euclid(1_000))
    }

    /// Behind the last batch that is durable in the sink.
    pub(crate) fn delivered(&self) -> Option<Lsn> {
        position(self.status.delivered.as_deref()?)
    }

    /// Behind the last batch whose position is saved.
    pub(crate) fn checkpointed(&self) -> Option<Lsn> {
        position(self.status.checkpointed.as_deref()?)
    }

    /// How long the batch in flight is on its way.
    pub(crate) fn in_flight_for(&self) -> Option<Duration> {
        Some(self.at.saturating_duration_since(self.status.in_flight?.since))
    }
}

fn position(offset: &crabka_connect::SourceOffset) -> Option<Lsn> {
    crabka_connect_postgres::StoredPosition::from_offset(offset).ok().map(|stored| stored.position.resume_lsn)
}

/// Whole milliseconds, for JSON and the log.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
