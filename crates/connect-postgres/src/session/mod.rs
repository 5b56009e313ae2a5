//! The session task: owner of the socket, the decoder, the relation cache and the feedback timer.
//!
//! ```text
//!  socket ──fill──▶ frames ──try_next──▶ decoder ──▶ assembler ──▶ batch ──▶ queue ──▶ PostgresSource::poll
//!                                          │                                             │
//!                     catalogue ◀──Relation┘            acknowledged position ◀──────────┘ (watch)
//! ```
//!
//! The session reserves room in the queue *before* it reads, so a slow sink stops the reading and never the feedback,
//! and only for a bounded time: an open but unread socket can block the server's checkpointer when the slot has to be
//! invalidated. After that the connection is closed and the position kept.

mod heartbeat;
mod held;
mod message;
mod meter;
mod relations;
pub(crate) mod start;
pub(crate) mod starting;
mod topics;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crabka_connect::{ConnectError, ErrorClass};
use crabka_pgoutput::Decoder;
use crabka_pgrepl::{Lsn, ReplicationStream, StreamEvent};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::heartbeat::HeartbeatTimer;
use self::meter::Meter;
use self::relations::RelationCache;
use crate::assemble::{Assembler, Batch};
use crate::catalog::some_of;
use crate::classify::replication_error;
use crate::figures::{SourceFigures, StreamState};

/// A batch is handed on at this many changes, so that `poll` never waits for more.
const BATCH_CHANGES_MAX: usize = 1024;

/// Batches that may wait in the queue: the session fills one while the source empties another. Their size follows from
/// the configured bytes.
pub(crate) const QUEUE_BATCHES: usize = 4;

/// How long the last status and the server's goodbye may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The publication does not exist where the slot stands, whether it exists now or not.
const PUBLICATION_FIX: &str = "a publication must exist before its slot is made, and until the slot has passed its last \
    change: drop the slot, run `crabka init`, and take the rows changed meanwhile from a new snapshot";

/// How long a server in fast shutdown is let wait for changes in flight to become durable; never longer than the unread
/// limit. Well below the minute that `pg_ctl stop` waits.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(10);

/// How long the queue may stay full once the ordinary SQL connection has ended: the server is probably stopping, and then
/// waits for the replication connection alone.
const FULL_AT_SHUTDOWN_LIMIT: Duration = Duration::from_secs(3);

/// A server that is stopping ends its ordinary sessions at the very beginning. When the SQL connection ended longer ago
/// than this and the stream goes on, it had another reason.
const SHUTDOWN_BEGAN_WITHIN: Duration = Duration::from_secs(10);

/// Why a session ended without an error.
#[derive(Debug)]
pub(crate) enum End {
    /// It was told to.
    Stopped,
    /// Nobody took the batches for too long.
    Unread,
    /// A value has no binary form, or none that we can read: start again on text.
    TextNeeded,
}

/// The source's side of a running session.
#[derive(Debug)]
pub(crate) struct SessionHandle {
    pub(crate) batches: mpsc::Receiver<Batch>,
    acknowledged: watch::Sender<Lsn>,
    received: Arc<AtomicU64>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<End, ConnectError>>,
}

impl SessionHandle {
    /// Highest position this server has sent, the start position included.
    pub(crate) fn received(&self) -> Lsn {
        Lsn::new(self.received.load(Ordering::Acquire))
    }

    /// Passes an acknowledged position on; never goes back.
    pub(crate) fn acknowledge(&self, lsn: Lsn) {
        self.acknowledged.send_if_modified(|known| {
            let moved = lsn > *known;
            *known = lsn.max(*known);
            moved
        });
    }

    /// Why the session ended. Called when the queue is closed.
    pub(crate) async fn end(self) -> Result<End, ConnectError> {
        joined(self.task).await
    }

    /// Ends the session: a last status is sent, and waited for as long as [`CLOSE_TIMEOUT`].
    pub(crate) async fn stop(self) -> Result<End, ConnectError> {
        let Self { mut batches, stop, task, .. } = self;
        let _ = stop.send(());
        batches.close();
        while batches.try_recv().is_ok() {}
        joined(task).await
    }
}

