//! The batch that fills, the one in flight, and what may be acknowledged.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::committer::{Batch, Committer, Outcome};
use super::limits::Limits;
use super::observer::{Observer, Point, reached};
use super::status::StatusWriter;
use crate::{ConnectError, ConnectRecord, SourceOffset};

/// Most records asked for at once: bounds by how much a poll can exceed the limits.
const POLL_RECORDS_MAX: usize = 1024;
/// Asked for while the size of a record is not known yet.
const POLL_RECORDS_FIRST: usize = 64;

/// A saved offset that the source does not know yet, and how many records it stands for.
pub(super) struct Acknowledgement {
    pub(super) offset: Arc<SourceOffset>,
    pub(super) records: usize,
}

/// What is known about the stored position.
#[derive(Clone)]
pub(super) enum Saved {
    /// It has to be read: nothing was read yet, or saving failed and either may be stored.
    Unknown,
    /// Nothing is stored, or this.
    Known(Option<Arc<SourceOffset>>),
}

/// Batches of one attempt.
pub(super) struct Pipeline {
    limits: Limits,
    observer: Option<Arc<dyn Observer>>,
    status: StatusWriter,
    committer: Committer,
    /// Polled since the status was told: telling it each time would wake its watchers with every poll.
    received: usize,
    /// The filling batch and the position behind it, taken right after its last record was polled.
    records: Vec<ConnectRecord<Bytes, Bytes>>,
    bytes: usize,
    offset: Option<Arc<SourceOffset>>,
    /// When the filling batch got its first record.
    since: Instant,
    /// The last poll returned less than it was asked for.
    pub(super) caught_up: bool,
    in_flight: bool,
    /// An empty vector with capacity, from the batch before.
    spare: Vec<ConnectRecord<Bytes, Bytes>>,
    acknowledgement: Option<Acknowledgement>,
    failure: Option<ConnectError>,
    pub(super) saved: Saved,
    /// Whether this attempt saved an offset.
    pub(super) progress: bool,
    /// Whether a batch failed in this attempt.
    pub(super) gave_up: bool,
    record_bytes_average: usize,
}

