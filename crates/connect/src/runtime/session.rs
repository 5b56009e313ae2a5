//! One attempt: an open source, an open sink, and the loop between them.
//!
//! ```text
//!   source --poll--> typed records --converter--> filling batch --cut--> committer: sink, then store
//!      ^                                                                     |
//!      +------------------------- acknowledge <------ outcome ---------------+
//! ```
//!
//! The loop owns the source, the committer task owns the sink. A poll's future is not dropped once the source has
//! delivered something, so sources need no cancel safety. Only an abort drops it, together with the source; and a stop
//! drops a *first* poll that has not come back after [`FIRST_POLL_GRACE`]: nothing can be lost by it, and the wait of a
//! source that sets itself up in its first poll may be long.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::handle::Command;
use super::limits::Limits;
use super::observer::{Observer, Point, reached};
use super::pipeline::{Pipeline, Saved};
use super::status::{Phase, StatusWriter};
use crate::{ConnectError, ConnectRecord, Converter, ErrorClass, Part, Source};

/// Room that the encoding buffer gets at a time. Records share its allocation, so it bounds what one slow record
/// keeps alive.
const BUFFER_BYTES: usize = 64 * 1024;

/// How long a stop waits for a source that has not delivered anything yet. Polls are short, so one that takes longer
/// waits for something that may never come.
const FIRST_POLL_GRACE: Duration = Duration::from_secs(2);

/// What outlives an attempt.
pub(super) struct Shared<K, V> {
    pub(super) connector: Arc<str>,
    pub(super) converter: Box<dyn Converter<K, V>>,
    pub(super) limits: Limits,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) status: StatusWriter,
    pub(super) commands: watch::Receiver<Command>,
    /// Polled and not encoded yet; empty between polls, its capacity kept.
    pub(super) incoming: Vec<ConnectRecord<K, V>>,
    pub(super) buffer: BytesMut,
}

impl<K, V> Shared<K, V> {
    pub(super) fn command(&self) -> Command {
        *self.commands.borrow()
    }
}