async fn joined(task: JoinHandle<Result<End, ConnectError>>) -> Result<End, ConnectError> {
    task.await.map_err(|error| ConnectError::bug("the replication session panicked").with_source(error))?
}

/// Limits and switches of a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionOptions {
    pub(crate) batch_bytes: usize,
    pub(crate) unread_limit: Duration,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) truncate_events: bool,
    /// Whether the stream carries binary values.
    pub(crate) binary: bool,
}

pub(crate) struct Session {
    stream: ReplicationStream,
    decoder: Decoder,
    relations: RelationCache,
    assembler: Assembler,
    heartbeat: HeartbeatTimer,
    options: SessionOptions,
    batches: mpsc::Sender<Batch>,
    acknowledged: watch::Receiver<Lsn>,
    received: Arc<AtomicU64>,
    meter: Meter,
    stop: oneshot::Receiver<()>,
    /// Set when the session is to end after the batch at hand.
    ending: Option<End>,
}

impl Session {
    /// Starts the task.
    pub(crate) fn spawn(
        stream: ReplicationStream,
        relations: RelationCache,
        assembler: Assembler,
        options: SessionOptions,
        figures: Arc<SourceFigures>,
    ) -> SessionHandle {
        let (batches, batches_out) = mpsc::channel(QUEUE_BATCHES);
        let (acknowledged, acknowledged_out) = watch::channel(stream.acknowledged());
        let received = Arc::new(AtomicU64::new(stream.received().as_u64()));
        let (stop, stop_out) = oneshot::channel();
        let queue_bytes_max = options.batch_bytes.saturating_mul(QUEUE_BATCHES);
        figures.session_begins(assembler.emitted(), stream.received(), queue_bytes_max);
        let session = Self {
            heartbeat: HeartbeatTimer::new(options.heartbeat_interval, Instant::now()),
            stream,
            decoder: Decoder::default(),
            relations,
            assembler,
            options,
            batches,
            acknowledged: acknowledged_out,
            received: Arc::clone(&received),
            meter: Meter::new(figures),
            stop: stop_out,
            ending: None,
        };
        let task = tokio::spawn(session.run());
        SessionHandle { batches: batches_out, acknowledged, received, stop, task }
    }

    async fn run(mut self) -> Result<End, ConnectError> {
        let ended = self.stream_batches().await;
        self.meter.ended(match ended {
            Ok(End::Unread) => StreamState::Unread,
            _ => StreamState::Closed,
        });
        if matches!(ended, Ok(End::Stopped)) {
            self.pass_acknowledged_on()?;
        }
        // Also after an error: the last status is what releases WAL, and a lost one is harmless.
        if let Err(error) = self.stream.close(CLOSE_TIMEOUT).await {
            tracing::debug!(%error, "the replication stream was not closed in order");
        }
        ended
    }

    async fn stream_batches(&mut self) -> Result<End, ConnectError> {
        let queue = self.batches.clone();
        loop {
            if queue.capacity() == 0 {
                self.meter.figures.state_is(StreamState::WaitingForRoom);
            }
            let room = match self.wait_for_room(&queue).await? {
                Ok(room) => room,
                Err(end) => return Ok(end),
            };
            self.meter.figures.state_is(StreamState::Streaming);
            // What was read before an error is handed on before the error is.
            let filled = self.fill_batch().await;
            if !self.assembler.batch().items.is_empty() {
                let batch = self.assembler.take_batch();
                if let Some((behind, commit_time_us)) = batch.extent() {
                    self.meter.figures.queued(batch.bytes, behind, commit_time_us);
                }
                room.send(batch);
            }
            match filled {
                Ok(()) => {}
                // The server has no binary form for a value, of a table that need not even be captured.
                Err(error) if self.options.binary && error.sqlstate() == Some("42883") => {
                    tracing::info!("the server cannot send a value in binary: switching the stream to text");
                    return Ok(End::TextNeeded);
                }
                Err(error) => return Err(error),
            }
            if let Some(end) = self.ending.take() {
                return Ok(end);
            }
        }
    }

