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

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVALS: Intervals = Intervals {
        status: Duration::from_secs(10),
        coalesce: Duration::from_millis(10),
        silence: Some(Duration::from_secs(60)),
    };

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn send(ask: bool) -> Decision {
        Decision::Send { ask }
    }

    fn wait(until: u64) -> Decision {
        Decision::Wait { until: ms(until) }
    }

    /// (now, last status, acknowledged - sent, reply requested, last byte, asked) in milliseconds.
    type Row = (u64, Option<u64>, i64, bool, u64, Option<u64>, Decision);

    fn check(rows: &[Row], intervals: &Intervals) {
        for row in rows {
            let (now, last_status, ahead, reply_requested, last_byte, asked, expected) = *row;
            let situation = Situation {
                now: ms(now),
                last_status: ms(last_status.unwrap_or(0)),
                none_sent: last_status.is_none(),
                flush_sent: Lsn::new(1000),
                acknowledged: Lsn::new(1000_u64.checked_add_signed(ahead).unwrap()),
                reply_requested,
                last_byte: ms(last_byte),
                asked: asked.map(ms),
            };
            assert_eq!(decide(&situation, intervals), expected, "{row:?}");
        }
    }

    #[test]
    fn truth_table() {
        check(
            &[
                // Nothing happens: the timer, counted from the start and from the last status.
                (0, None, 0, false, 0, None, wait(10_000)),
                (9_999, None, 0, false, 9_999, None, wait(10_000)),
                (10_000, None, 0, false, 9_999, None, send(false)),
                (12_000, Some(10_000), 0, false, 12_000, None, wait(20_000)),
                (20_000, Some(10_000), 0, false, 20_000, None, send(false)),
                // An acknowledge: at once on a quiet stream, otherwise paced.
                (0, None, 1, false, 0, None, send(false)),
                (12_000, Some(10_000), 1, false, 12_000, None, send(false)),
                (12_009, Some(12_000), 1, false, 12_009, None, wait(12_010)),
                (12_010, Some(12_000), 1, false, 12_010, None, send(false)),
                // A position below the one sent is no news.
                (12_000, Some(10_000), -1, false, 12_000, None, wait(20_000)),
                // A request for a reply, the same.
                (0, None, 0, true, 0, None, send(false)),
                (12_000, Some(10_000), 0, true, 12_000, None, send(false)),
                (12_009, Some(12_000), 0, true, 12_009, None, wait(12_010)),
                (12_010, Some(12_000), 5, true, 12_010, None, send(false)),
                // Silence: asked at half, not before, and not twice.
                (29_999, Some(25_000), 0, false, 0, None, wait(30_000)),
                (30_000, Some(25_000), 0, false, 0, None, send(true)),
                (30_001, Some(30_000), 0, false, 0, Some(30_000), wait(40_000)),
                (40_000, Some(30_000), 0, false, 0, Some(30_000), send(false)),
                // The verdict, and the way to it.
                (50_001, Some(50_000), 0, false, 0, Some(30_000), wait(60_000)),
                (
                    60_000,
                    Some(50_000),
                    0,
                    false,
                    0,
                    Some(30_000),
                    Decision::GiveUp { silent_for: ms(60_000) },
                ),
                (60_000, Some(50_000), 9, true, 0, Some(30_000), Decision::GiveUp { silent_for: ms(60_000) }),
                // Asked late (the process did not run): the server gets its half of the limit to answer.
                (90_000, Some(10_000), 0, false, 0, None, send(true)),
                (100_000, Some(95_000), 0, false, 0, Some(90_000), wait(105_000)),
                (119_999, Some(119_990), 0, false, 0, Some(90_000), wait(120_000)),
                (
                    120_000,
                    Some(119_990),
                    0,
                    false,
                    0,
                    Some(90_000),
                    Decision::GiveUp { silent_for: ms(120_000) },
                ),
                // A byte since then ends the suspicion (the caller forgets that it asked).
                (60_000, Some(55_000), 0, false, 59_000, None, wait(65_000)),
            ],
            &INTERVALS,
        );
    }

    #[test]
    fn without_a_silence_limit_nobody_is_asked_or_given_up() {
        check(
            &[
                (50_000, Some(45_000), 0, false, 0, None, wait(55_000)),
                (900_000, Some(895_000), 0, false, 0, Some(30_000), wait(905_000)),
                (900_000, Some(890_000), 0, false, 0, None, send(false)),
            ],
            &Intervals { silence: None, ..INTERVALS },
        );
    }
}
