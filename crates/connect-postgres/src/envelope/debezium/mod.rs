//! The JSON of Debezium's PostgreSQL connector, schemas off, modes at their defaults.

mod placeholder;
mod source;
mod value;

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use crabka_connect::{Clock, ConnectError, ConnectRecord, Converter, Headers};

pub use self::placeholder::DEFAULT_PLACEHOLDER;
use self::placeholder::Placeholders;
use self::source::{SourceBlock, table_part};
use self::value::{Values, filler};
use super::format::{
    Members, Notes, SOURCE_TEXT_HEADER, Side, UNAVAILABLE_HEADER, row_too_short, write_cell, write_key,
};
use super::prepared::PreparedCache;
use super::{json, make_room, topic_of};
use crate::event::{Body, ChangeEvent, ChangeKey, ChangePart, LogicalMessage, Operation, SourceInfo};
use crate::records::DeleteRecords;
use crate::relation::Relation;
use crate::row::{Field, Row};
use crate::types::write;

/// What is written for a column of an old row that the server did not send and that is NOT NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AbsentColumns {
    /// A zero of the type, as Debezium does.
    #[default]
    Filler,
    /// `null`.
    Null,
}

/// Options of the `debezium` envelope. Names and defaults are Debezium's where it has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebeziumOptions {
    /// Name of the connector, for the header `__debezium.context.connectorName`.
    pub connector_name: String,
    /// `extended.headers.enabled`: the three `__debezium.context.*` headers on every record.
    pub extended_headers: bool,
    /// `tombstones.on.delete`: whether the source follows a delete with a tombstone.
    pub tombstones_on_delete: bool,
    /// `unavailable.value.placeholder`: the text; after `hex:` its bytes.
    pub unavailable_value_placeholder: String,
    /// What stands for NOT NULL columns of an old row that were not sent.
    pub absent_columns: AbsentColumns,
    /// Digits after the point of the server's money (`SELECT scale(1::money::numeric)`).
    pub money_server_digits: u32,
    /// `money.fraction.digits`: digits after the point of money in records.
    pub money_fraction_digits: u32,
}

impl Default for DebeziumOptions {
    fn default() -> Self {
        Self {
            connector_name: String::new(),
            extended_headers: true,
            tombstones_on_delete: true,
            unavailable_value_placeholder: DEFAULT_PLACEHOLDER.to_owned(),
            absent_columns: AbsentColumns::Filler,
            money_server_digits: 2,
            money_fraction_digits: 2,
        }
    }
}

impl DebeziumOptions {
    /// What the source is to make of a delete.
    pub fn delete_records(&self) -> DeleteRecords {
        if self.tombstones_on_delete { DeleteRecords::EventAndTombstone } else { DeleteRecords::Event }
    }
}

/// What is the same for all rows of one version of a table.
#[derive(Debug)]
struct Prepared {
    members: Members,
    /// The members of the source block that name the table.
    table_part: Vec<u8>,
}

/// Turns changes into Debezium's JSON.
pub struct DebeziumConverter {
    clock: Arc<dyn Clock>,
    values: Values,
    placeholders: Placeholders,
    absent_columns: AbsentColumns,
    context: Option<ContextHeaders>,
    source: SourceBlock,
    relations: PreparedCache<Prepared>,
    notes: Notes,
    last_len: usize,
}

/// The headers that name the connector: shared, so that a record takes a count and no copy.
struct ContextHeaders {
    connector: Bytes,
    logical_name: Option<(Arc<SourceInfo>, Bytes)>,
    names: [Arc<str>; 3],
}

const OLD_KEY_HEADER: &str = "__debezium.oldkey";
const NEW_KEY_HEADER: &str = "__debezium.newkey";

impl std::fmt::Debug for DebeziumConverter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DebeziumConverter").field("values", &self.values).finish_non_exhaustive()
    }
}

impl DebeziumConverter {
    /// A converter that takes the time of its records from `clock`.
    ///
    /// # Errors
    ///
    /// Of the configuration class when an option cannot be used.
    pub fn new(options: DebeziumOptions, clock: Arc<dyn Clock>) -> Result<Self, ConnectError> {
        let context = options.extended_headers.then(|| ContextHeaders {
            connector: Bytes::from(options.connector_name),
            logical_name: None,
            names: ["connectorLogicalName", "taskId", "connectorName"]
                .map(|name| Arc::from(format!("__debezium.context.{name}"))),
        });
        Ok(Self {
            clock,
            values: Values {
                money_server_digits: options.money_server_digits,
                money_digits: options.money_fraction_digits,
            },
            placeholders: Placeholders::new(&options.unavailable_value_placeholder)?,
            absent_columns: options.absent_columns,
            context,
            source: SourceBlock::default(),
            relations: PreparedCache::new(),
            notes: Notes::default(),
            last_len: 0,
        })
    }

