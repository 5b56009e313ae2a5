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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ErrorClass;

    #[test]
    fn records_come_back_as_they_were() {
        let mut buffer = BytesMut::new();
        let values = [
            json!({"id": 1, "note": "Grüße\n\u{0}", "list": [1.5, null, true]}),
            json!(null),
            json!("text"),
            json!(u64::MAX),
        ];
        for value in values {
            let mut record = ConnectRecord::new(Some(json!({"id": 1})), Some(value)).with_topic("orders");
            record.timestamp_ms = Some(-5);
            record.headers.push("h", None);
            let encoded = JsonConverter.encode(record.clone(), &mut buffer).unwrap();
            assert_eq!(encoded.key.as_deref(), Some(&br#"{"id":1}"#[..]));
            assert_eq!(JsonConverter.decode(encoded).unwrap(), record);
        }
    }

    #[test]
    fn a_tombstone_is_not_the_json_null() {
        let mut buffer = BytesMut::new();
        let tombstone = JsonConverter.encode(ConnectRecord::new(None, None), &mut buffer).unwrap();
        assert_eq!((tombstone.key.clone(), tombstone.value.clone()), (None, None));
        let null = JsonConverter.encode(ConnectRecord::new(None, Some(Value::Null)), &mut buffer).unwrap();
        assert_eq!(null.value.as_deref(), Some(&b"null"[..]));
        assert_eq!(JsonConverter.decode(tombstone).unwrap().value, None);
        assert_eq!(JsonConverter.decode(null).unwrap().value, Some(Value::Null));
    }

    #[test]
    fn bytes_that_are_not_json_are_a_data_error_without_their_content() {
        let record = ConnectRecord::new(None, Some(Bytes::from_static(b"secret stuff")));
        let error = JsonConverter.decode(record).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Data);
        assert!(error.chain().starts_with("the record's value is not JSON: "), "{}", error.chain());
        assert!(!error.chain().contains("secret"), "{}", error.chain());
    }

    #[test]
    fn one_buffer_serves_many_records() {
        let mut buffer = BytesMut::with_capacity(1 << 16);
        let encode = |n: u64, buffer: &mut BytesMut| {
            JsonConverter.encode(ConnectRecord::new(Some(json!(n)), Some(json!({"n": n}))), buffer).unwrap()
        };
        let records: Vec<_> = (0..100).map(|n| encode(n, &mut buffer)).collect();
        for (n, record) in records.iter().enumerate() {
            assert_eq!(record.value.as_deref(), Some(format!("{{\"n\":{n}}}").as_bytes()));
        }
    }
}
