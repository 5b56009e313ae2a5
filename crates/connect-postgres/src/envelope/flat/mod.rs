//! One object per row: the columns in readable JSON, then four members about the change.

mod embed;
mod value;

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use crabka_connect::{ConnectError, ConnectRecord, Converter};

pub(super) use self::value::write_value;
use super::debezium::{write_heartbeat_key, write_message_key};
use super::format::{
    Held, Members, Notes, SOURCE_TEXT_HEADER, Side, UNAVAILABLE_HEADER, ValueFormat, row_too_short,
    write_cell, write_key,
};
use super::prepared::PreparedCache;
use super::{json, make_room, topic_of};
use crate::event::{Body, ChangeEvent, ChangeKey, ChangePart, Operation};
use crate::records::DeleteRecords;
use crate::relation::Relation;
use crate::row::{Field, Row};
use crate::types::calendar::FractionDigits;
use crate::types::{ColumnType, Malformed, Timestamp, Value};

/// Digits after the point of money where nothing else is known.
pub(super) const DEFAULT_MONEY_DIGITS: u32 = 2;

/// Options of the `flat` envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlatOptions {
    /// Whether a delete is an object with `"__deleted":true` that a tombstone follows; else it is the tombstone.
    pub delete_objects: bool,
    /// Digits after the point of the server's money (`SELECT scale(1::money::numeric)`).
    pub money_server_digits: u32,
}

impl Default for FlatOptions {
    fn default() -> Self {
        Self { delete_objects: false, money_server_digits: DEFAULT_MONEY_DIGITS }
    }
}

impl FlatOptions {
    /// What the source is to make of a delete: a tombstone alone, so that there is one and not two.
    pub fn delete_records(&self) -> DeleteRecords {
        if self.delete_objects { DeleteRecords::EventAndTombstone } else { DeleteRecords::Tombstone }
    }
}

/// Turns changes into flat objects.
#[derive(Debug)]
pub struct FlatConverter {
    options: FlatOptions,
    relations: PreparedCache<Prepared>,
    notes: Notes,
    last_len: usize,
}

#[derive(Debug)]
struct Prepared {
    members: Members,
    /// `"schema.table"` as a JSON string.
    table: BytesMut,
}

/// Members about the change; columns may not have these names.
const RESERVED: [&str; 5] = ["__op", "__table", "__lsn", "__commit_ts", "__deleted"];

impl ValueFormat for FlatOptions {
    #[inline]
    fn write(
        &self,
        out: &mut BytesMut,
        _column_type: &ColumnType,
        value: &Value<'_>,
    ) -> Result<Held, Malformed> {
        write_value(out, value, self.money_server_digits)
    }

    fn fix_for_key(&self) -> &'static str {
        "choose another key: arrays with own lower bounds and JSON null have no exact form here"
    }
}

impl FlatConverter {
    /// A converter with these options.
    pub fn new(options: FlatOptions) -> Self {
        Self { options, relations: PreparedCache::new(), notes: Notes::default(), last_len: 0 }
    }

    fn prepared(&mut self, relation: &Relation) -> Result<Arc<Prepared>, ConnectError> {
        self.relations.get_or_prepare(
            relation.version,
            |_| true,
            || {
                if let Some(column) =
                    relation.columns.iter().find(|column| RESERVED.contains(&column.name.as_str()))
                {
                    let message = format!(
                        "table {} has a column whose name the flat envelope uses itself: {}",
                        relation.qualified_name(),
                        column.name
                    );
                    let fix = "set envelope.type = \"debezium\", or rename the column";
                    return Err(ConnectError::configuration(message).with_fix(fix));
                }
                let mut table = BytesMut::new();
                json::string(&mut table, &relation.qualified_name());
                Ok(Prepared { members: Members::new(relation), table })
            },
        )
    }

    fn write_key(&mut self, out: &mut BytesMut, key: &ChangeKey) -> Result<(), ConnectError> {
        match key {
            ChangeKey::Row { relation, tuple, old } => {
                let prepared = self.prepared(relation)?;
                write_key(out, &self.options, &prepared.members, &Row::new(relation, tuple, old.as_ref()))?;
            }
            ChangeKey::Message { prefix } => write_message_key(out, prefix),
            ChangeKey::Heartbeat { source } => write_heartbeat_key(out, source),
        }
        Ok(())
    }

    fn write_event(&mut self, out: &mut BytesMut, event: &ChangeEvent) -> Result<(), ConnectError> {
        match &event.body {
            Body::Row { relation, .. } => {
                let prepared = self.prepared(relation)?;
                let (row, side) = match event.after() {
                    Some(row) => (Some(row), Side::After),
                    None => (event.before(), Side::Before),
                };
                let written = self.write_columns(out, &prepared, row, side)?;
                self.write_change(out, event, written, Some(&prepared.table));
                if side == Side::Before {
                    out.put_slice(b",\"__deleted\":true");
                }
            }
            Body::Truncate { relation, .. } => {
                let prepared = self.prepared(relation)?;
                out.put_u8(b'{');
                self.write_change(out, event, 0, Some(&prepared.table));
            }
            Body::Message(message) => {
                out.put_slice(b"{\"prefix\":");
                json::string(out, &message.prefix);
                out.put_slice(b",\"content\":");
                json::base64(out, &message.content);
                self.write_change(out, event, 2, None);
            }
            Body::Heartbeat => {
                out.put_u8(b'{');
                self.write_change(out, event, 0, None);
            }
        }
        out.put_u8(b'}');
        Ok(())
    }

