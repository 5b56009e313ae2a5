//! Counts records and forgets them: for measuring a source without a destination.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;

use super::Sink;
use crate::{ConnectError, ConnectRecord, SourceOffset};

#[derive(Debug, Default)]
struct Counters {
    records: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
}

/// What [`NullSink`]s took, readable while they run.
#[derive(Debug, Clone, Default)]
pub struct NullCounts(Arc<Counters>);

impl NullCounts {
    /// Records of committed batches.
    pub fn records(&self) -> u64 {
        self.0.records.load(Ordering::Relaxed)
    }

    /// Bytes of keys and values of committed batches.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Committed batches.
    pub fn batches(&self) -> u64 {
        self.0.batches.load(Ordering::Relaxed)
    }
}

/// Takes everything and keeps nothing but counts. Clones count together.
///
/// # Durability
///
/// None, by design: a committed record is gone.
#[derive(Debug, Default)]
pub struct NullSink {
    counts: NullCounts,
    records: u64,
    bytes: u64,
}

impl NullSink {
    /// A sink that has counted nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The counts, readable while the sink runs.
    pub fn counts(&self) -> NullCounts {
        self.counts.clone()
    }
}

impl Clone for NullSink {
    fn clone(&self) -> Self {
        Self { counts: self.counts.clone(), records: 0, bytes: 0 }
    }
}

#[async_trait]
impl Sink<Bytes, Bytes> for NullSink {
    async fn begin(&mut self) -> Result<(), ConnectError> {
        self.records = 0;
        self.bytes = 0;
        Ok(())
    }

    async fn put(&mut self, records: &mut Vec<ConnectRecord<Bytes, Bytes>>) -> Result<(), ConnectError> {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        for record in records.drain(..) {
            self.records += 1;
            self.bytes += u64::try_from(length(&record.key) + length(&record.value)).unwrap_or(u64::MAX);
        }
        Ok(())
    }

    async fn commit(&mut self, _offset: Option<&SourceOffset>) -> Result<(), ConnectError> {
        self.counts.0.records.fetch_add(self.records, Ordering::Relaxed);
        self.counts.0.bytes.fetch_add(self.bytes, Ordering::Relaxed);
        self.counts.0.batches.fetch_add(1, Ordering::Relaxed);
        self.records = 0;
        self.bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn counts_committed_batches_only() {
        let sink = NullSink::new();
        let counts = sink.counts();
        let mut sink: Box<dyn Sink<Bytes, Bytes>> = Box::new(sink);
        let record = || ConnectRecord::new(Some(Bytes::from_static(b"1")), Some(Bytes::from_static(b"abc")));
        for commit in [true, false, true] {
            sink.begin().await.unwrap();
            let mut records = vec![record(), record()];
            sink.put(&mut records).await.unwrap();
            assert!(records.is_empty());
            if commit {
                sink.commit(None).await.unwrap();
            } else {
                sink.abort().await.unwrap();
            }
        }
        assert_eq!((counts.records(), counts.bytes(), counts.batches()), (4, 16, 2));
    }
}
