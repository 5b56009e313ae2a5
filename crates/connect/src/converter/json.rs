//! JSON values to JSON text and back, for sources that are written in terms of `serde_json`.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;

use super::Converter;
use crate::{ConnectError, ConnectRecord};

/// Writes keys and values as compact JSON. A record without a value is a tombstone and stays one; the JSON value
/// `null` is four bytes and no tombstone.
#[derive(Debug, Clone, Copy, Default)]
pub struct JsonConverter;

fn write(value: Option<&Value>, buffer: &mut BytesMut) -> Result<Option<Bytes>, ConnectError> {
    let Some(value) = value else { return Ok(None) };
    serde_json::to_writer(buffer.writer(), value)
        .map_err(|error| ConnectError::data("a value cannot be written as JSON").with_source(error))?;
    Ok(Some(buffer.split().freeze()))
}

fn read(bytes: Option<&Bytes>, part: &str) -> Result<Option<Value>, ConnectError> {
    let Some(bytes) = bytes else { return Ok(None) };
    let value = serde_json::from_slice(bytes).map_err(|error| {
        // The error's own text names line and column, and no content.
        ConnectError::data(format!("the record's {part} is not JSON")).with_source(error)
    })?;
    Ok(Some(value))
}

impl Converter<Value, Value> for JsonConverter {
    fn encode(
        &mut self,
        record: ConnectRecord<Value, Value>,
        buffer: &mut BytesMut,
    ) -> Result<ConnectRecord<Bytes, Bytes>, ConnectError> {
        let key = write(record.key.as_ref(), buffer)?;
        let value = write(record.value.as_ref(), buffer)?;
        Ok(record.with_key_value(key, value))
    }

    fn decode(
        &mut self,
        record: ConnectRecord<Bytes, Bytes>,
    ) -> Result<ConnectRecord<Value, Value>, ConnectError> {
        let key = read(record.key.as_ref(), "key")?;
        let value = read(record.value.as_ref(), "value")?;
        Ok(record.with_key_value(key, value))
    }
}