impl Pipeline {
    pub(super) fn new(
        limits: Limits,
        observer: Option<Arc<dyn Observer>>,
        status: StatusWriter,
        committer: Committer,
        saved: Saved,
    ) -> Self {
        Self {
            limits,
            observer,
            status,
            committer,
            received: 0,
            records: Vec::new(),
            bytes: 0,
            offset: None,
            since: Instant::now(),
            caught_up: false,
            in_flight: false,
            spare: Vec::new(),
            acknowledgement: None,
            failure: None,
            saved,
            progress: false,
            gave_up: false,
            record_bytes_average: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn in_flight(&self) -> bool {
        self.in_flight
    }

    pub(super) fn is_full(&self) -> bool {
        self.records.len() >= self.limits.max_batch_records || self.bytes >= self.limits.max_batch_bytes
    }

    /// How many records to ask for so that the filling batch hardly exceeds its limits.
    pub(super) fn poll_limit(&self) -> usize {
        let room = self.limits.max_batch_records.saturating_sub(self.records.len());
        let by_bytes = match self.record_bytes_average {
            0 => POLL_RECORDS_FIRST,
            average => self.limits.max_batch_bytes.saturating_sub(self.bytes) / average,
        };
        room.min(by_bytes).clamp(1, POLL_RECORDS_MAX)
    }

    /// Where encoded records go; [`polled`](Self::polled) follows with the position behind them.
    pub(super) fn records_mut(&mut self) -> &mut Vec<ConnectRecord<Bytes, Bytes>> {
        if self.records.is_empty() {
            self.since = Instant::now();
        }
        &mut self.records
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The records of one poll were appended: `count` of them, `bytes` long, and the source stands at `offset`.
    pub(super) fn polled(&mut self, count: usize, bytes: usize, offset: Arc<SourceOffset>) {
        self.bytes += bytes;
        self.offset = Some(offset);
        if let Some(average) = bytes.checked_div(count) {
            let average = average.max(1);
            self.record_bytes_average = match self.record_bytes_average {
                0 => average,
                before => (before * 3 + average).div_ceil(4),
            };
        }
    }

    /// Records were polled, whatever becomes of them.
    pub(super) fn received(&mut self, count: usize) {
        self.received += count;
    }

    /// Tells the status what was polled since it was told last.
    pub(super) fn report_received(&mut self) {
        match std::mem::take(&mut self.received) {
            0 => {}
            count => self.status.received(count),
        }
    }

    /// Takes back what was appended behind `len` when not all of a poll's records could be encoded.
    pub(super) fn truncate(&mut self, len: usize) {
        self.records.truncate(len);
    }

    /// When the filling batch is due by age, if the committer is free to take it.
    pub(super) fn age_deadline(&self) -> Option<Instant> {
        let free = !self.in_flight && self.failure.is_none();
        (free && !self.records.is_empty()).then(|| self.since + self.limits.max_batch_age)
    }

    /// Cuts the filling batch if it is due: full, too old, or the source has no more at once. Never while a batch
    /// is in flight, so batches are small on light load and large under load.
    pub(super) async fn cut_if_due(&mut self) {
        let Some(deadline) = self.age_deadline() else { return };
        if self.caught_up || self.is_full() || Instant::now() >= deadline {
            self.cut().await;
        }
    }

    /// Cuts the filling batch and hands it over. Only when none is in flight.
    pub(super) async fn cut(&mut self) {
        let Some(offset) = self.offset.take() else { return };
        self.report_received();
        reached(self.observer.as_ref(), Point::Cut).await;
        let records = std::mem::replace(&mut self.records, std::mem::take(&mut self.spare));
        let batch = Batch { count: records.len(), records, bytes: std::mem::take(&mut self.bytes), offset };
        self.in_flight = true;
        self.status.sent(batch.count, batch.bytes);
        self.committer.send(batch);
    }

    /// Waits for the batch in flight; for ever when there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn landed(&mut self) {
        if !self.in_flight {
            return std::future::pending().await;
        }
        let outcome = self.committer.outcome().await;
        self.settle(outcome);
    }

    /// Takes note of the batch in flight if its outcome is there.
    pub(super) fn settle_ready(&mut self) {
        if self.in_flight
            && let Some(outcome) = self.committer.ready_outcome()
        {
            self.settle(outcome);
        }
    }

    fn settle(&mut self, outcome: Outcome) {
        self.in_flight = false;
        match outcome {
            Ok(batch) => {
                self.spare = batch.records;
                self.saved = Saved::Known(Some(Arc::clone(&batch.offset)));
                self.progress = true;
                let earlier = self.acknowledgement.take().map_or(0, |earlier| earlier.records);
                let records = earlier + batch.count;
                self.acknowledgement = Some(Acknowledgement { offset: batch.offset, records });
            }
            Err(failure) => {
                self.status.batch_failed(&failure.error);
                if failure.position_unknown {
                    self.saved = Saved::Unknown;
                }
                self.gave_up = true;
                self.failure = Some(failure.error);
            }
        }
    }

    /// The newest saved offset, if the source does not know it yet.
    pub(super) fn take_acknowledgement(&mut self) -> Option<Acknowledgement> {
        self.acknowledgement.take()
    }

    /// Whether [`take_acknowledgement`](Self::take_acknowledgement) has one.
    pub(super) fn owes_acknowledgement(&self) -> bool {
        self.acknowledgement.is_some()
    }

    /// Whether a batch failed; nothing can be sent afterwards.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The error of the failed batch, once.
    pub(super) fn check(&mut self) -> Result<(), ConnectError> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Lets everything that was polled become durable and checkpointed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn finish(&mut self) -> Result<(), ConnectError> {
        loop {
            self.check()?;
            if self.in_flight {
                self.landed().await;
            } else if self.records.is_empty() {
                return Ok(());
            } else {
                self.cut().await;
            }
        }
    }

    /// Closes the sink. A batch still in flight is given up after `limit`.
    pub(super) async fn close(self, limit: std::time::Duration) -> (Saved, Result<(), ConnectError>) {
        // With a batch in flight its offset may become saved while we look away.
        let saved = if self.in_flight { Saved::Unknown } else { self.saved };
        (saved, self.committer.close(limit).await)
    }
}
