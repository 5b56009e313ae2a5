//! When a standby status is due: a pure function of time and positions.
//!
//! Times are counted from the start of the stream.
//!
//! <https://www.postgresql.org/docs/18/protocol-replication.html#PROTOCOL-REPLICATION-STANDBY-STATUS-UPDATE>

use std::time::Duration;

use crate::Lsn;

/// How often, and how long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intervals {
    /// Between two statuses when nothing happens.
    pub(crate) status: Duration,
    /// Least time between two statuses, however often one is asked for.
    pub(crate) coalesce: Duration,
    /// Time without a byte after which the server counts as gone; at half of it a reply is asked for.
    pub(crate) silence: Option<Duration>,
}

/// What is known at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Situation {
    pub(crate) now: Duration,
    /// When the last status was sent; zero, the start of the stream, before the first.
    pub(crate) last_status: Duration,
    /// No status was sent yet: the first urgent one need not wait.
    pub(crate) none_sent: bool,
    /// The flush position of the last status.
    pub(crate) flush_sent: Lsn,
    /// The position acknowledged by now.
    pub(crate) acknowledged: Lsn,
    /// The server asked for a status since the last one.
    pub(crate) reply_requested: bool,
    /// When the last byte came.
    pub(crate) last_byte: Duration,
    /// When a reply was asked for that no byte has followed yet.
    pub(crate) asked: Option<Duration>,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Send a status; with `ask` the server is to answer it.
    Send { ask: bool },
    /// Nothing before this time.
    Wait { until: Duration },
    /// The server is gone.
    GiveUp { silent_for: Duration },
}

fn half(limit: Duration) -> Duration {
    limit.checked_div(2).unwrap_or(limit)
}

pub(crate) fn decide(situation: &Situation, intervals: &Intervals) -> Decision {
    let Situation { now, last_status, last_byte, asked, .. } = *situation;
    let give_up_at = match (intervals.silence, asked) {
        (Some(limit), Some(asked)) => {
            Some(last_byte.saturating_add(limit).max(asked.saturating_add(half(limit))))
        }
        _ => None,
    };
    if give_up_at.is_some_and(|at| now >= at) {
        return Decision::GiveUp { silent_for: now.saturating_sub(last_byte) };
    }
    let pace =
        if situation.none_sent { Duration::ZERO } else { last_status.saturating_add(intervals.coalesce) };
    let ask_at = match (intervals.silence, asked) {
        (Some(limit), None) => Some(last_byte.saturating_add(half(limit)).max(pace)),
        _ => None,
    };
    let urgent = situation.reply_requested || situation.acknowledged > situation.flush_sent;
    let mut due = last_status.saturating_add(intervals.status);
    if urgent {
        due = due.min(pace);
    }
    if let Some(ask_at) = ask_at {
        due = due.min(ask_at);
    }
    if now >= due {
        return Decision::Send { ask: ask_at.is_some_and(|at| now >= at) };
    }
    Decision::Wait { until: give_up_at.map_or(due, |at| due.min(at)) }
}
