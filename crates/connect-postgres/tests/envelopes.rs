//! Whole records of both envelopes against golden files: `golden/debezium.txt` and `golden/flat.txt`.
//!
//! `CRABKA_BLESS=1` writes them anew; read the difference before you commit it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod rows;

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use crabka_connect::{ConnectRecord, Converter, ErrorClass};
use crabka_connect_postgres::envelope::{
    AbsentColumns, DebeziumConverter, DebeziumOptions, FlatConverter, FlatOptions,
};
use crabka_connect_postgres::types::{TypeEntry, TypeKind, TypeRegistry};
use crabka_connect_postgres::{
    Body, ChangeEvent, ChangeKey, ChangePart, LogicalMessage, OldRow, Operation, Origin, Relation,
    ReplicaIdentity, Transaction,
};
use crabka_pgrepl::Lsn;
use rows::{
    C, NOW_NS, Still, b, column, debezium, encode, event, flat, relation, row_change, source, t, transaction,
    tuple,
};

type Record = ConnectRecord<ChangeKey, ChangeEvent>;

fn customers() -> Arc<Relation> {
    let registry = TypeRegistry::default();
    let columns = vec![
        column("id", 23, -1, &registry),
        column("first_name", 1043, 54, &registry),
        column("amount", 1700, (10 << 16 | 2) + 4, &registry),
        column("We\"ird", 25, -1, &registry),
    ];
    relation("customers", columns, 1)
}

const ANNE: [&str; 4] = ["1", "Anne", "3.30", "x"];

fn cells(values: &[&str]) -> Vec<C> {
    values.iter().map(|value| t(value)).collect()
}

fn without_key(record: Record) -> Record {
    ConnectRecord { key: None, ..record }
}

fn tombstone(relation: &Arc<Relation>, cells: &[C]) -> Record {
    let key = ChangeKey::Row { relation: Arc::clone(relation), tuple: tuple(cells), old: None };
    ConnectRecord::new(Some(key), None)
}

/// The records of an update that changes the key from 1 to 5, as the source makes them.
fn key_change(relation: &Arc<Relation>, old: (bool, &[C]), new: &[C]) -> [Record; 3] {
    let old_row = OldRow { tuple: tuple(old.1), full: old.0 };
    let body =
        || Body::Row { relation: Arc::clone(relation), old: Some(old_row.clone()), new: Some(tuple(new)) };
    let part = |part| ChangeEvent { part, ..event(Operation::Update, body()) };
    let new_key =
        ChangeKey::Row { relation: Arc::clone(relation), tuple: tuple(new), old: Some(old_row.clone()) };
    let old_key = ChangeKey::Row { relation: Arc::clone(relation), tuple: tuple(old.1), old: None };
    [
        ConnectRecord::new(Some(old_key), Some(part(ChangePart::KeyChangeDelete))),
        tombstone(relation, old.1),
        ConnectRecord::new(Some(new_key), Some(part(ChangePart::KeyChangeCreate))),
    ]
}

fn message(transaction: Option<Arc<Transaction>>, prefix: &str, content: &[u8]) -> Record {
    let body = Body::Message(Box::new(LogicalMessage {
        transactional: transaction.is_some(),
        prefix: prefix.to_owned(),
        content: Bytes::copy_from_slice(content),
    }));
    let event = ChangeEvent { transaction, ..event(Operation::Message, body) };
    ConnectRecord::new(Some(ChangeKey::Message { prefix: prefix.to_owned() }), Some(event))
}