    /// Waits for room in the queue with the feedback going on.
    async fn wait_for_room<'q>(
        &mut self,
        queue: &'q mpsc::Sender<Batch>,
    ) -> Result<Result<mpsc::Permit<'q, Batch>, End>, ConnectError> {
        let mut limit = self.options.unread_limit;
        let mut deadline = Instant::now() + limit;
        let (mut sql_has_ended, mut server_may_stop) = (false, false);
        loop {
            tokio::select! {
                biased;
                // 1. A full drain is wanted before anything else happens.
                _ = &mut self.stop => return Ok(Err(End::Stopped)),
                // 2. An acknowledge releases WAL, and may be what the server waits for.
                changed = self.acknowledged.changed() => {
                    if changed.is_err() {
                        return Ok(Err(End::Stopped));
                    }
                    self.pass_acknowledged_on()?;
                }
                // 3. Room.
                room = queue.reserve() => {
                    return Ok(room.map_err(|_closed| End::Stopped));
                }
                // 4. A server in fast shutdown ends the ordinary connection first. Its questions to this one are behind
                //    what is not read.
                ended_at = self.relations.sql_ended(), if !sql_has_ended => {
                    sql_has_ended = true;
                    server_may_stop = ended_at.elapsed() < SHUTDOWN_BEGAN_WITHIN;
                    if server_may_stop {
                        limit = limit.min(FULL_AT_SHUTDOWN_LIMIT);
                        deadline = deadline.min(Instant::now() + limit);
                    }
                }
                // 5. The bound on an unread socket.
                () = tokio::time::sleep_until(deadline) => {
                    tracing::warn!(
                        limit_ms = limit.as_millis(), server_may_stop,
                        position = %self.assembler.emitted().resume_lsn,
                        "the queue has been full for too long: closing the replication connection, keeping the position"
                    );
                    return Ok(Err(End::Unread));
                }
                // 6. Feedback only; never ends but by an error.
                ended = self.stream.keep_alive() => return Err(ended_by_feedback(ended)),
            }
        }
    }

    /// Reads until there is something to hand on, or a reason to end.
    async fn fill_batch(&mut self) -> Result<(), ConnectError> {
        loop {
            self.pass_acknowledged_on()?;
            while !self.batch_is_full() {
                match self.stream.try_next().map_err(|error| self.stuck_at(error))? {
                    Some(event) => self.handle(event).await?,
                    None => break,
                }
                if self.ending.is_some() {
                    return Ok(());
                }
            }
            let now = Instant::now();
            self.received.store(self.stream.received().as_u64(), Ordering::Release);
            self.meter.report(self.stream.received(), &self.assembler, now);
            let acknowledged = *self.acknowledged.borrow();
            let heartbeat_at = self.heartbeat.next(&self.assembler, acknowledged);
            if heartbeat_at.is_some_and(|at| at <= now) {
                self.assembler.heartbeat();
                self.heartbeat.sent(now);
                self.meter.tally.heartbeats += 1;
            }
            if !self.assembler.batch().items.is_empty() {
                return Ok(());
            }
            self.let_the_server_stop()?;
            tokio::select! {
                biased;
                // 1. As in `wait_for_room`.
                _ = &mut self.stop => {
                    self.ending = Some(End::Stopped);
                    return Ok(());
                }
                // 2. The loop passes it on.
                changed = self.acknowledged.changed() => {
                    if changed.is_err() {
                        self.ending = Some(End::Stopped);
                        return Ok(());
                    }
                }
                // 3. Before reading: a flood of keepalives must not starve the heartbeat they ask for.
                () = tokio::time::sleep_until(heartbeat_at.unwrap_or_else(Instant::now)), if heartbeat_at.is_some() => {}
                // 4. Reads, and sends feedback when it is due.
                filled = self.stream.fill() => {
                    filled.map_err(|error| self.stuck_at(error))?;
                    self.meter.tally.heard = true;
                }
            }
        }
    }

    /// A server in fast shutdown asks for a position past its last record until it gets it. When what is in flight does
    /// not become durable, it cannot have it, and must not be kept waiting: the connection is closed, the position kept.
    fn let_the_server_stop(&self) -> Result<(), ConnectError> {
        let patience = self.options.unread_limit.min(SHUTDOWN_PATIENCE);
        if !self.heartbeat.asked_in_vain_for(patience, Instant::now()) {
            return Ok(());
        }
        Err(ConnectError::transient(format!(
            "the server is shutting down and waits for changes that do not become durable: connection closed, position \
             kept at {}",
            self.assembler.emitted().resume_lsn
        )))
    }

    /// Never without an item: the bytes may all be of the change that is held until the next message, and only that
    /// message lets it leave.
    fn batch_is_full(&self) -> bool {
        let batch = self.assembler.batch();
        !batch.items.is_empty()
            && (batch.items.len() >= BATCH_CHANGES_MAX || batch.bytes >= self.options.batch_bytes)
    }

    /// A row that cannot come through, now and at every later attempt: where it is, and how it gets through.
    fn stuck_at(&self, error: crabka_pgrepl::Error) -> ConnectError {
        let behind = self.assembler.emitted().resume_lsn;
        if let crabka_pgrepl::Error::FrameTooLarge { length, limit, .. } = error {
            return ConnectError::configuration(format!(
                "a message of the server is over source.frame_bytes_max ({limit} bytes), behind {behind}: {length} bytes"
            ))
            .with_fix(format!(
                "set source.frame_bytes_max to {length} or more, if the memory is there for it several times over"
            ))
            .with_source(error);
        }
        let error = failed_streaming(error);
        if !too_large_for_the_server(&error) {
            return error;
        }
        let error = error.context(format!(
            "the server cannot write a row behind {behind}, of one of these tables with columns that are longer as text: {}",
            some_of(self.relations.with_columns_longer_as_text())
        ));
        if self.options.binary {
            return error.with_fix(
                "take the column out of the publication with a column list, or the table out of it",
            );
        }
        error.with_fix(
            "set source.binary to true: the binary form of these values is shorter (every captured column needs one that \
             is known)",
        )
    }

    /// Looks at the value and not at whether it changed: who waited for the change has marked it as seen.
    fn pass_acknowledged_on(&mut self) -> Result<(), ConnectError> {
        let lsn = *self.acknowledged.borrow_and_update();
        if lsn > self.stream.acknowledged() {
            self.stream.acknowledge(lsn).map_err(failed_streaming)?;
        }
        Ok(())
    }

    async fn handle(&mut self, event: StreamEvent) -> Result<(), ConnectError> {
        match event {
            StreamEvent::Wal { start, payload, .. } => self.message(start, payload).await,
            StreamEvent::KeepAlive { wal_end, reply_requested, .. } => {
                self.assembler.keepalive(wal_end);
                if reply_requested {
                    self.heartbeat.asked(Instant::now());
                }
                Ok(())
            }
            StreamEvent::Notice { notice } => {
                self.meter.tally.notices += 1;
                self.notice(&notice)
            }
            StreamEvent::Ended => Err(ConnectError::transient("the server ended the replication stream")),
        }
    }
}

fn failed_streaming(error: crabka_pgrepl::Error) -> ConnectError {
    let error = replication_error("streaming", error);
    // Old WAL is decoded with the catalogue of its time: up to 17 this is how a missing publication shows.
    if error.sqlstate() == Some("42704") { error.with_fix(PUBLICATION_FIX) } else { error }
}

/// A value, or a row, that does not fit into the gigabyte that the server can hold of it.
fn too_large_for_the_server(error: &ConnectError) -> bool {
    error.class() == ErrorClass::Data && matches!(error.sqlstate(), Some("XX000" | "54000"))
}

fn ended_by_feedback(ended: Result<Infallible, crabka_pgrepl::Error>) -> ConnectError {
    match ended {
        Err(error) => failed_streaming(error),
        Ok(never) => match never {},
    }
}

#[cfg(test)]
mod tests;
