//! What the session counts while it reads, told to the figures once per read.

use std::sync::Arc;

use crabka_pgrepl::Lsn;
use tokio::time::Instant;

use crate::assemble::Assembler;
use crate::figures::{Reading, SourceFigures, StreamState, Tally};

#[derive(Debug)]
pub(super) struct Meter {
    pub(super) figures: Arc<SourceFigures>,
    pub(super) tally: Tally,
    /// Bytes of the transaction that is being read.
    transaction_bytes: u64,
    ended: bool,
}

impl Drop for Meter {
    /// A session that panics has ended, too.
    fn drop(&mut self) {
        if !self.ended {
            self.figures.session_ends(StreamState::Closed);
        }
    }
}

impl Meter {
    pub(super) fn new(figures: Arc<SourceFigures>) -> Self {
        Self { figures, tally: Tally::default(), transaction_bytes: 0, ended: false }
    }

    pub(super) fn payload(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.tally.pgoutput_bytes = self.tally.pgoutput_bytes.saturating_add(bytes);
        self.transaction_bytes = self.transaction_bytes.saturating_add(bytes);
    }

    pub(super) fn begin(&mut self) {
        self.transaction_bytes = 0;
    }

    pub(super) fn commit(&mut self) {
        self.tally.transactions += 1;
    }

    pub(super) fn ended(&mut self, state: StreamState) {
        self.ended = true;
        self.figures.session_ends(state);
    }

    pub(super) fn report(&mut self, received: Lsn, assembler: &Assembler, now: Instant) {
        self.tally.data = !assembler.batch().items.is_empty();
        let reading = assembler.reading().map(|(xid, changes, commit_time_us)| Reading {
            xid,
            changes,
            bytes: self.transaction_bytes,
            commit_time_us,
        });
        self.figures.read(&mut self.tally, received, reading, now);
    }
}