fn changes() -> Vec<(&'static str, Record)> {
    use Operation::{Delete, Insert, Update};
    let customers = customers();
    let anne = cells(&ANNE);
    let key_only = [t("1"), C::Null, C::Null, C::Null];
    let change = |operation, old, new| row_change(operation, &customers, old, new);
    let [key_delete, key_tombstone, key_create] =
        key_change(&customers, (false, &key_only), &cells(&["5", "Anne", "3.30", "x"]));
    let mut origin = ConnectRecord::clone(&change(Insert, None, Some(&anne)));
    let transaction_of_origin = Transaction {
        origin: Some(Origin { name: "west \"1\"".to_owned(), lsn: Lsn::new(77) }),
        previous_end_lsn: None,
        ..Transaction::clone(&transaction())
    };
    origin.value.as_mut().unwrap().transaction = Some(Arc::new(transaction_of_origin));
    let truncate =
        Body::Truncate { relation: Arc::clone(&customers), cascade: true, restart_identity: false };
    let heartbeat = ChangeEvent { transaction: None, ..event(Operation::Heartbeat, Body::Heartbeat) };
    vec![
        ("insert", change(Insert, None, Some(&anne))),
        ("insert from another origin, first of its stream", origin),
        (
            "insert with nulls and escapes",
            change(Insert, None, Some(&[t("1"), C::Null, C::Null, t("a\"b\\\n\u{1}é")])),
        ),
        (
            "insert in binary",
            change(
                Insert,
                None,
                Some(&[
                    b(&[0, 0, 0, 1]),
                    b(b"Anne"),
                    b(&[0, 2, 0, 0, 0, 0, 0, 2, 0, 3, 0x0B, 0xB8]),
                    b(b"x"),
                ]),
            ),
        ),
        ("update", change(Update, None, Some(&anne))),
        (
            "update under REPLICA IDENTITY FULL",
            change(Update, Some((true, &cells(&["1", "Ann", "1.00", ""]))), Some(&anne)),
        ),
        ("delete", change(Delete, Some((false, &key_only)), None)),
        ("tombstone", tombstone(&customers, &key_only)),
        ("delete under REPLICA IDENTITY FULL", change(Delete, Some((true, &anne)), None)),
        ("delete without a key", without_key(change(Delete, Some((true, &anne)), None))),
        ("key change: delete", key_delete),
        ("key change: tombstone", key_tombstone),
        ("key change: create", key_create),
        ("truncate", ConnectRecord::new(None, Some(event(Operation::Truncate, truncate)))),
        ("message in a transaction", message(Some(transaction()), "p\"q", &[1, 2, 3])),
        ("message outside a transaction", message(None, "", b"")),
        ("heartbeat", ConnectRecord::new(Some(ChangeKey::Heartbeat { source: source() }), Some(heartbeat))),
    ]
}

fn values_that_are_not_there() -> Vec<(&'static str, Record)> {
    use Operation::{Insert, Update};
    let mut registry = TypeRegistry::default();
    for (oid, name, kind, extension) in [
        (20_001, "hstore", TypeKind::Base, Some("hstore")),
        (20_002, "citext", TypeKind::Base, Some("citext")),
        (20_003, "mood", TypeKind::Enum { labels: vec!["sad".to_owned()] }, None),
        (20_004, "note", TypeKind::Domain { base: 25, typmod: -1 }, None),
    ] {
        let extension = extension.map(str::to_owned);
        registry.insert(TypeEntry {
            oid,
            schema: "public".to_owned(),
            name: name.to_owned(),
            kind,
            extension,
        });
    }
    let types = [
        25, 1043, 1042, 20_002, 20_004, 114, 3802, 142, 17, 20_001, 1700, 3614, 3906, 1562, 602, 20_003,
        1009, 1015, 1014, 199, 3807, 1001, 1007, 1016, 1182, 2951, 1231, 1185, 99_999,
    ];
    let id = column("id", 23, -1, &registry);
    let columns: Vec<_> = types.iter().map(|&oid| column(&format!("c{oid}"), oid, -1, &registry)).collect();
    let wide = relation("wide", std::iter::once(id).chain(columns).collect(), 1);
    let mut unchanged = vec![C::Unchanged; types.len() + 1];
    unchanged[0] = t("1");
    let documents = relation(
        "documents",
        vec![
            column("k", 25, -1, &registry),
            column("v", 23, -1, &registry),
            column("doc", 25, -1, &registry),
        ],
        1,
    );
    let long_key = "k".repeat(40);
    let [_, _, key_create] =
        key_change(&documents, (false, &[t("old"), C::Null, C::Null]), &[t("new"), t("2"), C::Unchanged]);
    vec![
        ("unchanged values of every type", row_change(Update, &wide, None, Some(&unchanged))),
        (
            "unchanged value that the old row has",
            row_change(
                Update,
                &documents,
                Some((true, &[t("a"), t("1"), t("long")])),
                Some(&[t("a"), t("2"), C::Unchanged]),
            ),
        ),
        (
            "unchanged key that the old row has",
            row_change(
                Update,
                &documents,
                Some((false, &[t(&long_key), C::Null, C::Null])),
                Some(&[C::Unchanged, t("2"), t("short")]),
            ),
        ),
        (
            "unchanged value in an insert that a row filter made",
            row_change(Insert, &documents, None, Some(&[t("a"), t("2"), C::Unchanged])),
        ),
        ("unchanged value in the create of a key change", key_create),
        (
            "the placeholder as data",
            row_change(Update, &documents, None, Some(&[t("a"), t("2"), t("__debezium_unavailable_value")])),
        ),
    ]
}

