//! One record as one line of JSON: the format of the file and stdout sinks and of `crabka tail`.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::{ConnectRecord, Header};

/// What every line starts with; tells a torn line of ours from somebody else's file.
pub(super) const LINE_START: &[u8] = b"{\"topic\":";

/// Appends the record to `out` as one line, newline included.
///
/// ```text
/// {"topic":"shop.public.orders","key":{"id":1},"value":{…},"headers":[["name","value"]],"timestamp":1700000000000,"offset":{"partition":{…},"position":{…}}}
/// ```
///
/// - `key`, `value`: the encoded JSON itself, byte for byte, except that line breaks between its tokens become
///   blanks. `null` for a record without key, and for a tombstone. Bytes that are not JSON become `{"$base64":"…"}`.
/// - `headers`: pairs of name and value in order, names may repeat; a value is a string, `null`, or
///   `{"$base64":"…"}` when it is not UTF-8.
/// - `timestamp`: milliseconds since 1970-01-01 UTC, or `null`.
/// - `offset`: the source's position behind the record, in the byte-stable form of
///   [`SourceOffset`](crate::SourceOffset), or `null` when the record carries none.
///
/// The members always come in this order, and no line holds a line break or a NUL.
pub fn write_line(record: &ConnectRecord<Bytes, Bytes>, out: &mut Vec<u8>) {
    out.extend_from_slice(LINE_START);
    match &record.topic {
        Some(topic) => write_string(topic, out),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"key\":");
    write_document(record.key.as_deref(), out);
    out.extend_from_slice(b",\"value\":");
    write_document(record.value.as_deref(), out);
    out.extend_from_slice(b",\"headers\":[");
    for (index, header) in record.headers.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_header(header, out);
    }
    out.extend_from_slice(b"],\"timestamp\":");
    match record.timestamp_ms {
        // Writing into a vector cannot fail.
        Some(timestamp) => drop(write!(out, "{timestamp}")),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"offset\":");
    match &record.offset {
        Some(offset) => out.extend_from_slice(offset.to_json().as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b"}\n");
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    // A string into a vector: neither side can fail.
    drop(serde_json::to_writer(out, text));
}

fn write_document(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    match bytes {
        None => out.extend_from_slice(b"null"),
        // In valid JSON a raw line break can only stand between tokens.
        Some(bytes) if is_json(bytes) => {
            out.extend(bytes.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
        }
        Some(bytes) => write_base64(bytes, out),
    }
}

fn is_json(bytes: &[u8]) -> bool {
    // Skipping a JSON string does not look at its encoding.
    std::str::from_utf8(bytes).is_ok() && serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"$base64\":\"");
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    out.extend_from_slice(b"\"}");
}

fn write_header(header: &Header, out: &mut Vec<u8>) {
    out.push(b'[');
    write_string(&header.name, out);
    out.push(b',');
    match &header.value {
        None => out.extend_from_slice(b"null"),
        Some(value) => match std::str::from_utf8(value) {
            Ok(text) => write_string(text, out),
            Err(_) => write_base64(value, out),
        },
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::SourceOffset;

    fn line(record: &ConnectRecord<Bytes, Bytes>) -> String {
        let mut out = Vec::new();
        write_line(record, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn bytes(text: &'static str) -> Option<Bytes> {
        Some(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_full_record_is_one_line_with_its_json_embedded() {
        let mut record = ConnectRecord::new(bytes(r#"{"id":1}"#), bytes(r#"{"total":1.10,"note":"a\nb"}"#))
            .with_topic("shop.public.orders");
        record.timestamp_ms = Some(1_700_000_000_123);
        record.headers.push("op", bytes("c"));
        record.headers.push("op", None);
        record.headers.push("raw", Some(Bytes::from_static(&[0xff, 0x00])));
        let offset = SourceOffset::new([("slot", "orders".into())], [("lsn", 7_u64.into())]);
        record.offset = Some(Arc::new(offset));
        let expected = concat!(
            r#"{"topic":"shop.public.orders","key":{"id":1},"value":{"total":1.10,"note":"a\nb"},"#,
            r#""headers":[["op","c"],["op",null],["raw",{"$base64":"/wA="}]],"timestamp":1700000000123,"#,
            r#""offset":{"partition":{"slot":"orders"},"position":{"lsn":7}}}"#,
            "\n"
        );
        assert_eq!(line(&record), expected);
    }

    #[test]
    fn an_empty_record_is_all_null() {
        let expected =
            r#"{"topic":null,"key":null,"value":null,"headers":[],"timestamp":null,"offset":null}"#;
        assert_eq!(line(&ConnectRecord::new(None, None)), format!("{expected}\n"));
    }

    #[test]
    fn what_is_not_json_is_base64() {
        for (raw, shown) in [
            (&b"plain"[..], json!({"$base64": "cGxhaW4="})),
            (&b""[..], json!({"$base64": ""})),
            (&b"{\"a\":1"[..], json!({"$base64": "eyJhIjox"})),
            (&b"1 2"[..], json!({"$base64": "MSAy"})),
            (&b"\"\xff\""[..], json!({"$base64": "Iv8i"})),
            (&b"{\n \"a\" :\r\n1 }"[..], json!({"a": 1})),
            (&b"null"[..], Value::Null),
        ] {
            let line = line(&ConnectRecord::new(None, Some(Bytes::copy_from_slice(raw))));
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["value"], shown, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_one_line_of_json(
            key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
            value in ".{0,40}",
            name in "\\PC{0,8}",
            header in proptest::collection::vec(any::<u8>(), 0..8),
        ) {
            let value = serde_json::to_string_pretty(&json!({ "v": value })).unwrap();
            let mut record = ConnectRecord::new(key.map(Bytes::from), Some(Bytes::from(value.clone())));
            record.headers.push(name.as_str(), Some(Bytes::from(header)));
            let line = line(&record);
            prop_assert!(line.starts_with(std::str::from_utf8(LINE_START).unwrap()));
            prop_assert_eq!(line.find(['\n', '\r', '\0']), Some(line.len() - 1));
            let parsed: Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(&parsed["value"], &serde_json::from_str::<Value>(&value).unwrap());
            prop_assert_eq!(parsed["headers"][0][0].as_str(), Some(name.as_str()));
        }
    }
}
