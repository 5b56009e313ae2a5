//! A running replication stream: events out, acknowledged positions in, feedback on its own timer.
//!
//! The stream owns its socket, its receive buffer and its pending output, so every `async` method here can be dropped
//! at any await point and called again. Positions reported to the server are monotone, and the flush position is
//! never above what this server has sent.
//!
//! <https://www.postgresql.org/docs/18/protocol-replication.html#PROTOCOL-REPLICATION-START-REPLICATION>

mod feedback;
mod pacing;
mod settings;

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use postgres_protocol::message::frontend;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use self::feedback::{Decision, Intervals, Situation, decide};
use self::pacing::Pacing;
pub use self::settings::{StreamSettings, WallClock};
use crate::error::ServerMessage;
use crate::link::Link;
use crate::protocol::backend::{self, CopyData, tag};
use crate::protocol::frame::Frame;
use crate::transport::Peer;
use crate::{Error, Lsn, StartReplication};

const STREAMING: &str = "streaming";

/// Between the suspicion that the server is gone and the verdict: bytes may lie in the socket unnoticed when the
/// whole process was not running.
const SECOND_LOOK: Duration = Duration::from_millis(20);

/// What the server sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEvent {
    /// One message of the output plugin.
    Wal {
        /// Where its WAL starts; not unique, not monotone, 0/0 for some messages.
        start: Lsn,
        /// The server's position when it sent the message; for logical decoding the same as `start`.
        end: Lsn,
        /// Server clock, µs since 2000-01-01 UTC.
        send_time_us: i64,
        /// The message; shares the receive buffer's memory, of which it keeps up to 256 KiB alive.
        payload: Bytes,
    },
    /// A sign of life.
    KeepAlive {
        /// How far the server has decoded.
        wal_end: Lsn,
        /// Server clock, µs since 2000-01-01 UTC.
        time_us: i64,
        /// The server wants a status; the stream sends it by itself.
        reply_requested: bool,
    },
    /// A notice or warning; the stream goes on.
    Notice {
        /// The server's message.
        notice: Box<ServerMessage>,
    },
    /// The server has ended the stream in good order. Returned for ever after.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Streaming,
    /// The server has ended the stream in good order.
    Finished,
    /// An error was returned.
    Failed,
}

/// A running replication stream.
pub struct ReplicationStream {
    link: Link,
    phase: Phase,
    intervals: Intervals,
    clock: WallClock,
    /// Time zero of the feedback.
    started: Instant,
    /// Highest position received, or the start position.
    received: Lsn,
    acknowledged: Lsn,
    flush_sent: Lsn,
    last_status: Duration,
    none_sent: bool,
    reply_requested: bool,
    last_byte: Duration,
    asked: Option<Duration>,
    /// When the suspicion that the server is gone becomes a verdict.
    verdict_at: Option<Duration>,
    /// Sending has failed; the server's reason may still be read.
    send_error: Option<io::Error>,
    copy_done_sent: bool,
    timer: Pin<Box<Sleep>>,
    pacing: Pacing,
}

impl std::fmt::Debug for ReplicationStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicationStream")
            .field("peer", self.peer())
            .field("phase", &self.phase)
            .field("received", &self.received)
            .field("acknowledged", &self.acknowledged)
            .finish_non_exhaustive()
    }
}

impl ReplicationStream {
    pub(crate) fn new(link: Link, start: &StartReplication, sender_timeout: Option<Duration>) -> Self {
        let settings = &start.settings;
        let status = match sender_timeout {
            Some(timeout) if !timeout.is_zero() => {
                settings.status_interval.min(timeout.checked_div(3).unwrap_or(timeout))
            }
            _ => settings.status_interval,
        };
        let intervals =
            Intervals { status, coalesce: settings.coalesce_interval, silence: settings.silence_limit };
        let started = Instant::now();
        Self {
            link,
            phase: Phase::Streaming,
            intervals,
            clock: settings.clock,
            started,
            received: start.start(),
            acknowledged: start.durable(),
            flush_sent: start.durable(),
            last_status: Duration::ZERO,
            none_sent: true,
            reply_requested: false,
            last_byte: Duration::ZERO,
            asked: None,
            verdict_at: None,
            send_error: None,
            copy_done_sent: false,
            timer: Box::pin(sleep_until(started)),
            pacing: Pacing::new(settings.read_pause, started),
        }
    }

