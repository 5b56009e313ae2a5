//! Typed records to bytes and back.

mod json;

use bytes::{Bytes, BytesMut};

pub use self::json::JsonConverter;

use crate::{ConnectError, ConnectRecord};

/// Turns typed records into bytes, and bytes into typed records where that is possible.
///
/// Works on whole records because an encoding may need headers besides key and value.
pub trait Converter<K, V>: Send + 'static {
    /// Encodes one record. Key and value are written to `buffer` and split off from it, so one allocation of
    /// the buffer serves many records.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] of the data class when a value has no form in this encoding.
    fn encode(
        &mut self,
        record: ConnectRecord<K, V>,
        buffer: &mut BytesMut,
    ) -> Result<ConnectRecord<Bytes, Bytes>, ConnectError>;

    /// Decodes one record. The default refuses: not every encoding can be read back.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] of the data class when the bytes are not of this encoding, of the configuration
    /// class when it is one-way.
    fn decode(&mut self, _record: ConnectRecord<Bytes, Bytes>) -> Result<ConnectRecord<K, V>, ConnectError> {
        Err(ConnectError::configuration("this converter only encodes"))
    }
}

/// Bytes as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct BytesConverter;

impl Converter<Bytes, Bytes> for BytesConverter {
    fn encode(
        &mut self,
        record: ConnectRecord<Bytes, Bytes>,
        _buffer: &mut BytesMut,
    ) -> Result<ConnectRecord<Bytes, Bytes>, ConnectError> {
        Ok(record)
    }

    fn decode(
        &mut self,
        record: ConnectRecord<Bytes, Bytes>,
    ) -> Result<ConnectRecord<Bytes, Bytes>, ConnectError> {
        Ok(record)
    }
}