fn absent_not_null_columns() -> (&'static str, Record) {
    let mut registry = TypeRegistry::default();
    let mood = TypeKind::Enum { labels: vec!["sad".to_owned()] };
    registry.insert(TypeEntry {
        oid: 20_003,
        schema: "public".to_owned(),
        name: "mood".to_owned(),
        kind: mood,
        extension: None,
    });
    let types = [
        (16, -1),
        (21, -1),
        (20, -1),
        (26, -1),
        (700, -1),
        (701, -1),
        (1700, 655_366),
        (1700, -1),
        (790, -1),
        (25, -1),
        (20_003, -1),
        (17, -1),
        (3802, -1),
        (2950, -1),
        (1082, -1),
        (1083, -1),
        (1266, -1),
        (1114, -1),
        (1184, -1),
        (1186, -1),
        (1560, 1),
        (1560, 8),
        (600, -1),
        (1007, -1),
        (3904, -1),
    ];
    let columns =
        types.iter().map(|&(oid, typmod)| column(&format!("c{oid}_{typmod}"), oid, typmod, &registry));
    let nullable = column("nullable", 25, -1, &registry);
    let mut columns: Vec<_> = std::iter::once(column("id", 23, -1, &registry)).chain(columns).collect();
    for column in &mut columns {
        column.not_null = Some(true);
    }
    columns.push(nullable);
    let cells: Vec<C> =
        std::iter::once(t("1")).chain(std::iter::repeat_n(C::Null, types.len() + 1)).collect();
    let filled = relation("filled", columns, 1);
    (
        "delete with absent columns that are NOT NULL",
        row_change(Operation::Delete, &filled, Some((false, &cells)), None),
    )
}

fn values_a_field_cannot_hold() -> (&'static str, Record) {
    let registry = TypeRegistry::default();
    let columns = vec![
        column("id", 23, -1, &registry),
        column("amount", 1700, -1, &registry),
        column("at", 1114, -1, &registry),
        column("list", 1007, -1, &registry),
        column("doc", 3802, -1, &registry),
    ];
    let held = relation("held", columns, 1);
    let old = [t("1"), t("NaN"), t("294276-12-31 00:00:00"), t("{1}"), t("null")];
    let new = [t("1"), t("1.5"), t("infinity"), t("[0:1]={1,2}"), C::Null];
    ("values that a field cannot hold", row_change(Operation::Update, &held, Some((true, &old)), Some(&new)))
}

fn all() -> Vec<(&'static str, Record)> {
    let mut all = changes();
    all.extend(values_that_are_not_there());
    all.push(absent_not_null_columns());
    all.push(values_a_field_cannot_hold());
    all
}

