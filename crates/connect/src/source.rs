//! The read side of the SPI: a stream of records with a position that can be saved and restored.

use async_trait::async_trait;

use crate::{ConnectError, ConnectRecord, SourceOffset};

/// Reads records out of an external system, such as the change stream of a database.
///
/// A source owns its read position. The host learns the position from [`checkpoint`](Source::checkpoint),
/// stores it once the records before it are durable, hands it back with [`seek`](Source::seek) after a
/// restart, and tells the source with [`acknowledge`](Source::acknowledge) that everything up to it may be
/// released. What is inside a [`SourceOffset`] is the source's business alone.
///
/// # Order of calls
///
/// 1. [`seek`](Source::seek) at most once, before the first poll, when an offset was stored;
/// 2. [`poll`](Source::poll) or [`poll_batch`](Source::poll_batch) any number of times;
/// 3. per batch: take [`checkpoint`](Source::checkpoint) right after its last record was polled, make the
///    batch durable, save the offset, then call [`acknowledge`](Source::acknowledge) with that same offset;
/// 4. [`close`](Source::close).
///
/// # Cancel safety
///
/// A host may not drop the future of `poll` or `poll_batch` unless the source documents that this loses
/// nothing, or is going to close the source and has not been given any record yet. The runtime does it in the second
/// case only: when a stop finds the very first poll still waiting, it waits two seconds for it, drops it and calls
/// [`close`](Source::close).
#[async_trait]
pub trait Source<K, V>: Send + Sync + 'static {
    /// Returns the next record and moves the read position behind it.
    ///
    /// `Ok(None)` means *caught up for now*: nothing is wrong and the stream has not ended, poll again later.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when reading failed. Records already returned stay valid; the position is unchanged.
    async fn poll(&mut self) -> Result<Option<ConnectRecord<K, V>>, ConnectError>;

    /// The position behind the last record that was polled; `None` while there is none to save (nothing
    /// polled yet and nothing restored).
    fn checkpoint(&self) -> Option<SourceOffset>;

    /// Restores a position that [`checkpoint`](Source::checkpoint) returned earlier, in this process or another.
    ///
    /// A source that is never sought starts from its configured default position. A position that is sought is
    /// durable and stored: the source may release what is before it without another
    /// [`acknowledge`](Source::acknowledge), which after a restart comes only with the next batch.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Offset`] when the position cannot be honoured: it belongs to another system, or what
    /// follows it is no longer there. The source then delivers nothing rather than something else.
    async fn seek(&mut self, offset: SourceOffset) -> Result<(), ConnectError>;

    /// Tells the source that every record up to `offset` is durable and that `offset` itself is stored.
    ///
    /// Called only after a non-empty batch was committed to the sink and the checkpoint store holds the
    /// offset, so a source may release what only a replay from before `offset` would need, for example
    /// write-ahead log held by a replication slot. The default does nothing.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when the external system could not be told. Nothing is lost by it: the next
    /// acknowledgement covers this one.
    async fn acknowledge(&mut self, _offset: &SourceOffset) -> Result<(), ConnectError> {
        Ok(())
    }

    /// Releases connections and other resources. The source is not used afterwards. The default does nothing.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when the release failed.
    async fn close(&mut self) -> Result<(), ConnectError> {
        Ok(())
    }

    /// Appends up to `limit` records to `out` and returns how many; `Ok(0)` means *caught up for now*.
    ///
    /// The position afterwards is the one behind the last appended record. The default calls
    /// [`poll`](Source::poll); a source that produces batches overrides it, so that one call serves many
    /// records.
    ///
    /// # Errors
    ///
    /// As [`poll`](Source::poll). Records appended before the error stay in `out` and count as polled: the
    /// host delivers them like any others.
    async fn poll_batch(
        &mut self,
        limit: usize,
        out: &mut Vec<ConnectRecord<K, V>>,
    ) -> Result<usize, ConnectError>
    where
        K: Send,
        V: Send,
    {
        let before = out.len();
        while out.len() - before < limit {
            match self.poll().await? {
                Some(record) => out.push(record),
                None => break,
            }
        }
        Ok(out.len() - before)
    }
}
