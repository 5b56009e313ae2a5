//! The write side of the SPI.

mod line;
mod line_format;
mod null;

use async_trait::async_trait;

pub use self::line::LineSink;
pub use self::line_format::write_line;
pub use self::null::{NullCounts, NullSink};

use crate::{ConnectError, ConnectRecord, SourceOffset};

/// Writes batches of records and makes them durable.
///
/// Per batch the runtime calls [`begin`](Sink::begin), [`put`](Sink::put) once or more, then
/// [`commit`](Sink::commit), or [`abort`](Sink::abort) when the batch is given up. After an error the sink is
/// closed and a new one opened: an implementation need not be usable after it failed.
#[async_trait]
pub trait Sink<K, V>: Send + 'static {
    /// Starts a batch. The default does nothing.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when the destination refuses.
    async fn begin(&mut self) -> Result<(), ConnectError> {
        Ok(())
    }

    /// Takes the records in order and leaves `records` empty, its capacity kept. They need not be durable yet.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] of the data class for a record that can never be written.
    async fn put(&mut self, records: &mut Vec<ConnectRecord<K, V>>) -> Result<(), ConnectError>;

    /// Makes every record put since [`begin`](Sink::begin) durable. `offset` is the source's position behind the
    /// batch; a sink that [stores offsets](Sink::stores_offset) writes it atomically with the records.
    ///
    /// # Durability
    ///
    /// When it returns `Ok`, the records survive a crash of this process and of the destination, as far as
    /// the destination promises it (fsync, `acks=all`).
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when any record of the batch is not known to be durable.
    async fn commit(&mut self, offset: Option<&SourceOffset>) -> Result<(), ConnectError>;

    /// Gives up the records put since [`begin`](Sink::begin). The default does nothing, which is right for
    /// sinks without transactions: the batch will be written again.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when giving up failed.
    async fn abort(&mut self) -> Result<(), ConnectError> {
        Ok(())
    }

    /// Pushes buffered data out without a durability promise. The default does nothing.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when the destination cannot be written.
    async fn flush(&mut self) -> Result<(), ConnectError> {
        Ok(())
    }

    /// Releases resources. The default does nothing.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when the release failed.
    async fn close(&mut self) -> Result<(), ConnectError> {
        Ok(())
    }

    /// Whether each record must carry the source's position behind it in
    /// [`ConnectRecord::offset`]. Costs one [`checkpoint`](crate::Source::checkpoint) per record, and records
    /// are then polled one at a time; the default is no.
    fn wants_record_offsets(&self) -> bool {
        false
    }

    /// Whether [`commit`](Sink::commit) stores the offset itself, so that no checkpoint store is needed.
    fn stores_offset(&self) -> bool {
        false
    }

    /// The offset of the last committed batch, for a sink that stores offsets; `None` otherwise or at the
    /// first start.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when it cannot be read. That is never a fresh start.
    async fn restore_offset(&mut self) -> Result<Option<SourceOffset>, ConnectError> {
        Ok(None)
    }
}
