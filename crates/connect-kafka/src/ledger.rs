//! The delivery reports of one batch: counted where librdkafka reports them, awaited where the batch commits.
//!
//! One thread reports (the producer's polling thread), one task waits (the sink's). Nothing is allocated for a
//! record that was delivered.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::OwnedMessage;
use tokio::sync::Notify;

/// A record that was not delivered.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: RDKafkaErrorCode,
    pub(crate) topic: String,
    pub(crate) partition: i32,
}

/// A record that its topic refuses, with everything that a dead letter needs.
#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) code: RDKafkaErrorCode,
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) message: OwnedMessage,
}

/// No report came for the whole of the time allowed.
#[derive(Debug)]
pub(crate) struct Stalled {
    pub(crate) outstanding: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    outstanding: AtomicU64,
    reported: AtomicU64,
    delivered: AtomicU64,
    failed: AtomicU64,
    /// The waiter is woken when exactly this many records are outstanding. As only the waiter adds records,
    /// the count passes each value downwards once while it waits.
    wake_at: AtomicU64,
    wake: Notify,
    first_failure: Mutex<Option<Failure>>,
    rejections: Mutex<Vec<Rejection>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock means that a reporting thread panicked between two assignments: the data is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// One more record is about to be handed to librdkafka.
    pub(crate) fn sent(&self) {
        self.outstanding.fetch_add(1, SeqCst);
    }

    /// The record was not taken after all.
    pub(crate) fn unsent(&self) {
        self.outstanding.fetch_sub(1, SeqCst);
    }

    pub(crate) fn report_delivered(&self) {
        self.delivered.fetch_add(1, SeqCst);
        self.report();
    }

    pub(crate) fn report_failed(&self, failure: impl FnOnce() -> Failure) {
        if self.failed.fetch_add(1, SeqCst) == 0 {
            *locked(&self.first_failure) = Some(failure());
        }
        self.report();
    }

    pub(crate) fn report_rejected(&self, rejection: Rejection) {
        locked(&self.rejections).push(rejection);
        self.report();
    }

    fn report(&self) {
        self.reported.fetch_add(1, SeqCst);
        let outstanding = self.outstanding.fetch_sub(1, SeqCst) - 1;
        if outstanding == self.wake_at.load(SeqCst) {
            self.wake.notify_one();
        }
    }

    /// Rejects a record that was never handed to librdkafka.
    pub(crate) fn reject_unsent(&self, rejection: Rejection) {
        locked(&self.rejections).push(rejection);
    }

    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding.load(SeqCst)
    }

    /// Records delivered since this was asked last.
    pub(crate) fn take_delivered(&self) -> u64 {
        self.delivered.swap(0, SeqCst)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(SeqCst) > 0
    }

    /// The first failure and the number of failures.
    pub(crate) fn take_failure(&self) -> Option<(Failure, u64)> {
        let failure = locked(&self.first_failure).take()?;
        Some((failure, self.failed.swap(0, SeqCst)))
    }

    pub(crate) fn take_rejections(&self) -> Vec<Rejection> {
        std::mem::take(&mut *locked(&self.rejections))
    }

    /// Waits until at most `target` records are outstanding.
    ///
    /// # Errors
    ///
    /// [`Stalled`] when no report at all came for `stall`.
    ///
    /// # Cancel safety
    ///
    /// Dropping it loses nothing: reports are counted without a waiter.
    pub(crate) async fn wait(&self, target: u64, stall: Duration) -> Result<(), Stalled> {
        self.wake_at.store(target, SeqCst);
        let mut seen = self.reported.load(SeqCst);
        while self.outstanding() > target {
            if tokio::time::timeout(stall, self.wake.notified()).await.is_ok() {
                continue;
            }
            let now = self.reported.load(SeqCst);
            if now == seen && self.outstanding() > target {
                return Err(Stalled { outstanding: self.outstanding() });
            }
            seen = now;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn the_last_report_wakes_the_waiter() {
        let ledger = Arc::new(Ledger::default());
        for _ in 0..1_000 {
            ledger.sent();
        }
        let reporter = {
            let ledger = Arc::clone(&ledger);
            std::thread::spawn(move || (0..1_000).for_each(|_| ledger.report_delivered()))
        };
        ledger.wait(0, LONG).await.unwrap();
        reporter.join().unwrap();
        assert_eq!(ledger.take_delivered(), 1_000);
    }

    #[tokio::test]
    async fn waiting_for_room_ends_before_the_last_report() {
        let ledger = Arc::new(Ledger::default());
        for _ in 0..10 {
            ledger.sent();
        }
        let waiter = {
            let ledger = Arc::clone(&ledger);
            tokio::spawn(async move { ledger.wait(7, LONG).await })
        };
        tokio::task::yield_now().await;
        (0..3).for_each(|_| ledger.report_delivered());
        waiter.await.unwrap().unwrap();
        assert_eq!(ledger.outstanding(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_a_stall_and_progress_is_not() {
        let ledger = Arc::new(Ledger::default());
        for _ in 0..3 {
            ledger.sent();
        }
        let reporter = Arc::clone(&ledger);
        let progress = tokio::spawn(async move {
            for _ in 0..2 {
                tokio::time::sleep(Duration::from_secs(8)).await;
                reporter.report_delivered();
            }
        });
        let stalled = ledger.wait(0, Duration::from_secs(10)).await.unwrap_err();
        assert_eq!(stalled.outstanding, 1, "the two reports in time were waited for");
        progress.await.unwrap();
    }

    #[test]
    fn the_first_failure_is_kept_and_all_are_counted() {
        let ledger = Ledger::default();
        for (partition, code) in
            [RDKafkaErrorCode::TopicAuthorizationFailed, RDKafkaErrorCode::Unknown].into_iter().enumerate()
        {
            ledger.sent();
            let partition = i32::try_from(partition).unwrap();
            ledger.report_failed(|| Failure { code, topic: "t".into(), partition });
        }
        let (failure, count) = ledger.take_failure().unwrap();
        assert_eq!(
            (failure.code, failure.partition, count),
            (RDKafkaErrorCode::TopicAuthorizationFailed, 0, 2)
        );
        assert!(!ledger.has_failed());
    }
}
