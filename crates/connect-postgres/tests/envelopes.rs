//! Whole records of both envelopes against golden files: `golden/debezium.txt` and `golden/flat.txt`.
//!
//! `CRABKA_BLESS=1` writes them anew; read the difference before you commit it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod rows;
mod samples;

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use crabka_connect::{Converter, ErrorClass};
use crabka_connect_postgres::envelope::{
    AbsentColumns, DebeziumConverter, DebeziumOptions, FlatConverter, FlatOptions,
};
use crabka_connect_postgres::types::TypeRegistry;
use crabka_connect_postgres::{ChangeEvent, ChangeKey, Operation, ReplicaIdentity};
use rows::{C, NOW_NS, Still, column, debezium, encode, flat, relation, row_change, t};
use samples::{ANNE, absent_not_null_columns, all, cells, customers};

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