/// Returns once a stop was asked for. Never returns otherwise: the handle lives as long as the run.
pub(super) async fn stop_asked(mut commands: watch::Receiver<Command>) {
    if commands.wait_for(|command| *command >= Command::Stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Why the loop ended, and whether what was polled before may still be delivered.
struct Failure {
    error: ConnectError,
    deliver_polled: bool,
}

impl Failure {
    /// The source or the converter failed: what was polled before is good.
    fn after_polled(error: ConnectError) -> Self {
        // A broken invariant makes positions doubtful, and a fenced instance must not write.
        let deliver_polled = !matches!(error.class(), ErrorClass::Bug | ErrorClass::Fenced);
        Self { error, deliver_polled }
    }

    fn at_once(error: ConnectError) -> Self {
        Self { error, deliver_polled: false }
    }
}

/// How an attempt ended.
pub(super) struct Ended {
    pub(super) result: Result<(), ConnectError>,
    pub(super) saved: Saved,
    /// An offset was saved in this attempt.
    pub(super) progress: bool,
    /// Everything polled is delivered and checkpointed.
    pub(super) complete: bool,
}

/// One attempt.
pub(super) struct Session<'a, K, V> {
    shared: &'a mut Shared<K, V>,
    source: Box<dyn Source<K, V>>,
    pipeline: Pipeline,
    record_offsets: bool,
    idle: Duration,
    /// The source has delivered something in this attempt.
    has_delivered: bool,
}

impl<'a, K: Send + 'static, V: Send + 'static> Session<'a, K, V> {
    pub(super) fn new(
        shared: &'a mut Shared<K, V>,
        source: Box<dyn Source<K, V>>,
        pipeline: Pipeline,
        record_offsets: bool,
    ) -> Self {
        let idle = shared.limits.idle_min;
        Self { shared, source, pipeline, record_offsets, idle, has_delivered: false }
    }

    /// Runs until a graceful stop or the first error, and closes source and sink in both cases.
    pub(super) async fn run(mut self) -> Ended {
        self.shared.incoming.clear();
        let result = match self.drive().await {
            Ok(()) => Ok(()),
            Err(failure) => {
                if failure.deliver_polled
                    && !self.pipeline.has_failed()
                    && let Err(error) = self.drain(failure.error.is_transient()).await
                {
                    tracing::warn!(
                        connector = %self.shared.connector,
                        "records polled before the error were given up: {}", error.chain()
                    );
                }
                Err(failure.error)
            }
        };
        self.close(result).await
    }

    async fn drive(&mut self) -> Result<(), Failure> {
        loop {
            self.pipeline.settle_ready();
            self.acknowledge().await.map_err(Failure::after_polled)?;
            self.pipeline.check().map_err(Failure::at_once)?;
            match self.shared.command() {
                Command::Run => self.shared.status.phase(Phase::Running),
                Command::Pause => {
                    self.pause().await;
                    continue;
                }
                Command::Stop | Command::Abort => {
                    self.shared.status.phase(Phase::Draining);
                    return self.drain(false).await.map_err(Failure::at_once);
                }
            }
            self.pipeline.cut_if_due().await;
            if self.pipeline.is_full() {
                self.rest(None).await;
                continue;
            }
            let started = Instant::now();
            if self.poll().await? > 0 {
                self.idle = self.shared.limits.idle_min;
                self.pipeline.cut_if_due().await;
            } else {
                self.pipeline.cut_if_due().await;
                self.rest(Some(self.idle.saturating_sub(started.elapsed()))).await;
                self.idle = (self.idle * 2).max(Duration::from_micros(1)).min(self.shared.limits.idle_max);
            }
        }
    }

    /// Polls once and encodes what came. Meanwhile the filling batch is cut when it is due.
    async fn poll(&mut self) -> Result<usize, Failure> {
        let limit = if self.record_offsets { 1 } else { self.pipeline.poll_limit() };
        let Self { shared, source, pipeline, .. } = self;
        let polled = {
            let mut poll = source.poll_batch(limit, &mut shared.incoming);
            match futures_util::poll!(&mut poll) {
                Poll::Ready(polled) => Some(polled),
                Poll::Pending => {
                    let commands = (!self.has_delivered).then(|| shared.commands.clone());
                    wait_for_poll(&mut poll, pipeline, commands).await
                }
            }
        };
        let Some(polled) = polled else {
            // What it may have held is behind no position.
            self.shared.incoming.clear();
            return Ok(0);
        };
        let count = self.shared.incoming.len();
        self.pipeline.caught_up = count < limit;
        if count > 0 {
            self.has_delivered = true;
            self.pipeline.received(count);
            reached(self.shared.observer.as_ref(), Point::Read).await;
            self.encode()?;
        }
        match polled {
            Ok(_) => Ok(count),
            Err(error) => {
                self.pipeline.caught_up = true;
                Err(Failure::after_polled(error.in_part(Part::Source)))
            }
        }
    }

    /// Encodes the incoming records into the filling batch and takes the position behind them.
    fn encode(&mut self) -> Result<(), Failure> {
        let Self { shared, source, pipeline, .. } = self;
        let Some(offset) = source.checkpoint() else {
            shared.incoming.clear();
            let error = ConnectError::bug("the source returned records but has no position to checkpoint");
            return Err(Failure::at_once(error));
        };
        if shared.buffer.capacity() < BUFFER_BYTES / 4 {
            shared.buffer.reserve(BUFFER_BYTES);
        }
        let offset = Arc::new(offset);
        let record_offset = self.record_offsets.then(|| Arc::clone(&offset));
        let count = shared.incoming.len();
        let before = pipeline.len();
        let records = pipeline.records_mut();
        let mut bytes = 0;
        let mut failed = None;
        for record in shared.incoming.drain(..) {
            match shared.converter.encode(record, &mut shared.buffer) {
                Ok(mut record) => {
                    bytes += encoded_bytes(&record);
                    if record_offset.is_some() {
                        record.offset.clone_from(&record_offset);
                    }
                    records.push(record);
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if let Some(error) = failed {
            // Positions exist only behind whole polls, so this poll's other records are given up with it.
            pipeline.truncate(before);
            return Err(Failure::after_polled(error.in_part(Part::Converter)));
        }
        pipeline.polled(count, bytes, offset);
        Ok(())
    }

    async fn acknowledge(&mut self) -> Result<(), ConnectError> {
        let Some(acknowledgement) = self.pipeline.take_acknowledgement() else { return Ok(()) };
        reached(self.shared.observer.as_ref(), Point::BeforeAcknowledge).await;
        let told = self.source.acknowledge(&acknowledgement.offset).await;
        told.map_err(|error| error.in_part(Part::Source))?;
        self.shared.status.acknowledged(acknowledgement.records, &acknowledgement.offset);
        reached(self.shared.observer.as_ref(), Point::Acknowledged).await;
        Ok(())
    }

    /// Waits for the batch in flight, a command, or `limit`.
    async fn rest(&mut self, limit: Option<Duration>) {
        self.pipeline.report_received();
        // A short poll may have ended in the very moment in which a batch landed.
        if limit.is_some() && self.pipeline.owes_acknowledgement() {
            return;
        }
        let pipeline = &mut self.pipeline;
        tokio::select! {
            biased;
            () = pipeline.landed() => {}
            _ = self.shared.commands.changed() => {}
            () = sleep(limit.unwrap_or_default()), if limit.is_some() => {}
        }
    }

    /// One step towards, or in, the paused state.
    async fn pause(&mut self) {
        if !self.pipeline.in_flight() {
            self.pipeline.cut().await;
        }
        if !self.pipeline.in_flight() {
            self.shared.status.phase(Phase::Paused);
        }
        self.rest(None).await;
    }

    /// Makes everything polled durable, checkpointed and acknowledged, as long as the limit allows. With `patient`
    /// the limit counts only from a stop on.
    async fn drain(&mut self, patient: bool) -> Result<(), ConnectError> {
        let limit = self.shared.limits.drain_timeout;
        let commands = self.shared.commands.clone();
        let expired = async move {
            if patient {
                stop_asked(commands).await;
            }
            sleep(limit).await;
        };
        tokio::select! {
            biased;
            finished = self.pipeline.finish() => finished?,
            () = expired => {
                return Err(ConnectError::transient(format!("the running batch was not finished within {limit:?}")));
            }
        }
        self.acknowledge().await
    }

    async fn close(mut self, result: Result<(), ConnectError>) -> Ended {
        let limit = self.shared.limits.drain_timeout;
        self.pipeline.report_received();
        let progress = self.pipeline.progress;
        let complete = self.pipeline.is_empty() && !self.pipeline.in_flight() && !self.pipeline.gave_up;
        let (saved, closed) = self.pipeline.close(limit).await;
        let result = match (result, closed) {
            // Everything that mattered is stored; but a panic is never swallowed.
            (Ok(()), Err(error)) if !error.is_transient() => Err(error),
            (result, Err(error)) => {
                tracing::warn!(connector = %self.shared.connector, "{}", error.chain());
                result
            }
            (result, Ok(())) => result,
        };
        match tokio::time::timeout(limit, self.source.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(connector = %self.shared.connector, "closing the source failed: {}", error.chain());
            }
            Err(_elapsed) => {
                tracing::warn!(connector = %self.shared.connector, "the source did not close within {limit:?}");
            }
        }
        Ended { result, saved, progress, complete }
    }
}

/// Awaits a poll that is not ready at once. A failed batch does not end the wait: the poll's future must not be
/// dropped, and polls are short. With `commands`, for a source that has delivered nothing yet, a stop ends it after
/// [`FIRST_POLL_GRACE`].
async fn wait_for_poll<T>(
    poll: &mut (impl Future<Output = T> + Unpin),
    pipeline: &mut Pipeline,
    commands: Option<watch::Receiver<Command>>,
) -> Option<T> {
    let may_end = commands.is_some();
    let mut given_up = pin!(async move {
        if let Some(commands) = commands {
            stop_asked(commands).await;
            sleep(FIRST_POLL_GRACE).await;
        }
    });
    loop {
        let deadline = pipeline.age_deadline();
        tokio::select! {
            biased;
            polled = &mut *poll => return Some(polled),
            () = &mut given_up, if may_end => return None,
            () = pipeline.landed() => {}
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {}
        }
        pipeline.cut_if_due().await;
    }
}

fn encoded_bytes(record: &ConnectRecord<Bytes, Bytes>) -> usize {
    let header_bytes =
        |header: &crate::Header| header.name.len() + header.value.as_ref().map_or(0, Bytes::len);
    record.key.as_ref().map_or(0, Bytes::len)
        + record.value.as_ref().map_or(0, Bytes::len)
        + record.headers.iter().map(header_bytes).sum::<usize>()
}