fn check_golden(name: &str, converter: &mut dyn Converter<ChangeKey, ChangeEvent>) {
    let mut text = String::new();
    for (what, record) in all() {
        let encoded = encode(converter, record).unwrap();
        writeln!(text, "# {what}").unwrap();
        for (part, content) in [("topic", encoded.topic), ("key", encoded.key), ("value", encoded.value)] {
            writeln!(text, "{part}: {}", content.as_deref().unwrap_or("-")).unwrap();
        }
        for (header, value) in encoded.headers {
            writeln!(text, "header {header}: {value}").unwrap();
        }
        text.push('\n');
    }
    let text = text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("CRABKA_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    for (line, expected) in text.lines().zip(golden.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(text.len(), golden.len());
}

#[test]
fn debezium_records() {
    check_golden("debezium.txt", &mut debezium());
}

#[test]
fn flat_records() {
    check_golden("flat.txt", &mut flat());
}

/// Member names in order, one level deep in `source`.
fn members(json: &str) -> Vec<String> {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    let mut names: Vec<(usize, String)> = value
        .as_object()
        .unwrap()
        .keys()
        .map(|name| (json.find(&format!("\"{name}\":")).unwrap(), name.clone()))
        .collect();
    names.sort();
    names.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn debezium_members_are_in_order() {
    let record = row_change(Operation::Update, &customers(), None, Some(&cells(&ANNE)));
    let value = encode(&mut debezium(), record).unwrap().value.unwrap();
    // The source block repeats names of the envelope: it is looked at alone.
    let start = value.find("\"source\":").unwrap() + "\"source\":".len();
    let end = start + value[start..].find('}').unwrap() + 1;
    let envelope = format!("{}{{}}{}", &value[..start], &value[end..]);
    assert_eq!(
        members(&envelope),
        ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    );
    let expected = [
        "version",
        "connector",
        "name",
        "ts_ms",
        "snapshot",
        "db",
        "sequence",
        "ts_us",
        "ts_ns",
        "schema",
        "table",
        "txId",
        "lsn",
        "xmin",
        "origin",
        "origin_lsn",
    ];
    assert_eq!(members(&value[start..end]), expected);
    let source: serde_json::Value = serde_json::from_str(&value[start..end]).unwrap();
    assert_eq!(source["sequence"], "[\"24023119\",\"24023128\"]");
    assert_eq!(source["ts_ns"], 1_559_033_904_863_769_000i64);
}

#[test]
fn context_headers_are_on_every_record() {
    let options = DebeziumOptions { connector_name: "orders".to_owned(), ..Default::default() };
    let mut converter = DebeziumConverter::new(options, Arc::new(Still(NOW_NS))).unwrap();
    for (what, record) in all() {
        let encoded = encode(&mut converter, record).unwrap();
        let headers = ["connectorLogicalName", "taskId", "connectorName"]
            .map(|name| encoded.header(&format!("__debezium.context.{name}")));
        assert_eq!(headers, [Some("srv"), Some("0"), Some("orders")], "{what}");
    }
}

#[test]
fn absent_columns_may_be_null() {
    let options = DebeziumOptions {
        absent_columns: AbsentColumns::Null,
        extended_headers: false,
        ..Default::default()
    };
    let mut converter = DebeziumConverter::new(options, Arc::new(Still(NOW_NS))).unwrap();
    let encoded = encode(&mut converter, absent_not_null_columns().1).unwrap();
    let value: serde_json::Value = serde_json::from_str(&encoded.value.unwrap()).unwrap();
    let before = value["before"].as_object().unwrap();
    assert_eq!(before.values().filter(|value| value.is_null()).count(), before.len() - 1);
}

#[test]
fn a_delete_of_the_flat_envelope_is_one_tombstone_or_an_object() {
    let key_only = [t("1"), C::Null, C::Null, C::Null];
    let delete = || row_change(Operation::Delete, &customers(), Some((false, &key_only)), None);
    let encoded = encode(&mut flat(), delete()).unwrap();
    assert_eq!((encoded.key.as_deref(), encoded.value), (Some("{\"id\":1}"), None));
    let mut with_objects = FlatConverter::new(FlatOptions { delete_objects: true, ..Default::default() });
    let value = encode(&mut with_objects, delete()).unwrap().value.unwrap();
    assert_eq!(
        value,
        "{\"id\":1,\"__op\":\"d\",\"__table\":\"public.customers\",\"__lsn\":\"0/16E9058\",\
         \"__commit_ts\":\"2019-05-28T08:58:24.863769Z\",\"__deleted\":true}"
    );
}

#[test]
fn a_key_that_cannot_be_written_is_refused() {
    let registry = TypeRegistry::default();
    let prices = relation("prices", vec![column("price", 1700, -1, &registry)], 1);
    let error =
        encode(&mut debezium(), row_change(Operation::Insert, &prices, None, Some(&[t("NaN")]))).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Data);
    assert_eq!(
        error.to_string(),
        "table public.prices, column price: the key holds a value that this envelope cannot write; to fix: use \
         envelope.type = \"flat\", which writes such values as text"
    );
    let encoded =
        encode(&mut flat(), row_change(Operation::Insert, &prices, None, Some(&[t("NaN")]))).unwrap();
    assert_eq!(encoded.key.as_deref(), Some("{\"price\":\"NaN\"}"));
}

#[test]
fn a_key_column_that_was_not_sent_is_refused() {
    let registry = TypeRegistry::default();
    let mut columns = vec![column("a", 23, -1, &registry), column("b", 23, -1, &registry)];
    columns[1].in_identity = true;
    let mut table = Arc::into_inner(relation("by_index", columns, 0)).unwrap();
    table.identity = ReplicaIdentity::Index;
    table.key = vec![0];
    let table = Arc::new(table);
    let delete = row_change(Operation::Delete, &table, Some((false, &[C::Null, t("2")])), None);
    let error = encode(&mut debezium(), delete).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Data);
    assert_eq!(error.fix(), Some("ALTER TABLE \"public\".\"by_index\" REPLICA IDENTITY FULL"));
}

