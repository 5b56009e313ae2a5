//! Where offsets are kept between runs.

mod file;
mod memory;

use async_trait::async_trait;

pub use self::file::FileCheckpointStore;
pub use self::memory::MemoryCheckpointStore;

use crate::{ConnectError, SourceOffset};

/// Keeps one [`SourceOffset`] per connector name.
#[async_trait]
pub trait CheckpointStore: Send + 'static {
    /// The offset saved last under this connector name; `None` only when none was ever saved.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when the store cannot be read, or holds something that is not an offset of this
    /// connector. A torn or foreign entry is an error, never a fresh start.
    async fn load(&mut self, connector: &str) -> Result<Option<SourceOffset>, ConnectError>;

    /// Replaces the offset of this connector.
    ///
    /// # Durability
    ///
    /// When it returns `Ok`, a later [`load`](CheckpointStore::load) returns this offset or a newer one, also
    /// after a crash. When it fails, either the old or the new offset is stored.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when it is not known to be stored.
    async fn save(&mut self, connector: &str, offset: &SourceOffset) -> Result<(), ConnectError>;
}
