//! From typed changes to bytes: step 7 of a change's way.
//!
//! [`DebeziumConverter`] writes the JSON of Debezium's PostgreSQL connector, [`FlatConverter`] one plain object per
//! row. Both write straight from the cells into the runtime's buffer; `docs/ENVELOPES.md` shows what comes out.
//!
//! A new envelope: one converter, one name in the configuration, golden files.

mod debezium;
mod flat;
mod format;
pub(crate) mod json;
mod prepared;
pub mod topic;

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use crabka_connect::ConnectRecord;

pub use self::debezium::{AbsentColumns, DEFAULT_PLACEHOLDER, DebeziumConverter, DebeziumOptions};
pub use self::flat::{FlatConverter, FlatOptions};
pub use self::format::{SOURCE_TEXT_HEADER, UNAVAILABLE_HEADER};
use crate::event::{Body, ChangeEvent, ChangeKey};
use crate::types::{Hstore, Malformed, Value};

/// A value as JSON in the flat envelope's form; `None` when it is not of its type.
pub(crate) fn readable_json(value: &Value<'_>) -> Option<BytesMut> {
    let mut out = BytesMut::new();
    flat::write_value(&mut out, value, flat::DEFAULT_MONEY_DIGITS).ok()?;
    Some(out)
}

/// An hstore as a JSON object.
fn hstore_object(out: &mut BytesMut, hstore: &Hstore<'_>) -> Result<(), Malformed> {
    out.put_u8(b'{');
    let mut first = true;
    hstore.for_each(&mut |key, value| {
        if !std::mem::take(&mut first) {
            out.put_u8(b',');
        }
        json::string(out, key);
        out.put_u8(b':');
        match value {
            Some(value) => json::string(out, value),
            None => out.put_slice(b"null"),
        }
        Ok(())
    })?;
    out.put_u8(b'}');
    Ok(())
}

/// Room made in the buffer at a time, so that one allocation serves many records.
const BUFFER_BLOCK: usize = 64 * 1024;

/// Empties the buffer and makes room for a record that is about as large as the last one.
fn make_room(buffer: &mut BytesMut, last_len: usize) {
    // A record that could not be encoded leaves its beginning behind.
    buffer.clear();
    let wanted = last_len + last_len / 4 + 256;
    if buffer.capacity() < wanted {
        buffer.reserve(wanted.max(BUFFER_BLOCK));
    }
}

/// The topic of a record: the one it has, else the one its content belongs to.
fn topic_of(record: &ConnectRecord<ChangeKey, ChangeEvent>) -> Option<Arc<str>> {
    if let Some(topic) = &record.topic {
        return Some(Arc::clone(topic));
    }
    match &record.value {
        Some(event) => match &event.body {
            Body::Row { relation, .. } | Body::Truncate { relation, .. } => Some(Arc::clone(&relation.topic)),
            Body::Message(_) => Some(topic::for_messages(&event.source.topic_prefix).into()),
            Body::Heartbeat => Some(topic::for_heartbeats(&event.source.topic_prefix).into()),
        },
        None => match record.key.as_ref()? {
            ChangeKey::Row { relation, .. } => Some(Arc::clone(&relation.topic)),
            ChangeKey::Heartbeat { source } => Some(topic::for_heartbeats(&source.topic_prefix).into()),
            ChangeKey::Message { .. } => None,
        },
    }
}
