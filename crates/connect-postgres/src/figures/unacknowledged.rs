//! Commit times of what was read and is not acknowledged: one entry per batch, in the order of the stream.

use std::collections::VecDeque;

use crabka_pgrepl::Lsn;

use crate::position::Position;

/// More entries are never kept: on a stream of tiny batches the newest ones are merged, the oldest stay exact.
const ENTRIES_MAX: usize = 4_096;

/// Order of positions within one stream.
type Place = (Lsn, Option<(Lsn, u64)>);

fn place(position: Position) -> Place {
    (position.resume_lsn, position.open.map(|open| (open.commit_lsn, open.delivered)))
}

#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    /// Behind the last change of a batch, and the commit time of its first one.
    entries: VecDeque<(Place, i64)>,
}

impl Unacknowledged {
    pub(super) fn push(&mut self, behind: Position, commit_time_us: i64) {
        let full = self.entries.len() >= ENTRIES_MAX;
        match self.entries.back_mut() {
            Some((last, _)) if full => *last = place(behind),
            _ => self.entries.push_back((place(behind), commit_time_us)),
        }
    }

    pub(super) fn acknowledged(&mut self, position: Position) {
        let place = place(position);
        while self.entries.front().is_some_and(|(behind, _)| *behind <= place) {
            self.entries.pop_front();
        }
    }

    /// What was read behind `position` is read again.
    pub(super) fn restart_at(&mut self, position: Position) {
        let place = place(position);
        while self.entries.back().is_some_and(|(behind, _)| *behind > place) {
            self.entries.pop_back();
        }
    }

    pub(super) fn oldest(&self) -> Option<i64> {
        self.entries.front().map(|(_, commit_time_us)| *commit_time_us)
    }
}
