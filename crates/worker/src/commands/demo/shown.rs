//! What the demo prints, and whether it is what was done.

use crabka_connect::{Clock, ConnectError, SystemClock};
use rdkafka::Message;
use rdkafka::message::OwnedMessage;
use serde_json::Value;

use super::kafka::place;
use super::traffic::Expected;

/// Widest value that is printed whole.
const VALUE_WIDTH: usize = 110;

/// Above the records.
pub(super) const HEADER: &str =
    "\n  at     change     key         row                                       (commit to read back)";

/// Compares what was done with what came back.
pub(super) struct Progress {
    expected: Vec<Expected>,
    read: Vec<Option<Expected>>,
    changes: usize,
    slowest_ms: i64,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { expected: Vec::new(), read: Vec::new(), changes: 0, slowest_ms: 0 }
    }

    /// Notes a change that was committed.
    pub(super) fn done(&mut self, expected: &[Expected]) {
        self.changes += usize::from(!expected.is_empty());
        self.expected.extend_from_slice(expected);
    }

    /// Notes a record that came back, and gives its line.
    pub(super) fn read(&mut self, message: OwnedMessage) -> String {
        let key: Value = parse(message.key());
        let value: Value = parse(message.payload());
        let op = value.get("op").and_then(Value::as_str);
        let known = match op {
            Some("c") => Some((Some("c"), "create")),
            Some("u") => Some((Some("u"), "update")),
            Some("d") => Some((Some("d"), "delete")),
            None if value.is_null() => Some((None, "tombstone")),
            _ => None,
        };
        let id = key.get("id").and_then(Value::as_i64);
        self.read.push(known.zip(id).map(|((op, _), id)| Expected { op, id }));

        let row = match op {
            Some("d") => value.get("before"),
            _ => value.get("after"),
        };
        let committed_ms = value.get("source").and_then(|source| source.get("ts_ms")).and_then(Value::as_i64);
        let age = committed_ms.map(|committed| SystemClock.now_ms().saturating_sub(committed).max(0));
        self.slowest_ms = self.slowest_ms.max(age.unwrap_or(0));
        let age = age.map(|age| format!("  ({age} ms)")).unwrap_or_default();
        let word = known.map_or("?", |(_, word)| word);
        let row = clip(&row.map(Value::to_string).unwrap_or_default());
        format!("  {:<6} {word:<10} {:<11} {row}{age}\n", place(&message), key.to_string())
    }

    /// Whether everything that was done has come back.
    pub(super) fn is_complete(&self) -> bool {
        self.read.len() >= self.expected.len()
    }

    /// The last line.
    pub(super) fn summary(&self) -> String {
        format!(
            "\n{} changes committed in PostgreSQL, {} of {} records read back from Kafka, slowest {} ms\n",
            self.changes,
            self.read.len(),
            self.expected.len(),
            self.slowest_ms
        )
    }

    /// An error unless exactly what was done came back, in that order.
    pub(super) fn verdict(&self) -> Result<(), ConnectError> {
        if self.read.len() < self.expected.len() {
            return Err(ConnectError::transient("not every change came back from kafka in time"));
        }
        let same = self.read.iter().map(Option::as_ref).eq(self.expected.iter().map(Some));
        if same {
            Ok(())
        } else {
            Err(ConnectError::bug("what came back from kafka is not what was committed"))
        }
    }
}

fn parse(bytes: Option<&[u8]>) -> Value {
    bytes.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default()
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(VALUE_WIDTH) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::Timestamp;

    use super::*;

    fn message(key: &str, value: Option<&str>) -> OwnedMessage {
        let value = value.map(|value| value.as_bytes().to_vec());
        let key = Some(key.as_bytes().to_vec());
        OwnedMessage::new(value, key, "t".to_owned(), Timestamp::NotAvailable, 0, 7, None)
    }

    fn after(steps: &[(&str, Option<&str>)]) -> Progress {
        let mut progress = Progress::new();
        progress.done(&[Expected { op: Some("c"), id: 1 }]);
        progress.done(&[Expected { op: Some("d"), id: 1 }, Expected { op: None, id: 1 }]);
        for (key, value) in steps {
            progress.read(message(key, *value));
        }
        progress
    }

    const CREATE: (&str, Option<&str>) = (r#"{"id":1}"#, Some(r#"{"op":"c","after":{"id":1}}"#));
    const DELETE: (&str, Option<&str>) = (r#"{"id":1}"#, Some(r#"{"op":"d","before":{"id":1}}"#));
    const TOMBSTONE: (&str, Option<&str>) = (r#"{"id":1}"#, None);

    #[test]
    fn what_came_back_must_be_what_was_done() {
        let progress = after(&[CREATE, DELETE, TOMBSTONE]);
        assert!(progress.is_complete());
        progress.verdict().unwrap();
        assert!(progress.summary().contains("2 changes committed in PostgreSQL, 3 of 3 records"));
    }

    #[test]
    fn lost_repeated_swapped_and_foreign_records_are_noticed() {
        assert!(after(&[CREATE, DELETE]).verdict().is_err());
        for steps in [
            [DELETE, CREATE, TOMBSTONE],
            [CREATE, CREATE, DELETE],
            [(r#"{"id":2}"#, CREATE.1), DELETE, TOMBSTONE],
            [("?", Some("?")), DELETE, TOMBSTONE],
        ] {
            assert!(after(&steps).verdict().is_err(), "{steps:?}");
        }
    }

    #[test]
    fn a_line_names_place_change_key_and_row() {
        let line = after(&[]).read(message(CREATE.0, CREATE.1));
        assert_eq!(line, "  0@7    create     {\"id\":1}    {\"id\":1}\n");
    }
}
