//! Changes made by hand: relations, tuples and events as a source would build them, and what a converter makes of
//! them.
#![allow(dead_code, unreachable_pub)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use crabka_connect::{Clock, ConnectError, ConnectRecord, Converter};
use crabka_connect_postgres::envelope::{
    DebeziumConverter, DebeziumOptions, FlatConverter, FlatOptions, topic,
};
use crabka_connect_postgres::types::{ColumnType, TypeRegistry};
use crabka_connect_postgres::{
    Body, ChangeEvent, ChangeKey, ChangePart, Column, OldRow, Operation, Relation, ReplicaIdentity,
    SourceInfo, Transaction,
};
use crabka_pgrepl::Lsn;

/// A clock that stands still.
pub struct Still(pub i64);

impl Clock for Still {
    fn now_ns(&self) -> i64 {
        self.0
    }
}

/// The time of every record: 2019-05-28T11:05:04.930001123Z.
pub const NOW_NS: i64 = 1_559_041_504_930_001_123;

/// A cell to be put into a tuple.
#[derive(Debug, Clone)]
pub enum C {
    Null,
    Unchanged,
    Text(Vec<u8>),
    Binary(Vec<u8>),
}

pub fn t(text: &str) -> C {
    C::Text(text.as_bytes().to_vec())
}

pub fn b(bytes: &[u8]) -> C {
    C::Binary(bytes.to_vec())
}

/// TupleData bytes.
pub fn tuple(cells: &[C]) -> Bytes {
    let mut bytes = u16::try_from(cells.len()).unwrap().to_be_bytes().to_vec();
    for cell in cells {
        let (kind, value) = match cell {
            C::Null => (b'n', None),
            C::Unchanged => (b'u', None),
            C::Text(value) => (b't', Some(value)),
            C::Binary(value) => (b'b', Some(value)),
        };
        bytes.push(kind);
        if let Some(value) = value {
            bytes.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
            bytes.extend(value);
        }
    }
    bytes.into()
}

/// A column: name, type oid and modifier.
pub fn column(name: &str, type_oid: u32, typmod: i32, registry: &TypeRegistry) -> Column {
    Column {
        name: name.to_owned(),
        type_oid,
        typmod,
        in_identity: false,
        not_null: None,
        column_type: ColumnType::resolve(type_oid, typmod, registry),
    }
}

/// A table `public.<table>` with these columns, the key being the first `key` of them.
pub fn relation(table: &str, mut columns: Vec<Column>, key: usize) -> Arc<Relation> {
    static VERSION: AtomicU64 = AtomicU64::new(1);
    for column in &mut columns[..key] {
        column.in_identity = true;
        column.not_null = Some(true);
    }
    Arc::new(Relation {
        oid: 16_400,
        schema: "public".to_owned(),
        table: table.to_owned(),
        identity: ReplicaIdentity::Default,
        columns,
        key: (0..key).collect(),
        topic: topic::for_table("srv", "public", table).into(),
        version: VERSION.fetch_add(1, Ordering::Relaxed),
    })
}

pub fn source() -> Arc<SourceInfo> {
    Arc::new(SourceInfo { topic_prefix: "srv".to_owned(), database: "postgres".to_owned() })
}

pub fn transaction() -> Arc<Transaction> {
    Arc::new(Transaction {
        xid: 556,
        commit_lsn: Lsn::new(24_023_200),
        commit_time_us: 1_559_033_904_863_769,
        origin: None,
        previous_end_lsn: Some(Lsn::new(24_023_119)),
    })
}

pub fn event(operation: Operation, body: Body) -> ChangeEvent {
    ChangeEvent {
        operation,
        part: ChangePart::Whole,
        lsn: Lsn::new(24_023_128),
        ordinal: 0,
        transaction: Some(transaction()),
        source: source(),
        body,
    }
}

/// A row change with its key, taken from the new row where there is one.
pub fn row_change(
    operation: Operation,
    relation: &Arc<Relation>,
    old: Option<(bool, &[C])>,
    new: Option<&[C]>,
) -> ConnectRecord<ChangeKey, ChangeEvent> {
    let old = old.map(|(full, cells)| OldRow { tuple: tuple(cells), full });
    let new = new.map(tuple);
    let key_tuple = new.clone().or_else(|| old.as_ref().map(|old| old.tuple.clone())).unwrap();
    let key = (!relation.key.is_empty()).then(|| ChangeKey::Row {
        relation: Arc::clone(relation),
        tuple: key_tuple,
        old: if new.is_some() { old.clone() } else { None },
    });
    let body = Body::Row { relation: Arc::clone(relation), old, new };
    ConnectRecord::new(key, Some(event(operation, body)))
}

/// What a converter made of a record, as text.
#[derive(Debug, PartialEq)]
pub struct Encoded {
    pub topic: Option<String>,
    pub key: Option<String>,
    pub value: Option<String>,
    pub headers: Vec<(String, String)>,
}

impl Encoded {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

pub fn encode(
    converter: &mut dyn Converter<ChangeKey, ChangeEvent>,
    record: ConnectRecord<ChangeKey, ChangeEvent>,
) -> Result<Encoded, ConnectError> {
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let encoded = converter.encode(record, &mut BytesMut::new())?;
    for json in encoded.key.iter().chain(&encoded.value) {
        serde_json::from_slice::<serde::de::IgnoredAny>(json).unwrap();
    }
    Ok(Encoded {
        topic: encoded.topic.map(|topic| topic.to_string()),
        key: encoded.key.map(text),
        value: encoded.value.map(text),
        headers: encoded
            .headers
            .iter()
            .map(|header| (header.name.to_string(), header.value.clone().map(text).unwrap_or_default()))
            .collect(),
    })
}

pub fn debezium() -> DebeziumConverter {
    let options = DebeziumOptions {
        connector_name: "orders".to_owned(),
        extended_headers: false,
        ..Default::default()
    };
    DebeziumConverter::new(options, Arc::new(Still(NOW_NS))).unwrap()
}

pub fn flat() -> FlatConverter {
    FlatConverter::new(FlatOptions::default())
}

/// A value in both envelopes, as written, with the `__source_text` header of each.
#[derive(Debug, PartialEq, Clone)]
pub struct Written {
    pub debezium: String,
    pub debezium_text: Option<String>,
    pub flat: String,
    pub flat_text: Option<String>,
}

/// One value of a type as the column `v` of an inserted row.
pub fn written(
    type_oid: u32,
    typmod: i32,
    registry: &TypeRegistry,
    cell: C,
) -> Result<Written, ConnectError> {
    let relation = relation("t", vec![column("v", type_oid, typmod, registry)], 0);
    let record = || row_change(Operation::Insert, &relation, None, Some(std::slice::from_ref(&cell)));
    let debezium = encode(&mut debezium(), record())?;
    let flat = encode(&mut flat(), record())?;
    let between = |json: &str, start: &str, end: &str| {
        let from = json.find(start).unwrap() + start.len();
        json[from..json.rfind(end).unwrap()].to_owned()
    };
    Ok(Written {
        debezium: between(debezium.value.as_ref().unwrap(), "\"after\":{\"v\":", "},\"source\":"),
        debezium_text: debezium.header("__source_text").map(str::to_owned),
        flat: between(flat.value.as_ref().unwrap(), "{\"v\":", ",\"__op\":"),
        flat_text: flat.header("__source_text").map(str::to_owned),
    })
}
