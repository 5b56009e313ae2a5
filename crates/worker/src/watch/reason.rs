//! Why a run is ready, or is not: a pure function of one [`View`].
//!
//! Silence is never taken for *caught up*: a run is idle only when the server was heard, or looked at, a moment ago and
//! has nothing that was not received.

use std::time::Duration;

use crabka_connect::{Phase, Status};
use crabka_connect_postgres::StreamState;

use super::{View, ms};

/// SQLSTATE of a slot that another session reads.
const SLOT_IN_USE: &str = "55006";

/// A transaction that is read for longer than this is worth a word.
const LONG_TRANSACTION: Duration = Duration::from_secs(1);

/// Changes that came within this time are still called a stream.
const RECENT: Duration = Duration::from_secs(5);

/// The kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Idle,
    Streaming,
    ReadingTransaction,
    Decoding,
    Starting,
    Paused,
    Sink,
    Checkpoint,
    Source,
    SlotHeld,
    ServerSilent,
    Converter,
    Draining,
    Stopped,
    Aborted,
    Failed,
}

impl Code {
    pub(crate) const ALL: [Self; 16] = [
        Self::Idle,
        Self::Streaming,
        Self::ReadingTransaction,
        Self::Decoding,
        Self::Starting,
        Self::Paused,
        Self::Sink,
        Self::Checkpoint,
        Self::Source,
        Self::SlotHeld,
        Self::ServerSilent,
        Self::Converter,
        Self::Draining,
        Self::Stopped,
        Self::Aborted,
        Self::Failed,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Streaming => "streaming",
            Self::ReadingTransaction => "reading_transaction",
            Self::Decoding => "decoding",
            Self::Starting => "starting",
            Self::Paused => "paused",
            Self::Sink => "sink",
            Self::Checkpoint => "checkpoint",
            Self::Source => "source",
            Self::SlotHeld => "slot_held",
            Self::ServerSilent => "server_silent",
            Self::Converter => "converter",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
        }
    }
}

/// What a run does, or why nothing moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) code: Code,
    pub(crate) ready: bool,
    pub(crate) text: String,
}

fn ready(code: Code, text: impl Into<String>) -> Reason {
    Reason { code, ready: true, text: text.into() }
}

fn not_ready(code: Code, text: impl Into<String>) -> Reason {
    Reason { code, ready: false, text: text.into() }
}

pub(super) fn of(view: &View) -> Reason {
    let status = &view.status;
    match status.phase {
        Phase::Starting if status.attempts > 0 => not_ready(
            failed_part(status),
            format!("attempt {} after: {}", status.attempts + 1, error(status)),
        ),
        Phase::Starting => not_ready(Code::Starting, "opening source and sink"),
        Phase::BackingOff => {
            let pause_ms = status.next_attempt_at_ms.map_or(0, |at| at.saturating_sub(view.at_ms).max(0));
            let text = format!(
                "attempt {} failed, the next one comes in {pause_ms} ms: {}",
                status.attempts,
                error(status)
            );
            not_ready(failed_part(status), text)
        }
        Phase::Running => stuck_batch(view)
            .or_else(|| not_working(view))
            .or_else(|| stalled(view))
            .unwrap_or_else(|| moving(view)),
        Phase::Paused => not_ready(Code::Paused, "paused"),
        Phase::Draining => not_ready(Code::Draining, "finishing what was read before it stops"),
        Phase::Stopped => not_ready(Code::Stopped, "stopped"),
        Phase::Aborted => not_ready(Code::Aborted, "aborted"),
        Phase::Failed => not_ready(Code::Failed, format!("ended by an error: {}", error(status))),
    }
}

fn error(status: &Status) -> String {
    match &status.last_error {
        Some(error) => format!("{}: {}", error.class, error.message),
        None => "no error was noted".to_owned(),
    }
}

fn failed_part(status: &Status) -> Code {
    let Some(error) = &status.last_error else { return Code::Source };
    match error.part {
        _ if error.sqlstate.as_deref() == Some(SLOT_IN_USE) => Code::SlotHeld,
        Some("sink") => Code::Sink,
        Some("checkpoint") => Code::Checkpoint,
        Some("converter") => Code::Converter,
        _ => Code::Source,
    }
}

/// A batch that does not land.
fn stuck_batch(view: &View) -> Option<Reason> {
    let status = &view.status;
    let (batch, since) = (status.in_flight?, view.in_flight_for()?);
    if since < view.stall_limit {
        return None;
    }
    let since_ms = ms(since);
    if batch.durable {
        let text = format!("the position of a durable batch is not saved for {since_ms} ms");
        return Some(not_ready(Code::Checkpoint, text));
    }
    let text = format!(
        "the sink has not taken a batch of {} records and {} bytes for {since_ms} ms",
        batch.records, batch.bytes
    );
    Some(not_ready(Code::Sink, text))
}

