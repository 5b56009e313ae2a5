//! When an idle position becomes a heartbeat record.

use std::time::Duration;

use crabka_pgrepl::Lsn;
use tokio::time::Instant;

use crate::assemble::Assembler;

/// At most ten heartbeats a second, however often the server asks.
const ASKED_INTERVAL: Duration = Duration::from_millis(100);

/// Questions further apart than this do not belong to one shutdown: then the server asks thousands of times a second.
const ASKING_GAP: Duration = Duration::from_secs(1);

/// Decides when the next heartbeat is due.
#[derive(Debug)]
pub(crate) struct HeartbeatTimer {
    interval: Duration,
    last: Instant,
    asked: bool,
    /// Since when the server asks without a pause, and when it did so last.
    asking: Option<(Instant, Instant)>,
}

impl HeartbeatTimer {
    pub(crate) fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, last: now, asked: false, asking: None }
    }

    /// The server asked for a reply: it may be shutting down, and then waits for a position past its last record.
    pub(crate) fn asked(&mut self, now: Instant) {
        self.asked = true;
        self.asking = match self.asking {
            Some((since, last)) if now.duration_since(last) <= ASKING_GAP => Some((since, now)),
            _ => Some((now, now)),
        };
    }

    /// Whether the server has been asking for so long, although each question is answered, and asks still.
    pub(crate) fn asked_in_vain_for(&self, patience: Duration, now: Instant) -> bool {
        self.asking.is_some_and(|(since, last)| {
            now.duration_since(last) <= ASKING_GAP && last.duration_since(since) >= patience
        })
    }

    pub(crate) fn sent(&mut self, now: Instant) {
        self.last = now;
        self.asked = false;
    }

    /// When the next heartbeat is due; `None` while there is no idle position to tell.
    ///
    /// With data in flight a heartbeat would only queue up behind it, so a question of the server is answered at once
    /// only when everything emitted is acknowledged.
    pub(crate) fn next(&self, assembler: &Assembler, acknowledged: Lsn) -> Option<Instant> {
        if !assembler.has_idle_progress() {
            return None;
        }
        let emitted = assembler.emitted();
        let nothing_in_flight = emitted.open.is_none() && acknowledged >= emitted.resume_lsn;
        let wait =
            if self.asked && nothing_in_flight { ASKED_INTERVAL.min(self.interval) } else { self.interval };
        Some(self.last + wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_server_that_asks_without_a_pause_is_shutting_down() {
        let start = Instant::now();
        let mut timer = HeartbeatTimer::new(Duration::from_secs(5), start);
        let at = |ms: u64| start + Duration::from_millis(ms);
        for ms in (0..9_900).step_by(100) {
            timer.asked(at(ms));
            assert!(!timer.asked_in_vain_for(PATIENCE, at(ms)), "{ms}");
        }
        timer.asked(at(10_000));
        assert!(timer.asked_in_vain_for(PATIENCE, at(10_000)));
        // It got what it wanted.
        assert!(!timer.asked_in_vain_for(PATIENCE, at(12_000)));
        // Questions of an idle server, half a time-out apart, are no shutdown.
        for second in (20..200).step_by(5) {
            timer.asked(at(second * 1000));
            assert!(!timer.asked_in_vain_for(PATIENCE, at(second * 1000)), "{second}");
        }
    }
}