    /// What the connection leads to.
    pub fn peer(&self) -> &Peer {
        self.link.transport.peer()
    }

    /// The highest position the server has sent (of data or of a keepalive), or the start position.
    pub fn received(&self) -> Lsn {
        self.received
    }

    /// The position acknowledged last, or the start position.
    pub fn acknowledged(&self) -> Lsn {
        self.acknowledged
    }

    /// Everything below `position` is durable and need never be sent again.
    ///
    /// Reported by the next [`fill`](Self::fill) or [`keep_alive`](Self::keep_alive): at once on a quiet stream,
    /// otherwise together with others. A position at or below the last one changes nothing.
    ///
    /// # Errors
    ///
    /// Caller: the position is above everything this server has sent. The server would believe it, and lose data.
    ///
    /// # Durability
    ///
    /// The server may remove the WAL below `position`, and never sends those changes again.
    pub fn acknowledge(&mut self, position: Lsn) -> Result<(), Error> {
        if position > self.received {
            return Err(Error::AcknowledgeAhead { position, received: self.received });
        }
        self.acknowledged = self.acknowledged.max(position);
        Ok(())
    }

    /// The next event among the bytes already received; `None` when more must be read.
    ///
    /// # Errors
    ///
    /// Server: the stream has failed; the SQLSTATE says why. Transient: the connection has ended. Configuration: a
    /// message over the frame limit. Protocol. After any error the stream is of no use.
    pub fn try_next(&mut self) -> Result<Option<StreamEvent>, Error> {
        match self.phase {
            Phase::Streaming => {}
            Phase::Finished => return Ok(Some(StreamEvent::Ended)),
            Phase::Failed => return Err(Error::Ended),
        }
        let event = self.next_event();
        if event.is_err() {
            self.phase = Phase::Failed;
        }
        event
    }

    fn next_event(&mut self) -> Result<Option<StreamEvent>, Error> {
        while let Some(frame) = self.link.frames.next()? {
            if let Some(event) = self.event(frame)? {
                return Ok(Some(event));
            }
        }
        if !self.link.has_ended() {
            return Ok(None);
        }
        Err(match (self.link.end_error(STREAMING), self.send_error.take()) {
            (Error::Closed { .. }, Some(source)) => {
                Error::io("the connection broke while sending a status", source)
            }
            (error, _) => error,
        })
    }

    fn event(&mut self, frame: Frame) -> Result<Option<StreamEvent>, Error> {
        match frame.tag {
            tag::COPY_DATA => match backend::copy_data(frame.body)? {
                CopyData::XLogData { start, end, send_time_us, payload } => {
                    self.received = self.received.max(end).max(start);
                    Ok(Some(StreamEvent::Wal { start, end, send_time_us, payload }))
                }
                CopyData::KeepAlive { wal_end, time_us, reply_requested } => {
                    self.received = self.received.max(wal_end);
                    self.reply_requested |= reply_requested;
                    Ok(Some(StreamEvent::KeepAlive { wal_end, time_us, reply_requested }))
                }
            },
            tag::NOTICE_RESPONSE => {
                Ok(Some(StreamEvent::Notice { notice: Box::new(backend::server_message(&frame.body)?) }))
            }
            tag::PARAMETER_STATUS | tag::NOTIFICATION_RESPONSE => Ok(None),
            tag::ERROR_RESPONSE => Err(Error::Server(Box::new(backend::server_message(&frame.body)?))),
            tag::COPY_DONE => {
                self.queue_copy_done();
                Ok(None)
            }
            // A server that shuts down sends no CopyDone before it.
            tag::COMMAND_COMPLETE | tag::READY_FOR_QUERY => {
                self.phase = Phase::Finished;
                Ok(Some(StreamEvent::Ended))
            }
            other => {
                Err(Error::protocol(format!("unexpected message while streaming: {:?}", char::from(other))))
            }
        }
    }