    fn prepared(&mut self, relation: &Relation) -> Result<Arc<Prepared>, ConnectError> {
        self.relations.get_or_prepare(
            relation.version,
            |_| true,
            || Ok(Prepared { members: Members::new(relation), table_part: table_part(relation) }),
        )
    }

    fn write_key(&mut self, out: &mut BytesMut, key: &ChangeKey) -> Result<(), ConnectError> {
        match key {
            ChangeKey::Row { relation, tuple, old } => {
                let prepared = self.prepared(relation)?;
                write_key(out, &self.values, &prepared.members, &Row::new(relation, tuple, old.as_ref()))
            }
            ChangeKey::Message { prefix } => {
                write_message_key(out, prefix);
                Ok(())
            }
            ChangeKey::Heartbeat { source } => {
                write_heartbeat_key(out, source);
                Ok(())
            }
        }
    }

    fn write_event(&mut self, out: &mut BytesMut, event: &ChangeEvent) -> Result<(), ConnectError> {
        let now_ns = self.clock.now_ns();
        match &event.body {
            Body::Row { relation, .. } => {
                let prepared = self.prepared(relation)?;
                out.put_slice(b"{\"before\":");
                self.write_row(out, &prepared, event.before(), Side::Before)?;
                out.put_slice(b",\"after\":");
                self.write_row(out, &prepared, event.after(), Side::After)?;
                self.write_rest(out, &prepared, event, now_ns);
            }
            Body::Truncate { relation, .. } => {
                let prepared = self.prepared(relation)?;
                out.put_slice(b"{\"before\":null,\"after\":null");
                self.write_rest(out, &prepared, event, now_ns);
            }
            Body::Message(message) => self.write_message(out, event, message, now_ns),
            Body::Heartbeat => {
                out.put_slice(b"{\"ts_ms\":");
                write::integer(out, now_ns.div_euclid(1_000_000));
                out.put_u8(b'}');
            }
        }
        Ok(())
    }

    /// The members behind `after`.
    fn write_rest(&mut self, out: &mut BytesMut, prepared: &Prepared, event: &ChangeEvent, now_ns: i64) {
        out.put_slice(b",\"source\":");
        self.source.write(out, event, &prepared.table_part, now_ns);
        out.put_slice(b",\"transaction\":null,\"op\":\"");
        out.put_u8(operation(event));
        out.put_slice(b"\",\"ts_ms\":");
        write::integer(out, now_ns.div_euclid(1_000_000));
        out.put_slice(b",\"ts_us\":");
        write::integer(out, now_ns.div_euclid(1_000));
        out.put_slice(b",\"ts_ns\":");
        write::integer(out, now_ns);
        out.put_u8(b'}');
    }

    fn write_message(
        &mut self,
        out: &mut BytesMut,
        event: &ChangeEvent,
        message: &LogicalMessage,
        now_ns: i64,
    ) {
        out.put_slice(b"{\"op\":\"m\",\"ts_ms\":");
        write::integer(out, now_ns.div_euclid(1_000_000));
        out.put_slice(b",\"source\":");
        self.source.write(out, event, source::NO_TABLE, now_ns);
        out.put_slice(b",\"transaction\":null,\"message\":{\"prefix\":");
        json::string(out, &message.prefix);
        out.put_slice(b",\"content\":");
        json::base64(out, &message.content);
        out.put_slice(b"}}");
    }

    fn write_row(
        &mut self,
        out: &mut BytesMut,
        prepared: &Prepared,
        row: Option<Row<'_>>,
        side: Side,
    ) -> Result<(), ConnectError> {
        let Some(row) = row else {
            out.put_slice(b"null");
            return Ok(());
        };
        let relation = row.relation();
        out.put_u8(b'{');
        let mut count = 0;
        for (column, field) in row.wire_fields() {
            prepared.members.write(out, count, count == 0);
            count += 1;
            match field {
                Field::Value(wire) => {
                    write_cell(out, &self.values, relation, column, wire, (side, &mut self.notes))?;
                }
                Field::Null => out.put_slice(b"null"),
                Field::Unchanged => {
                    out.put_slice(self.placeholders.get(&column.column_type));
                    self.notes.unavailable(column);
                }
                Field::Absent => out.put_slice(match (self.absent_columns, column.not_null) {
                    (AbsentColumns::Filler, Some(true)) => filler(&column.column_type),
                    _ => b"null",
                }),
            }
        }
        if count < relation.columns.len() {
            return Err(row_too_short(relation));
        }
        out.put_u8(b'}');
        Ok(())
    }

