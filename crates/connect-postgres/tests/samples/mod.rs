//! Records of every kind, for golden files.
#![allow(unreachable_pub)]

use std::sync::Arc;

use bytes::Bytes;
use crabka_connect::ConnectRecord;
use crabka_connect_postgres::types::{TypeEntry, TypeKind, TypeRegistry};
use crabka_connect_postgres::{
    Body, ChangeEvent, ChangeKey, ChangePart, LogicalMessage, OldRow, Operation, Origin, Relation,
    Transaction,
};
use crabka_pgrepl::Lsn;

use crate::rows::{C, b, column, event, relation, row_change, source, t, transaction, tuple};

pub type Record = ConnectRecord<ChangeKey, ChangeEvent>;

pub fn customers() -> Arc<Relation> {
    let registry = TypeRegistry::default();
    let columns = vec![
        column("id", 23, -1, &registry),
        column("first_name", 1043, 54, &registry),
        column("amount", 1700, (10 << 16 | 2) + 4, &registry),
        column("We\"ird", 25, -1, &registry),
    ];
    relation("customers", columns, 1)
}

pub const ANNE: [&str; 4] = ["1", "Anne", "3.30", "x"];

pub fn cells(values: &[&str]) -> Vec<C> {
    values.iter().map(|value| t(value)).collect()
}

pub fn without_key(record: Record) -> Record {
    ConnectRecord { key: None, ..record }
}

pub fn tombstone(relation: &Arc<Relation>, cells: &[C]) -> Record {
    let key = ChangeKey::Row { relation: Arc::clone(relation), tuple: tuple(cells), old: None };
    ConnectRecord::new(Some(key), None)
}

/// The records of an update that changes the key from 1 to 5, as the source makes them.
pub fn key_change(relation: &Arc<Relation>, old: (bool, &[C]), new: &[C]) -> [Record; 3] {
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

pub fn message(transaction: Option<Arc<Transaction>>, prefix: &str, content: &[u8]) -> Record {
    let body = Body::Message(Box::new(LogicalMessage {
        transactional: transaction.is_some(),
        prefix: prefix.to_owned(),
        content: Bytes::copy_from_slice(content),
    }));
    let event = ChangeEvent { transaction, ..event(Operation::Message, body) };
    ConnectRecord::new(Some(ChangeKey::Message { prefix: prefix.to_owned() }), Some(event))
}

pub fn changes() -> Vec<(&'static str, Record)> {
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

pub fn values_that_are_not_there() -> Vec<(&'static str, Record)> {
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

pub fn absent_not_null_columns() -> (&'static str, Record) {
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

pub fn values_a_field_cannot_hold() -> (&'static str, Record) {
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

pub fn all() -> Vec<(&'static str, Record)> {
    let mut all = changes();
    all.extend(values_that_are_not_there());
    all.push(absent_not_null_columns());
    all.push(values_a_field_cannot_hold());
    all
}