/// No stream, or something that failed and has not shown that it works again.
fn not_working(view: &View) -> Option<Reason> {
    let (status, source) = (&view.status, &view.source);
    let failing = |part| {
        not_ready(part, format!("trying again after {} failed attempts: {}", status.attempts, error(status)))
    };
    let failed = (status.attempts > 0).then(|| failed_part(status));
    let of_source = |part: &Code| matches!(part, Code::Source | Code::SlotHeld);
    // What only failed to open is open now, and an idle run has no batch to show more. Failed records come again.
    let unproven = |part: &Code| match part {
        Code::Sink | Code::Checkpoint => status.batch_failed,
        part => !of_source(part),
    };
    if let Some(part) = failed.filter(unproven) {
        return Some(failing(part));
    }
    let heard = source.last_read.is_some_and(|last_read| last_read < source.state_for);
    not_read(view).or_else(|| failed.filter(of_source).filter(|_| !heard).map(failing))
}

/// A stream that is not open, or that nobody reads.
fn not_read(view: &View) -> Option<Reason> {
    let source = &view.source;
    let state_ms = ms(source.state_for);
    let (code, text) = match source.state {
        StreamState::Closed if source.sessions == 0 => {
            (Code::Starting, "the replication stream has not begun".to_owned())
        }
        StreamState::Closed => (Code::Source, format!("no replication stream for {state_ms} ms")),
        StreamState::Starting => {
            (Code::Starting, format!("opening the replication stream for {state_ms} ms"))
        }
        StreamState::Unread => {
            let text = "the sink took nothing for so long that the replication connection was closed";
            (Code::Sink, format!("{text}, {state_ms} ms ago"))
        }
        StreamState::WaitingForRoom if source.state_for >= view.stall_limit => {
            let bytes = source.queue_bytes;
            let text = format!("nothing is read for {state_ms} ms: {bytes} bytes wait for the sink");
            (Code::Sink, text)
        }
        StreamState::WaitingForRoom | StreamState::Streaming => return None,
    };
    Some(not_ready(code, text))
}

/// A stream that is read and over which nothing comes, although there is more or nobody knows.
fn stalled(view: &View) -> Option<Reason> {
    let source = &view.source;
    let limit = view.stall_limit;
    let still = source.last_moved.unwrap_or(source.state_for);
    if source.state != StreamState::Streaming || source.state_for < limit || still < limit {
        return None;
    }
    let looked = source.slot.as_ref().filter(|look| look.error.is_none() && look.at.elapsed() < limit);
    let ahead_for = looked.and_then(|look| look.ahead_since).map(|since| since.elapsed());
    let has_more = source.transaction.is_some() || ahead_for.is_some_and(|ahead_for| ahead_for >= limit);
    let silent = source.last_read.unwrap_or(source.state_for);
    let (still_ms, silent_ms) = (ms(still), ms(silent));
    let unread = view.unread_bytes().unwrap_or(0);
    let place = match source.transaction {
        Some(transaction) => format!(", in transaction {}", transaction.xid),
        None => String::new(),
    };
    let (code, text) = match (silent >= limit, has_more, looked) {
        (true, true, _) => (
            Code::ServerSilent,
            format!("the server has {unread} bytes more and has sent nothing for {silent_ms} ms{place}"),
        ),
        (true, false, None) => (
            Code::ServerSilent,
            format!("nothing was heard of the server for {silent_ms} ms: whether it has more is not known"),
        ),
        (false, true, _) => (
            Code::Decoding,
            format!(
                "the server answers, but its position stands still for {still_ms} ms: {unread} bytes to go{place}"
            ),
        ),
        (true, false, Some(_)) | (false, false, _) => return None,
    };
    Some(not_ready(code, text))
}

/// What a stream that works is doing.
fn moving(view: &View) -> Reason {
    let source = &view.source;
    if let Some(transaction) = source.transaction.filter(|transaction| transaction.since >= LONG_TRANSACTION)
    {
        let text = format!(
            "reading transaction {}: {} rows and {} bytes in {} ms so far",
            transaction.xid,
            transaction.changes,
            transaction.bytes,
            ms(transaction.since)
        );
        return ready(Code::ReadingTransaction, text);
    }
    let unread = view.unread_bytes().unwrap_or(0);
    let on_its_way = view.status.in_flight.is_some()
        || source.queue_bytes > 0
        || source.oldest_unacknowledged_us.is_some();
    let recent = source.last_data.is_some_and(|last_data| last_data < RECENT);
    if on_its_way || source.transaction.is_some() || (unread > 0 && recent) {
        return ready(Code::Streaming, format!("changes come, {unread} bytes to go"));
    }
    if unread > 0 {
        let text = format!("the server reads WAL without a captured change, {unread} bytes to go");
        return ready(Code::Decoding, text);
    }
    ready(Code::Idle, "everything the server has was read and acknowledged")
}

#[cfg(test)]
mod tests;