#[test]
fn a_column_with_a_name_of_the_flat_envelope_is_refused() {
    let registry = TypeRegistry::default();
    let table = relation("t", vec![column("__op", 25, -1, &registry)], 0);
    let error =
        encode(&mut flat(), row_change(Operation::Insert, &table, None, Some(&[t("x")]))).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Configuration);
    assert!(
        error
            .to_string()
            .contains("table public.t has a column whose name the flat envelope uses itself: __op")
    );
}

#[test]
fn a_row_with_too_few_cells_is_our_fault() {
    let record = || row_change(Operation::Insert, &customers(), None, Some(&[t("1"), t("Anne")]));
    for converter in [&mut debezium() as &mut dyn Converter<_, _>, &mut flat()] {
        assert_eq!(encode(converter, record()).unwrap_err().class(), ErrorClass::Bug);
    }
}

#[test]
fn after_an_error_the_buffer_is_clean() {
    let (mut converter, mut buffer) = (debezium(), BytesMut::new());
    let good = || row_change(Operation::Insert, &customers(), None, Some(&cells(&ANNE)));
    let bad =
        row_change(Operation::Insert, &customers(), None, Some(&cells(&["1", "Anne", "not a number", "x"])));
    let first = converter.encode(good(), &mut buffer).unwrap();
    converter.encode(bad, &mut buffer).unwrap_err();
    let second = converter.encode(good(), &mut buffer).unwrap();
    assert_eq!((first.key, first.value), (second.key, second.value));
}

#[test]
fn a_new_version_of_a_table_is_prepared_anew() {
    let registry = TypeRegistry::default();
    let mut converter = debezium();
    for name in ["before_rename", "after_rename"] {
        let table = relation("t", vec![column(name, 25, -1, &registry)], 0);
        let value = encode(&mut converter, row_change(Operation::Insert, &table, None, Some(&[t("x")])))
            .unwrap()
            .value;
        assert!(value.unwrap().contains(&format!("\"after\":{{\"{name}\":\"x\"}}")));
    }
}

#[test]
fn the_placeholder_is_configurable() {
    let registry = TypeRegistry::default();
    let columns = vec![
        column("a", 25, -1, &registry),
        column("b", 17, -1, &registry),
        column("c", 1007, -1, &registry),
    ];
    let table = relation("t", columns, 0);
    let options =
        DebeziumOptions { unavailable_value_placeholder: "hex:4142".to_owned(), ..Default::default() };
    let mut converter = DebeziumConverter::new(options, Arc::new(Still(NOW_NS))).unwrap();
    let record =
        row_change(Operation::Update, &table, None, Some(&[C::Unchanged, C::Unchanged, C::Unchanged]));
    let encoded = encode(&mut converter, record).unwrap();
    assert!(
        encoded.value.as_ref().unwrap().contains("\"after\":{\"a\":\"AB\",\"b\":\"QUI=\",\"c\":[65,66]}")
    );
    assert_eq!(encoded.header("__unavailable"), Some("[\"a\",\"b\",\"c\"]"));
    let options = DebeziumOptions { unavailable_value_placeholder: "hex:4".to_owned(), ..Default::default() };
    let error = DebeziumConverter::new(options, Arc::new(Still(NOW_NS))).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Configuration);
}
