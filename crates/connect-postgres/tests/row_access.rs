//! Reading columns by name and Rust type.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod rows;

use crabka_connect::{ConnectError, ErrorClass};
use crabka_connect_postgres::types::{Date, Interval, Numeric, Timestamp, TypeRegistry};
use crabka_connect_postgres::{Field, FieldError, LogicalMessage, Operation};
use rows::{C, b, column, relation, row_change, t};

#[test]
fn columns_are_read_as_rust_types() {
    let registry = TypeRegistry::default();
    let columns = [
        ("flag", 16),
        ("small", 21),
        ("number", 23),
        ("big", 20),
        ("oid", 26),
        ("single", 700),
        ("double", 701),
        ("name", 25),
        ("doc", 3802),
        ("amount", 1700),
        ("id", 2950),
        ("bytes", 17),
        ("day", 1082),
        ("at", 1184),
        ("span", 1186),
        ("list", 1007),
    ];
    let table = relation("t", columns.map(|(name, oid)| column(name, oid, -1, &registry)).into(), 0);
    let text = [
        "t",
        "-2",
        "3",
        "4",
        "4294967295",
        "0.5",
        "0.25",
        "Ann",
        "{\"a\": [1, null]}",
        "1.50",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "\\x00ff",
        "2024-02-29",
        "2000-01-01 00:00:01+00",
        "1 mon 00:00:01",
        "{1,NULL}",
    ];
    let record = row_change(Operation::Insert, &table, None, Some(&text.map(t)));
    let event = record.value.unwrap();
    let row = event.after().unwrap();
    assert_eq!(row.get::<bool>("flag").unwrap(), Field::Value(true));
    assert_eq!(row.get::<i16>("small").unwrap(), Field::Value(-2));
    assert_eq!(row.get::<i32>("small").unwrap(), Field::Value(-2));
    assert_eq!(row.get::<i64>("number").unwrap(), Field::Value(3));
    assert_eq!(row.get::<i64>("big").unwrap(), Field::Value(4));
    assert_eq!(row.get::<u32>("oid").unwrap(), Field::Value(u32::MAX));
    assert_eq!(row.get::<f32>("single").unwrap(), Field::Value(0.5));
    assert_eq!(row.get::<f64>("double").unwrap(), Field::Value(0.25));
    assert_eq!(row.get::<&str>("name").unwrap(), Field::Value("Ann"));
    assert_eq!(
        row.get::<serde_json::Value>("doc").unwrap(),
        Field::Value(serde_json::json!({"a": [1, null]}))
    );
    assert_eq!(row.get::<serde_json::Value>("list").unwrap(), Field::Value(serde_json::json!([1, null])));
    assert_eq!(row.get::<String>("amount").unwrap(), Field::Value("1.50".to_owned()));
    assert!(
        matches!(row.get::<Numeric>("amount").unwrap(), Field::Value(Numeric::Finite(decimal)) if decimal.scale() == 2)
    );
    let uuid: [u8; 16] = row.get("id").unwrap().value().unwrap();
    assert_eq!((uuid[0], uuid[15]), (0xA0, 0x11));
    assert_eq!(
        row.get::<String>("id").unwrap().value().as_deref(),
        Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
    );
    assert_eq!(row.get::<Vec<u8>>("bytes").unwrap(), Field::Value(vec![0, 255]));
    assert_eq!(row.get::<bytes::Bytes>("bytes").unwrap().value().unwrap().len(), 2);
    assert_eq!(row.get::<Date>("day").unwrap().value().unwrap().unix_days(), Some(19_782));
    assert_eq!(row.get::<Timestamp>("at").unwrap().value().unwrap().unix_us(), Some(946_684_801_000_000));
    let span = Interval { months: 1, days: 0, us: 1_000_000 };
    assert_eq!(row.get::<Interval>("span").unwrap(), Field::Value(span));
    assert_eq!(row.server_text("list").unwrap(), Field::Value("{1,NULL}".to_owned()));
    assert_eq!(row.get_at::<i32>(2).unwrap(), Field::Value(3));
}

