//! Counts of a run for metrics: plain atomics, touched once per batch and never per record, read from anywhere.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

use crate::{ConnectRecord, ErrorClass};

/// Upper bounds of the buckets of [`Latency`], milliseconds; what is above the last counts in a bucket of its own.
pub const LATENCY_BOUNDS_MS: [u64; 16] =
    [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000];

/// Every class, in the order in which its errors are counted.
const CLASSES: [ErrorClass; 6] = [
    ErrorClass::Transient,
    ErrorClass::Configuration,
    ErrorClass::Data,
    ErrorClass::LostPosition,
    ErrorClass::Fenced,
    ErrorClass::Bug,
];

/// Counts of a run, from its start on. They only grow.
#[derive(Debug, Default)]
pub struct RunFigures {
    batches_durable: AtomicU64,
    batches_failed: AtomicU64,
    batches_retried: AtomicU64,
    retry_is_due: AtomicBool,
    errors: [AtomicU64; CLASSES.len()],
    buckets: [AtomicU64; LATENCY_BOUNDS_MS.len() + 1],
    latency_sum_ms: AtomicU64,
}

/// How long records took from the commit in their database until their batch was durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latency {
    /// Records by bucket, not cumulative: one more than there are [`LATENCY_BOUNDS_MS`].
    pub buckets: [u64; LATENCY_BOUNDS_MS.len() + 1],
    /// Sum over the records, milliseconds.
    pub sum_ms: u64,
}

impl RunFigures {
    /// Batches that became durable in the sink.
    pub fn batches_durable(&self) -> u64 {
        self.batches_durable.load(Relaxed)
    }

    /// Batches that the sink or the checkpoint store failed on.
    pub fn batches_failed(&self) -> u64 {
        self.batches_failed.load(Relaxed)
    }

    /// Batches that were sent next after a failed one, and so repeat its records.
    pub fn batches_retried(&self) -> u64 {
        self.batches_retried.load(Relaxed)
    }

    /// Errors of each class: those that were retried, and the one that ended the run.
    pub fn errors(&self) -> impl Iterator<Item = (ErrorClass, u64)> {
        CLASSES.into_iter().zip(&self.errors).map(|(class, count)| (class, count.load(Relaxed)))
    }

    /// Commit to durable, of all records that know their commit time.
    pub fn latency(&self) -> Latency {
        Latency {
            buckets: std::array::from_fn(|index| {
                self.buckets.get(index).map_or(0, |bucket| bucket.load(Relaxed))
            }),
            sum_ms: self.latency_sum_ms.load(Relaxed),
        }
    }

    pub(super) fn batch_sent(&self) {
        if self.retry_is_due.swap(false, Relaxed) {
            self.batches_retried.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn batch_failed(&self) {
        self.batches_failed.fetch_add(1, Relaxed);
        self.retry_is_due.store(true, Relaxed);
    }

    pub(super) fn batch_durable(&self, commits: &CommitTimes, now_ms: i64) {
        self.batches_durable.fetch_add(1, Relaxed);
        for &(commit_ms, records) in &commits.runs {
            // The server's clock may be ahead of ours.
            let latency_ms = u64::try_from(now_ms.saturating_sub(commit_ms)).unwrap_or(0);
            let index = LATENCY_BOUNDS_MS.partition_point(|bound| *bound < latency_ms);
            if let Some(bucket) = self.buckets.get(index) {
                bucket.fetch_add(records, Relaxed);
            }
            self.latency_sum_ms.fetch_add(latency_ms.saturating_mul(records), Relaxed);
        }
    }

    pub(super) fn error(&self, class: ErrorClass) {
        if let Some(index) = CLASSES.iter().position(|known| *known == class)
            && let Some(count) = self.errors.get(index)
        {
            count.fetch_add(1, Relaxed);
        }
    }
}

/// The commit times of a batch, as runs of records with the same one. Its memory is used again for the next batch.
#[derive(Debug, Default)]
pub(super) struct CommitTimes {
    runs: Vec<(i64, u64)>,
}

impl CommitTimes {
    /// Forgets those of the batch before. Records without a time are left out: a tombstone repeats its delete, and a
    /// heartbeat has no commit.
    pub(super) fn take_from(&mut self, records: &[ConnectRecord<Bytes, Bytes>]) {
        self.runs.clear();
        for commit_ms in records.iter().filter_map(|record| record.timestamp_ms) {
            match self.runs.last_mut() {
                Some((known, records)) if *known == commit_ms => *records += 1,
                _ => self.runs.push((commit_ms, 1)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_in_the_bucket_that_holds_their_latency() {
        let mut commits = CommitTimes::default();
        let at = |timestamp_ms| ConnectRecord { timestamp_ms, ..ConnectRecord::new(None, None) };
        let times = [Some(1_000), Some(1_000), None, Some(1_000), Some(999), Some(2_000), Some(-1_000_000)];
        commits.take_from(&times.map(at));
        assert_eq!(commits.runs, [(1_000, 3), (999, 1), (2_000, 1), (-1_000_000, 1)]);
        let figures = RunFigures::default();
        figures.batch_durable(&commits, 1_001);
        let latency = figures.latency();
        // Three of 1 ms, one of 2 ms, one from the future, one beyond every bound.
        assert_eq!(latency.buckets[..3], [4, 1, 0]);
        assert_eq!(latency.buckets[LATENCY_BOUNDS_MS.len()], 1);
        assert_eq!(latency.buckets.iter().sum::<u64>(), 6);
        assert_eq!(latency.sum_ms, 3 + 2 + 1_001_001);
        commits.take_from(&[]);
        assert!(commits.runs.is_empty());
    }

    #[test]
    fn every_class_is_counted_apart() {
        let figures = RunFigures::default();
        for (times, class) in CLASSES.into_iter().enumerate() {
            (0..=times).for_each(|_| figures.error(class));
        }
        let counts: Vec<u64> = figures.errors().map(|(_, count)| count).collect();
        assert_eq!(counts, [1, 2, 3, 4, 5, 6]);
    }
}