    /// Appends the columns the row tells about; how many.
    fn write_columns(
        &mut self,
        out: &mut BytesMut,
        prepared: &Prepared,
        row: Option<Row<'_>>,
        side: Side,
    ) -> Result<usize, ConnectError> {
        out.put_u8(b'{');
        let Some(row) = row else { return Ok(0) };
        let relation = row.relation();
        let (mut seen, mut written) = (0, 0);
        for (column, field) in row.wire_fields() {
            match field {
                Field::Value(wire) => {
                    prepared.members.write(out, seen, written == 0);
                    write_cell(out, &self.options, relation, column, wire, (side, &mut self.notes))?;
                    written += 1;
                }
                Field::Null => {
                    prepared.members.write(out, seen, written == 0);
                    out.put_slice(b"null");
                    written += 1;
                }
                Field::Unchanged => self.notes.unavailable(column),
                Field::Absent => {}
            }
            seen += 1;
        }
        if seen < relation.columns.len() {
            return Err(row_too_short(relation));
        }
        Ok(written)
    }

    /// Appends the members about the change.
    fn write_change(&self, out: &mut BytesMut, event: &ChangeEvent, written: usize, table: Option<&[u8]>) {
        if written > 0 {
            out.put_u8(b',');
        }
        out.put_slice(b"\"__op\":\"");
        out.put_u8(operation(event));
        out.put_u8(b'"');
        if let Some(table) = table {
            out.put_slice(b",\"__table\":");
            out.put_slice(table);
        }
        out.put_slice(b",\"__lsn\":\"");
        write_lsn(out, event.lsn.as_u64());
        out.put_slice(b"\",\"__commit_ts\":");
        match &event.transaction {
            Some(transaction) => {
                out.put_u8(b'"');
                let time = Timestamp::from_unix_us(transaction.commit_time_us);
                time.write_iso(out, FractionDigits::Fixed(6), "Z");
                out.put_u8(b'"');
            }
            None => out.put_slice(b"null"),
        }
    }

    /// Whether the record's value is no object but a tombstone. A delete without a key is always an object: as a
    /// tombstone it would say nothing.
    fn is_tombstone(&self, record: &ConnectRecord<ChangeKey, ChangeEvent>) -> bool {
        match &record.value {
            Some(event) => operation(event) == b'd' && !self.options.delete_objects && record.key.is_some(),
            None => true,
        }
    }
}

impl Converter<ChangeKey, ChangeEvent> for FlatConverter {
    fn encode(
        &mut self,
        mut record: ConnectRecord<ChangeKey, ChangeEvent>,
        buffer: &mut BytesMut,
    ) -> Result<ConnectRecord<Bytes, Bytes>, ConnectError> {
        make_room(buffer, self.last_len);
        self.notes.clear();
        if let Some(key) = &record.key {
            self.write_key(buffer, key)?;
        }
        let key_len = buffer.len();
        let tombstone = self.is_tombstone(&record);
        if let Some(event) = record.value.as_ref().filter(|_| !tombstone) {
            self.write_event(buffer, event)?;
        }
        self.last_len = buffer.len();
        let (unavailable, source_text) = self.notes.take();
        for (name, value) in [(UNAVAILABLE_HEADER, unavailable), (SOURCE_TEXT_HEADER, source_text)] {
            if value.is_some() {
                record.headers.push(name, value);
            }
        }
        record.topic = topic_of(&record);
        let mut written = buffer.split().freeze();
        let key = written.split_to(key_len);
        let key = record.key.is_some().then_some(key);
        Ok(record.with_key_value(key, (!tombstone).then_some(written)))
    }
}

fn operation(event: &ChangeEvent) -> u8 {
    match (event.operation, event.part) {
        (_, ChangePart::KeyChangeDelete) | (Operation::Delete, _) => b'd',
        (_, ChangePart::KeyChangeCreate) | (Operation::Insert, _) => b'c',
        (Operation::Update, ChangePart::Whole) => b'u',
        (Operation::Truncate, ChangePart::Whole) => b't',
        (Operation::Message, ChangePart::Whole) => b'm',
        (Operation::Heartbeat, ChangePart::Whole) => b'h',
    }
}

/// As PostgreSQL prints it.
fn write_lsn(out: &mut BytesMut, lsn: u64) {
    // Lossless: each is half of the number.
    upper_hex(out, (lsn >> 32) as u32);
    out.put_u8(b'/');
    upper_hex(out, lsn as u32);
}

fn upper_hex(out: &mut BytesMut, number: u32) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digits: [u8; 8] = std::array::from_fn(|place| DIGITS[(number >> (28 - 4 * place) & 15) as usize]);
    let zeros = (number | 1).leading_zeros() as usize / 4;
    out.put_slice(&digits[zeros..]);
}