#[test]
fn text_is_not_copied() {
    let table = relation("t", vec![column("name", 25, -1, &TypeRegistry::default())], 0);
    let record = row_change(Operation::Insert, &table, None, Some(&[b(b"Ann")]));
    let event = record.value.unwrap();
    let crabka_connect_postgres::Body::Row { new: Some(tuple), .. } = &event.body else { panic!() };
    let name: &str = event.after().unwrap().get("name").unwrap().value().unwrap();
    assert!(tuple.as_ptr_range().contains(&name.as_ptr()));
}

#[test]
fn null_unchanged_and_absent_are_told_apart() {
    let registry = TypeRegistry::default();
    let columns = ["id", "n", "big"].map(|name| column(name, 25, -1, &registry));
    let table = relation("t", columns.into(), 1);
    let update =
        row_change(Operation::Update, &table, None, Some(&[t("1"), C::Null, C::Unchanged])).value.unwrap();
    let row = update.after().unwrap();
    assert_eq!(row.get::<&str>("id").unwrap(), Field::Value("1"));
    assert_eq!(row.get::<&str>("n").unwrap(), Field::Null);
    assert_eq!(row.get::<&str>("big").unwrap(), Field::Unchanged);
    assert!(!row.get::<&str>("big").unwrap().is_known());
    assert!(update.before().is_none());

    let delete = row_change(Operation::Delete, &table, Some((false, &[t("1"), C::Null, C::Null])), None)
        .value
        .unwrap();
    let row = delete.before().unwrap();
    assert!(row.is_key_only());
    assert_eq!(row.get::<&str>("id").unwrap(), Field::Value("1"));
    assert_eq!(row.get::<&str>("n").unwrap(), Field::Absent);

    let old = [t("1"), C::Null, t("long")];
    let full =
        row_change(Operation::Update, &table, Some((true, &old)), Some(&[t("1"), t("2"), C::Unchanged]));
    let full = full.value.unwrap();
    assert_eq!(full.after().unwrap().get::<&str>("big").unwrap(), Field::Value("long"));
    assert_eq!(full.before().unwrap().get::<&str>("n").unwrap(), Field::Null);
}

#[test]
fn errors_name_table_and_column_and_show_no_value() {
    let registry = TypeRegistry::default();
    let table = relation("t", vec![column("id", 23, -1, &registry), column("more", 23, -1, &registry)], 0);
    let event = row_change(Operation::Insert, &table, None, Some(&[t("secret")])).value.unwrap();
    let row = event.after().unwrap();
    let class = |error: FieldError| (error.to_string(), ConnectError::from(error).class());
    assert_eq!(
        class(row.get::<i32>("nope").unwrap_err()),
        ("table public.t has no column of that name: nope".to_owned(), ErrorClass::Configuration)
    );
    assert_eq!(
        class(row.get::<i32>("more").unwrap_err()),
        ("row of table public.t ends before column: more".to_owned(), ErrorClass::Bug)
    );
    assert_eq!(
        class(row.get::<i32>("id").unwrap_err()),
        (
            "table public.t, column id: text form of type int4 cannot be read: not a number".to_owned(),
            ErrorClass::Data
        )
    );
    let event = row_change(Operation::Insert, &table, None, Some(&[t("7"), C::Null])).value.unwrap();
    assert_eq!(
        class(event.after().unwrap().get::<bool>("id").unwrap_err()),
        (
            "table public.t, column id: a value of type int4 cannot be read as bool".to_owned(),
            ErrorClass::Data
        )
    );
}

#[test]
fn debug_forms_show_no_values() {
    let table = relation("t", vec![column("id", 25, -1, &TypeRegistry::default())], 1);
    let record = row_change(Operation::Update, &table, Some((true, &[t("secret")])), Some(&[t("secret")]));
    let shown = format!("{record:?}");
    assert!(shown.contains("public.t") && !shown.contains("secret"), "{shown}");
    let message = LogicalMessage { transactional: true, prefix: "p".to_owned(), content: "secret".into() };
    assert!(!format!("{message:?}").contains("secret"));
}