    /// Reads at least one byte, and sends the statuses that fall due meanwhile. Returns at once when an event is
    /// waiting or the stream has ended.
    ///
    /// # Errors
    ///
    /// Transient: the server went silent. Configuration: a message over the frame limit. Whatever else ends the
    /// stream is returned by [`try_next`](Self::try_next), after the events before it.
    ///
    /// # Cancel safety
    ///
    /// Safe at every point: no received byte is lost, and no status is sent twice or in part.
    pub async fn fill(&mut self) -> Result<(), Error> {
        match self.phase {
            Phase::Streaming => poll_fn(|cx| self.poll_fill(cx)).await,
            Phase::Finished => Ok(()),
            Phase::Failed => Err(Error::Ended),
        }
    }

    /// Sends statuses as they fall due and reads nothing, for while the consumer has no room. Never returns `Ok`.
    ///
    /// An open connection that nobody reads can block the server's checkpointer: bound the time, then close.
    ///
    /// # Errors
    ///
    /// Transient: sending failed.
    ///
    /// # Cancel safety
    ///
    /// Safe at every point: no status is sent twice or in part.
    pub async fn keep_alive(&mut self) -> Result<Infallible, Error> {
        if self.phase != Phase::Streaming {
            return pending().await;
        }
        poll_fn(|cx| self.poll_keep_alive(cx)).await
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            let now = self.started.elapsed();
            let decision = decide(&self.situation(now), &self.intervals);
            let queued = self.queue_if_due(now, decision);
            self.poll_output(cx, now);
            if self.link.frames.ready() || self.link.has_ended() {
                return Poll::Ready(Ok(()));
            }
            let received = match self.pacing.poll_ready(cx, self.started, now) {
                Poll::Ready(()) => self.link.poll_receive(cx),
                Poll::Pending => Poll::Pending,
            };
            match received {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(bytes)) => {
                    self.pacing.read(now, bytes);
                    self.last_byte = now;
                    self.asked = None;
                    self.verdict_at = None;
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Err(error)) => {
                    self.phase = Phase::Failed;
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => {}
            }
            let until = match decision {
                Decision::GiveUp { silent_for } => {
                    let verdict_at = *self.verdict_at.get_or_insert(now.saturating_add(SECOND_LOOK));
                    if now >= verdict_at {
                        self.phase = Phase::Failed;
                        return Poll::Ready(Err(Error::PeerSilent { silent_for }));
                    }
                    verdict_at
                }
                Decision::Wait { until } => until,
                Decision::Send { .. } if queued => continue,
                // The socket takes no output: it wakes us when it does.
                Decision::Send { .. } => now.saturating_add(self.intervals.status),
            };
            if self.poll_timer(cx, until).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn poll_keep_alive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Infallible, Error>> {
        loop {
            let now = self.started.elapsed();
            // Nothing is read, so nothing can be said about the server's silence.
            let decision = decide(&self.situation(now), &Intervals { silence: None, ..self.intervals });
            let queued = self.queue_if_due(now, decision);
            self.poll_output(cx, now);
            if let Some(source) = self.send_error.take() {
                self.phase = Phase::Failed;
                return Poll::Ready(Err(Error::io("the connection broke while sending a status", source)));
            }
            let until = match decision {
                Decision::Wait { until } => until,
                Decision::Send { .. } if queued => continue,
                Decision::Send { .. } | Decision::GiveUp { .. } => now.saturating_add(self.intervals.status),
            };
            if self.poll_timer(cx, until).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn situation(&self, now: Duration) -> Situation {
        Situation {
            now,
            last_status: self.last_status,
            none_sent: self.none_sent,
            flush_sent: self.flush_sent,
            acknowledged: self.acknowledged,
            reply_requested: self.reply_requested,
            last_byte: self.last_byte,
            asked: self.asked,
        }
    }

    /// Queues a status if one is due and the one before has left; at most one is ever pending.
    fn queue_if_due(&mut self, now: Duration, decision: Decision) -> bool {
        let Decision::Send { ask } = decision else { return false };
        if !self.link.is_sent() || self.send_error.is_some() || self.copy_done_sent {
            return false;
        }
        self.queue_status(now, ask);
        true
    }

    /// A standby status: `r`, write, flush, apply, time, reply flag, in a CopyData.
    fn queue_status(&mut self, now: Duration, ask: bool) {
        const LENGTH: i32 = 4 + 1 + 8 + 8 + 8 + 8 + 1;
        let flush = self.acknowledged.as_u64();
        let out = &mut self.link.out;
        out.put_u8(b'd');
        out.put_i32(LENGTH);
        out.put_u8(b'r');
        out.put_u64(self.received.as_u64());
        out.put_u64(flush);
        out.put_u64(flush);
        out.put_i64((self.clock)());
        out.put_u8(u8::from(ask));
        self.flush_sent = self.acknowledged;
        self.last_status = now;
        self.none_sent = false;
        self.reply_requested = false;
        if ask {
            self.asked = Some(now);
        }
    }

    fn queue_copy_done(&mut self) {
        if !self.copy_done_sent {
            frontend::copy_done(&mut self.link.out);
            self.copy_done_sent = true;
        }
    }

    /// Sends what is pending. A failure is kept: the server's reason for hanging up is still to be read.
    fn poll_output(&mut self, cx: &mut Context<'_>, now: Duration) {
        if self.send_error.is_some() {
            return;
        }
        if let Poll::Ready(Err(error)) = self.link.poll_send(cx) {
            self.link.discard_output();
            self.send_error = Some(error);
            self.asked.get_or_insert(now);
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>, until: Duration) -> Poll<()> {
        let Some(deadline) = self.started.checked_add(until) else { return Poll::Pending };
        // A timer that fires early is harmless and cheaper than setting it anew for every read.
        if self.timer.is_elapsed() || self.timer.deadline() > deadline {
            self.timer.as_mut().reset(deadline);
        }
        self.timer.as_mut().poll(cx)
    }

    /// Reports the acknowledged position a last time, ends the stream and closes the connection.
    ///
    /// Waits at most `limit` until the server has confirmed the end, and with it the position; in the middle of a
    /// large transaction the server goes on sending until the transaction ends.
    ///
    /// # Errors
    ///
    /// Transient: the server did not confirm in time, the connection broke, or the stream had ended before the last
    /// position could be reported. Server: the stream failed meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection; the position may or may not have been reported.
    ///
    /// # Durability
    ///
    /// On `Ok` the server has the acknowledged position.
    pub async fn close(mut self, limit: Duration) -> Result<(), Error> {
        match timeout(limit, self.finish()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::TimedOut { context: "ending the replication stream".into(), limit }),
        }
    }

    async fn finish(&mut self) -> Result<(), Error> {
        const UNREPORTED: Error = Error::Closed { during: "the last position was to be reported" };
        if self.phase == Phase::Failed {
            return Err(UNREPORTED);
        }
        if self.phase == Phase::Streaming {
            let now = self.started.elapsed();
            self.queue_status(now, false);
            self.queue_copy_done();
        }
        while self.phase == Phase::Streaming {
            while let Some(event) = self.try_next()? {
                if event == StreamEvent::Ended {
                    break;
                }
            }
            self.fill().await?;
        }
        frontend::terminate(&mut self.link.out);
        // The server has answered; whether the farewell still reaches it does not matter.
        let _ = self.link.send("saying good-bye").await;
        // The server may have ended the stream before it was told the last position.
        if self.flush_sent < self.acknowledged { Err(UNREPORTED) } else { Ok(()) }
    }
}
