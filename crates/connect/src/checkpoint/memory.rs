//! Offsets in memory: for tests, and for runs that are meant to start afresh.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::CheckpointStore;
use crate::{ConnectError, SourceOffset};

/// Keeps offsets as long as one of its clones lives: clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryCheckpointStore {
    offsets: Arc<Mutex<BTreeMap<String, SourceOffset>>>,
}

impl MemoryCheckpointStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The offset saved last under this connector name.
    pub fn get(&self, connector: &str) -> Option<SourceOffset> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner).get(connector).cloned()
    }
}

#[async_trait]
impl CheckpointStore for MemoryCheckpointStore {
    async fn load(&mut self, connector: &str) -> Result<Option<SourceOffset>, ConnectError> {
        Ok(self.get(connector))
    }

    async fn save(&mut self, connector: &str, offset: &SourceOffset) -> Result<(), ConnectError> {
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        offsets.insert(connector.to_owned(), offset.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keeps_one_offset_per_connector_and_shares_it_between_clones() {
        let mut store = MemoryCheckpointStore::new();
        let at = |n: u64| SourceOffset::new([], [("n", n.into())]);
        assert_eq!(store.load("orders").await.unwrap(), None);
        store.save("orders", &at(1)).await.unwrap();
        store.save("orders", &at(2)).await.unwrap();
        store.clone().save("parts", &at(7)).await.unwrap();
        assert_eq!(store.load("orders").await.unwrap(), Some(at(2)));
        assert_eq!(store.get("parts"), Some(at(7)));
    }
}
