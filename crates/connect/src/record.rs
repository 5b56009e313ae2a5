//! One record on its way from a source to a sink.

use std::sync::Arc;

use bytes::Bytes;

use crate::SourceOffset;

/// A record with a typed key and value.
///
/// `key: None` is a record without a key; `value: None` is a tombstone.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectRecord<K, V> {
    /// Destination topic; `None` leaves the choice to the sink.
    pub topic: Option<Arc<str>>,
    /// Record key.
    pub key: Option<K>,
    /// Record value; `None` is a tombstone.
    pub value: Option<V>,
    /// Milliseconds since 1970-01-01 UTC.
    pub timestamp_ms: Option<i64>,
    /// Headers in order; names may repeat.
    pub headers: Headers,
    /// The source's position behind this record. Sources and converters leave it `None`; the runtime fills it in
    /// for a sink that [wants it](crate::Sink::wants_record_offsets).
    pub offset: Option<Arc<SourceOffset>>,
}

impl<K, V> ConnectRecord<K, V> {
    /// A record with neither topic, timestamp, headers nor offset.
    pub fn new(key: Option<K>, value: Option<V>) -> Self {
        Self { topic: None, key, value, timestamp_ms: None, headers: Headers::new(), offset: None }
    }

    /// The same record with a topic.
    #[must_use]
    pub fn with_topic(mut self, topic: impl Into<Arc<str>>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// The same record with another key and value: topic, timestamp, headers and offset are kept.
    pub fn with_key_value<K2, V2>(self, key: Option<K2>, value: Option<V2>) -> ConnectRecord<K2, V2> {
        let Self { topic, timestamp_ms, headers, offset, .. } = self;
        ConnectRecord { topic, key, value, timestamp_ms, headers, offset }
    }
}

/// One header: a name and an optional value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Name; not unique within a record.
    pub name: Arc<str>,
    /// Value; `None` is Kafka's null.
    pub value: Option<Bytes>,
}

/// Headers of a record, in order. An empty list does not allocate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<Header>);

impl Headers {
    /// No headers.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends a header; an equal name may already be there.
    pub fn push(&mut self, name: impl Into<Arc<str>>, value: Option<Bytes>) {
        self.0.push(Header { name: name.into(), value });
    }

    /// The headers in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Header> {
        self.0.iter()
    }

    /// The last header of that name, as Kafka's `lastHeader`.
    pub fn last(&self, name: &str) -> Option<&Header> {
        self.0.iter().rev().find(|header| &*header.name == name)
    }

    /// Number of headers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a Headers {
    type Item = &'a Header;
    type IntoIter = std::slice::Iter<'a, Header>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
