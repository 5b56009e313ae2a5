//! When an idle position becomes a heartbeat record.

use std::time::Duration;

use crabka_pgrepl::Lsn;
use tokio::time::Instant;

use crate::assemble::Assembler;

/// At most ten heartbeats a second, however often the server asks.
const ASKED_INTERVAL: Duration = Duration::from_millis(100);

/// Decides when the next heartbeat is due.
#[derive(Debug)]
pub(crate) struct HeartbeatTimer {
    interval: Duration,
    last: Instant,
    asked: bool,
}

impl HeartbeatTimer {
    pub(crate) fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, last: now, asked: false }
    }

    /// The server asked for a reply: it may be shutting down, and then waits for a position past its last record.
    pub(crate) fn asked(&mut self) {
        self.asked = true;
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
