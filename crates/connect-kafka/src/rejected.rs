//! A record that its topic refuses: told in an error that names it without its values, or sent to the
//! dead-letter topic with all its bytes.

use std::sync::Arc;

use bytes::Bytes;
use crabka_connect::{ConnectError, ConnectRecord, Headers, SourceOffset};
use rdkafka::Message;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Headers as _, OwnedMessage};

use crate::classify;
use crate::ledger::Rejection;
use crate::producer::message_bytes;

/// Headers that a dead letter has behind the record's own.
pub mod header {
    /// [`ErrorClass`](crabka_connect::ErrorClass) by name, as `data`.
    pub const ERROR_CLASS: &str = "crabka.error.class";
    /// What the broker said.
    pub const ERROR: &str = "crabka.error";
    /// The topic that refused the record.
    pub const TOPIC: &str = "crabka.topic";
    /// Bytes of key, value and headers.
    pub const BYTES: &str = "crabka.bytes";
    /// The time that the record had in its own topic, in ms since 1970 in decimal; missing when it was to be the time
    /// of production. The letter's own time is that of its production: by an old one the broker's retention would
    /// delete the letter before anybody could look at it.
    pub const TIMESTAMP: &str = "crabka.timestamp";
    /// The source's position behind the batch of the record, as JSON; missing when it is not known.
    pub const OFFSET: &str = "crabka.source.offset";
}

