//! The task that owns sink and store: makes one batch after the other durable, then saves its offset.
//!
//! It takes a batch only when the one before is through, and ends at the first error: a later batch can never cover a
//! failed one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, mpsc};
use tokio::task::{JoinError, JoinHandle};

use super::figures::CommitTimes;
use super::observer::{Observer, Point, reached};
use super::status::StatusWriter;
use crate::{CheckpointStore, ConnectError, ConnectRecord, Part, Sink, SourceOffset};

/// Shared between attempts; within an attempt only the committer uses it.
pub(super) type SharedStore = Arc<Mutex<Box<dyn CheckpointStore>>>;

/// Records on their way to the sink, and the position behind the last of them.
pub(super) struct Batch {
    pub(super) records: Vec<ConnectRecord<Bytes, Bytes>>,
    pub(super) count: usize,
    pub(super) bytes: usize,
    pub(super) offset: Arc<SourceOffset>,
}

/// Why a batch was not committed.
pub(super) struct CommitFailure {
    pub(super) error: ConnectError,
    /// Whether the store may hold the batch's offset although saving it failed.
    pub(super) position_unknown: bool,
}

pub(super) type Outcome = Result<Batch, CommitFailure>;

/// What the task works with.
pub(super) struct CommitTask {
    pub(super) connector: Arc<str>,
    pub(super) sink: Box<dyn Sink<Bytes, Bytes>>,
    /// `None` when the sink stores the offset itself.
    pub(super) store: Option<SharedStore>,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) status: StatusWriter,
    pub(super) commit_times: CommitTimes,
}

impl CommitTask {
    async fn run(mut self, mut batches: mpsc::Receiver<Batch>, outcomes: mpsc::Sender<Outcome>) {
        while let Some(batch) = batches.recv().await {
            let outcome = self.commit(batch).await;
            let failed = outcome.is_err();
            if outcomes.send(outcome).await.is_err() {
                break;
            }
            if failed {
                if let Err(error) = self.sink.abort().await {
                    tracing::debug!(connector = %self.connector, "giving up the batch failed: {}", error.chain());
                }
                break;
            }
        }
        if let Err(error) = self.sink.close().await {
            tracing::warn!(connector = %self.connector, "closing the sink failed: {}", error.chain());
        }
    }

    async fn commit(&mut self, mut batch: Batch) -> Outcome {
        let failed = |position_unknown| {
            move |error: ConnectError| CommitFailure { error: error.in_part(Part::Sink), position_unknown }
        };
        // The sink takes the records out of the batch.
        self.commit_times.take_from(&batch.records);
        self.sink.begin().await.map_err(failed(false))?;
        reached(self.observer.as_ref(), Point::Begun).await;
        self.sink.put(&mut batch.records).await.map_err(failed(false))?;
        reached(self.observer.as_ref(), Point::Put).await;
        // A sink that stores offsets may have stored this one although its commit failed.
        self.sink.commit(Some(&batch.offset)).await.map_err(failed(self.store.is_none()))?;
        self.status.delivered(batch.count, &batch.offset, &self.commit_times);
        reached(self.observer.as_ref(), Point::Durable).await;
        if let Some(store) = &self.store {
            let saved = store.lock().await.save(&self.connector, &batch.offset).await;
            saved
                .map_err(|error| error.context("saving the checkpoint").in_part(Part::Checkpoint))
                .map_err(failed(true))?;
        }
        self.status.checkpointed(batch.count, batch.bytes, &batch.offset);
        reached(self.observer.as_ref(), Point::Checkpointed).await;
        batch.records.clear();
        Ok(batch)
    }
}

/// The runtime's end: at most one batch is on the way at a time.
pub(super) struct Committer {
    batches: Option<mpsc::Sender<Batch>>,
    outcomes: mpsc::Receiver<Outcome>,
    task: Option<JoinHandle<()>>,
}

impl Committer {
    pub(super) fn spawn(task: CommitTask) -> Self {
        let (batch_sender, batch_receiver) = mpsc::channel(1);
        let (outcome_sender, outcome_receiver) = mpsc::channel(1);
        let task = tokio::spawn(task.run(batch_receiver, outcome_sender));
        Self { batches: Some(batch_sender), outcomes: outcome_receiver, task: Some(task) }
    }

    /// Hands over a batch. The caller has no other batch on the way, so there is room; when the task is gone, the
    /// next [`outcome`](Self::outcome) tells why.
    pub(super) fn send(&mut self, batch: Batch) {
        if let Some(batches) = &self.batches {
            let _task_is_gone = batches.try_send(batch);
        }
    }

    /// The outcome of the batch on the way.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no outcome.
    pub(super) async fn outcome(&mut self) -> Outcome {
        match self.outcomes.recv().await {
            Some(outcome) => outcome,
            None => Err(CommitFailure { error: self.cause_of_death().await, position_unknown: true }),
        }
    }

    /// The outcome of the batch on the way, if it is there already.
    pub(super) fn ready_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.try_recv().ok()
    }

    async fn cause_of_death(&mut self) -> ConnectError {
        let joined = match &mut self.task {
            Some(task) => task.await,
            None => Ok(()),
        };
        self.task = None;
        match joined {
            Ok(()) => ConnectError::bug("the committer ended without an outcome"),
            Err(error) => task_error(error),
        }
    }

    /// Lets the task close the sink. After `limit` it is dropped instead.
    pub(super) async fn close(mut self, limit: Duration) -> Result<(), ConnectError> {
        self.batches = None;
        self.outcomes.close();
        let Some(task) = &mut self.task else { return Ok(()) };
        match tokio::time::timeout(limit, task).await {
            Ok(joined) => {
                self.task = None;
                joined.map_err(task_error)
            }
            Err(_elapsed) => Err(ConnectError::transient(format!("the sink did not close within {limit:?}"))),
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

fn task_error(error: JoinError) -> ConnectError {
    match error.try_into_panic() {
        Ok(panic) => panic_error("sink or checkpoint store", &*panic),
        Err(error) => ConnectError::bug("the committer was cancelled").with_source(error),
    }
}

/// A panic as an error of the bug class.
pub(super) fn panic_error(part: &str, panic: &(dyn std::any::Any + Send)) -> ConnectError {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    ConnectError::bug(format!("{part} panicked: {text}"))
}