    /// The key on the other side of a key change, for the header that names it.
    fn other_key(&mut self, event: &ChangeEvent) -> Result<Option<(&'static str, Bytes)>, ConnectError> {
        let Body::Row { relation, old, new } = &event.body else { return Ok(None) };
        let (name, row) = match (event.part, old, new) {
            (ChangePart::KeyChangeDelete, old, Some(new)) => {
                (NEW_KEY_HEADER, Row::new(relation, new, old.as_ref()))
            }
            (ChangePart::KeyChangeCreate, Some(old), _) => (OLD_KEY_HEADER, Row::old(relation, old)),
            _ => return Ok(None),
        };
        let prepared = self.prepared(relation)?;
        let mut key = BytesMut::new();
        write_key(&mut key, &self.values, &prepared.members, &row)?;
        Ok(Some((name, key.freeze())))
    }

    /// Appends key and value; tells how long the key is.
    fn write_record(
        &mut self,
        buffer: &mut BytesMut,
        record: &ConnectRecord<ChangeKey, ChangeEvent>,
    ) -> Result<usize, ConnectError> {
        if let Some(key) = &record.key {
            self.write_key(buffer, key)?;
        }
        let key_len = buffer.len();
        if let Some(event) = &record.value {
            self.write_event(buffer, event)?;
        }
        Ok(key_len)
    }

    fn push_headers(
        &mut self,
        headers: &mut Headers,
        record: (Option<&ChangeKey>, Option<&ChangeEvent>),
    ) -> Result<(), ConnectError> {
        if let Some(context) = &mut self.context {
            context.push(headers, record);
        }
        if let Some(event) = record.1
            && event.part != ChangePart::Whole
            && let Some((name, key)) = self.other_key(event)?
        {
            headers.push(name, Some(key));
        }
        let (unavailable, source_text) = self.notes.take();
        for (name, value) in [(UNAVAILABLE_HEADER, unavailable), (SOURCE_TEXT_HEADER, source_text)] {
            if value.is_some() {
                headers.push(name, value);
            }
        }
        Ok(())
    }
}

impl Converter<ChangeKey, ChangeEvent> for DebeziumConverter {
    fn encode(
        &mut self,
        mut record: ConnectRecord<ChangeKey, ChangeEvent>,
        buffer: &mut BytesMut,
    ) -> Result<ConnectRecord<Bytes, Bytes>, ConnectError> {
        make_room(buffer, self.last_len);
        self.notes.clear();
        let key_len = self.write_record(buffer, &record)?;
        self.last_len = buffer.len();
        let mut headers = std::mem::take(&mut record.headers);
        self.push_headers(&mut headers, (record.key.as_ref(), record.value.as_ref()))?;
        record.headers = headers;
        record.topic = topic_of(&record);
        let mut written = buffer.split().freeze();
        let key = written.split_to(key_len);
        let (key, value) = (record.key.is_some().then_some(key), record.value.is_some().then_some(written));
        Ok(record.with_key_value(key, value))
    }
}

impl ContextHeaders {
    fn push(&mut self, headers: &mut Headers, (key, event): (Option<&ChangeKey>, Option<&ChangeEvent>)) {
        if let Some(event) = event
            && self.logical_name.as_ref().is_none_or(|(source, _)| !Arc::ptr_eq(source, &event.source))
        {
            let name = Bytes::copy_from_slice(event.source.topic_prefix.as_bytes());
            self.logical_name = Some((Arc::clone(&event.source), name));
        }
        let logical_name = match (&self.logical_name, key) {
            (_, Some(ChangeKey::Heartbeat { source })) if event.is_none() => {
                Some(Bytes::copy_from_slice(source.topic_prefix.as_bytes()))
            }
            // A tombstone follows its delete, so the name is known.
            (name, _) => name.as_ref().map(|(_, name)| name.clone()),
        };
        let [logical, task, connector] = &self.names;
        if logical_name.is_some() {
            headers.push(Arc::clone(logical), logical_name);
        }
        headers.push(Arc::clone(task), Some(Bytes::from_static(b"0")));
        headers.push(Arc::clone(connector), Some(self.connector.clone()));
    }
}

fn operation(event: &ChangeEvent) -> u8 {
    match (event.operation, event.part) {
        (_, ChangePart::KeyChangeDelete) | (Operation::Delete, _) => b'd',
        (_, ChangePart::KeyChangeCreate) | (Operation::Insert, _) => b'c',
        (Operation::Update, ChangePart::Whole) => b'u',
        (Operation::Truncate, ChangePart::Whole) => b't',
        (Operation::Message | Operation::Heartbeat, ChangePart::Whole) => b'm',
    }
}

/// `{"prefix":"p"}`
pub(super) fn write_message_key(out: &mut BytesMut, prefix: &str) {
    out.put_slice(b"{\"prefix\":");
    json::string(out, prefix);
    out.put_u8(b'}');
}

/// `{"serverName":"srv"}`
pub(super) fn write_heartbeat_key(out: &mut BytesMut, source: &SourceInfo) {
    out.put_slice(b"{\"serverName\":");
    json::string(out, &source.topic_prefix);
    out.put_u8(b'}');
}