/// The names of the columns in a JSON key, for an error message; values stay out of it.
fn key_columns(key: Option<&[u8]>) -> String {
    let Some(key) = key else { return "none".to_owned() };
    let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(key) else {
        return "not a json object".to_owned();
    };
    // With a schema in the key, the columns are one level down.
    let columns = match (object.get("schema"), object.get("payload")) {
        (Some(_), Some(serde_json::Value::Object(payload))) => payload,
        _ => &object,
    };
    columns.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The error of a rejected record.
///
/// `limit`: of the topic, if known; `batch_bytes_max`: what a batch of several records had at most.
pub(crate) fn error(rejection: &Rejection, limit: Option<usize>, batch_bytes_max: usize) -> ConnectError {
    let message = &rejection.message;
    let topic = message.topic();
    let bytes = message_bytes(message);
    if rejection.code == RDKafkaErrorCode::TopicAuthorizationFailed {
        return classify::with_code(
            rejection.code,
            Some(topic),
            format_args!("kafka topic {topic} may not be written"),
        );
    }
    if was_not_alone(bytes, limit, batch_bytes_max) {
        return blamed_on_batch(topic, limit);
    }
    let shown = limit.map_or_else(|| "not readable".to_owned(), |limit| limit.to_string());
    ConnectError::data(format!(
        "record is over the size limit of kafka topic {topic}: key columns: {}; key bytes: {}; record bytes: {bytes}; \
         limit: {shown}",
        key_columns(message.key()),
        message.key().map_or(0, <[u8]>::len),
    ))
    .with_fix(format!(
        "kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic {topic} --add-config max.message.bytes={} (and \
         raise record_bytes_max if it is lower), or set on_too_large = \"dead_letter\"",
        bytes.saturating_add(bytes / 10).saturating_add(1_024)
    ))
}

/// More than what a batch of one record has around key, value and headers.
const FRAMING_BYTES_MAX: usize = 2_048;

/// The error of a record that a compacted topic cannot take. A broker would refuse its whole batch.
pub(crate) fn without_key(topic: &str) -> ConnectError {
    ConnectError::data(format!("record without a key for a compacted topic: {topic}")).with_fix(format!(
        "give the table a primary key or choose key columns, or kafka-configs.sh --bootstrap-server HOST:PORT --alter \
         --topic {topic} --add-config cleanup.policy=[delete]"
    ))
}

/// Whether the record was so small that it shared its batch: then it is the batch that was too large.
fn was_not_alone(bytes: usize, limit: Option<usize>, batch_bytes_max: usize) -> bool {
    bytes.saturating_add(FRAMING_BYTES_MAX) <= limit.unwrap_or(batch_bytes_max).min(batch_bytes_max)
}

fn blamed_on_batch(topic: &str, limit: Option<usize>) -> ConnectError {
    match limit {
        // The limit was lowered while we ran: a new producer reads it again.
        Some(limit) => ConnectError::transient(format!(
            "kafka topic {topic} refused a batch below its size limit, which may have changed: {limit}"
        )),
        None => ConnectError::configuration(format!(
            "kafka topic {topic} refused a batch for its size, and its size limit cannot be read"
        ))
        .with_fix(format!(
            "kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation DescribeConfigs \
             --topic {topic}, or set the property batch.size below the topic's max.message.bytes"
        )),
    }
}

/// The dead letter of a rejected record, or the error when it is not the record that is to be blamed.
pub(crate) fn dead_letter(
    rejection: &Rejection,
    dead_letter_topic: &Arc<str>,
    limit: Option<usize>,
    batch_bytes_max: usize,
    offset: Option<&SourceOffset>,
) -> Result<ConnectRecord<Bytes, Bytes>, ConnectError> {
    let message = &rejection.message;
    let error = error(rejection, limit, batch_bytes_max);
    let by_size = rejection.code != RDKafkaErrorCode::TopicAuthorizationFailed;
    if by_size && was_not_alone(message_bytes(message), limit, batch_bytes_max) {
        return Err(error);
    }
    let mut headers = headers_of(message);
    let mut add = |name: &str, value: String| headers.push(name, Some(Bytes::from(value)));
    add(header::ERROR_CLASS, error.class().as_str().to_owned());
    add(header::ERROR, error.message().to_owned());
    add(header::TOPIC, message.topic().to_owned());
    add(header::BYTES, message_bytes(message).to_string());
    if let Some(timestamp_ms) = rejection.timestamp_ms {
        add(header::TIMESTAMP, timestamp_ms.to_string());
    }
    if let Some(offset) = offset {
        add(header::OFFSET, offset.to_json());
    }
    let mut letter = ConnectRecord::new(
        message.key().map(Bytes::copy_from_slice),
        message.payload().map(Bytes::copy_from_slice),
    );
    letter.topic = Some(Arc::clone(dead_letter_topic));
    letter.headers = headers;
    Ok(letter)
}

fn headers_of(message: &OwnedMessage) -> Headers {
    let mut headers = Headers::new();
    for header in message.headers().into_iter().flat_map(|headers| headers.iter()) {
        headers.push(header.key, header.value.map(Bytes::copy_from_slice));
    }
    headers
}

#[cfg(test)]
mod tests {
    use crabka_connect::ErrorClass;
    use rdkafka::Timestamp;

    use super::*;

    fn rejection(value_bytes: usize) -> Rejection {
        let key = br#"{"id":4711,"region":"secret-key-value"}"#.to_vec();
        Rejection {
            code: RDKafkaErrorCode::MessageSizeTooLarge,
            timestamp_ms: Some(5),
            message: OwnedMessage::new(
                Some(vec![b'x'; value_bytes]),
                Some(key),
                "shop.public.orders".into(),
                Timestamp::NotAvailable,
                -1,
                -1,
                None,
            ),
        }
    }

    #[test]
    fn the_error_names_columns_sizes_and_limit_but_no_values() {
        let error = error(&rejection(2_000_000), Some(1_048_588), 1_000_000);
        assert_eq!(error.class(), ErrorClass::Data);
        let text = error.to_string();
        for part in ["shop.public.orders", "id, region", "2000039", "1048588", "on_too_large"] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
        assert!(!text.contains("4711") && !text.contains("secret-key-value"), "{text}");
    }

    #[test]
    fn a_small_record_is_not_blamed_for_its_batch() {
        let topic: Arc<str> = "dead".into();
        let changed = error(&rejection(10), Some(50_000), 50_000);
        assert_eq!(changed.class(), ErrorClass::Transient);
        let at_the_limit = error(&rejection(49_900), Some(50_000), 50_000);
        assert_eq!(at_the_limit.class(), ErrorClass::Data, "alone in its batch, and over the limit with it");
        let unreadable = dead_letter(&rejection(10), &topic, None, 1_000_000, None).unwrap_err();
        assert_eq!(unreadable.class(), ErrorClass::Configuration);
    }

    #[test]
    fn a_dead_letter_is_the_record_and_its_reason() {
        let rejection = rejection(2_000_000);
        let offset = SourceOffset::default();
        let letter = dead_letter(&rejection, &"dead".into(), None, 1_000_000, Some(&offset)).unwrap();
        assert_eq!(letter.value.as_deref(), rejection.message.payload());
        assert_eq!(letter.key.as_deref(), rejection.message.key());
        assert_eq!(letter.timestamp_ms, None, "not older to the broker than it is");
        let value = |name| letter.headers.last(name).and_then(|header| header.value.clone()).unwrap();
        assert_eq!(value(header::ERROR_CLASS), "data");
        assert_eq!(value(header::TOPIC), "shop.public.orders");
        assert_eq!(value(header::TIMESTAMP), "5");
        assert_eq!(value(header::OFFSET), offset.to_json());
    }
}
