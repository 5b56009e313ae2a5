//! What the fuzz targets and the replay of their corpus run. Feature `fuzz`; not part of the API.
//!
//! A body panics when a promise is broken, and on nothing else.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use bytes::{BufMut, Bytes, BytesMut};
use crabka_connect::{ConnectRecord, Converter, SourceOffset, SystemClock};
use crabka_pgrepl::Lsn;
use serde::de::IgnoredAny;

use crate::envelope::{DebeziumConverter, DebeziumOptions, FlatConverter, FlatOptions, SOURCE_TEXT_HEADER};
use crate::types::{ColumnType, Form, TypeEntry, TypeKind, TypeRegistry, builtin_oids};
use crate::{
    Body, ChangeEvent, ChangeKey, ChangePart, Column, Operation, Relation, ReplicaIdentity, SourceInfo,
    StoredPosition,
};

/// Type modifiers as columns have them: none, and those that change what is written.
const TYPMODS: [i32; 8] = [-1, 0, 1, 3, 6, 9, 655_366, i32::MAX];

/// Types that a database has of its own.
static REGISTRY: LazyLock<TypeRegistry> = LazyLock::new(registry);

fn registry() -> TypeRegistry {
    let entry = |oid, name: &str, kind, extension: Option<&str>| TypeEntry {
        oid,
        schema: "public".to_owned(),
        name: name.to_owned(),
        kind,
        extension: extension.map(str::to_owned),
    };
    let mut registry = TypeRegistry::default();
    for entry in [
        entry(OWN_TYPES[0], "domain", TypeKind::Domain { base: 1700, typmod: 655_366 }, None),
        entry(OWN_TYPES[1], "enum", TypeKind::Enum { labels: vec!["a".to_owned()] }, None),
        entry(OWN_TYPES[2], "array", TypeKind::Array { element: OWN_TYPES[4], delimiter: b';' }, None),
        entry(OWN_TYPES[3], "range", TypeKind::Range { subtype: 25 }, None),
        entry(OWN_TYPES[4], "hstore", TypeKind::Base, Some("hstore")),
        entry(OWN_TYPES[5], "citext", TypeKind::Base, Some("citext")),
        entry(OWN_TYPES[6], "ltree", TypeKind::Base, Some("ltree")),
        entry(OWN_TYPES[7], "multirange", TypeKind::Multirange { range: OWN_TYPES[3] }, None),
        entry(OWN_TYPES[8], "composite", TypeKind::Composite, None),
    ] {
        registry.insert(entry);
    }
    registry
}

/// Oids of the types in [`REGISTRY`], in its order.
const OWN_TYPES: [u32; 9] = [90_000, 90_001, 90_002, 90_003, 90_004, 90_005, 90_006, 90_007, 90_008];

/// The types that [`value`] picks from, by index: every built-in type, its array, then those of a database's own.
pub fn types() -> &'static [u32] {
    static TYPES: LazyLock<Vec<u32>> = LazyLock::new(|| builtin_oids().chain(OWN_TYPES).collect());
    &TYPES
}

/// One cell: an u16 big-endian that picks the type of [`types`], a byte (bit 0: binary, bits 1 to 3: which modifier),
/// then the cell.
///
/// What is read is written as JSON by both envelopes and as the server's text in UTF-8, and what is written has a size
/// that the cell's and the type's limits explain.
pub fn value(input: &[u8]) {
    let Some((&[high, low, settings], cell)) = input.split_first_chunk() else { return };
    let types = types();
    let oid = types[usize::from(u16::from_be_bytes([high, low])) % types.len()];
    let typmod = TYPMODS[usize::from(settings >> 1) % TYPMODS.len()];
    let form = if settings & 1 == 0 { Form::Text } else { Form::Binary };
    let column_type = ColumnType::resolve(oid, typmod, &REGISTRY);
    if let Ok(text) = column_type.server_text(form, cell) {
        assert!(text.len() <= written_max(cell), "the text of {column_type:?} is too large: {}", text.len());
    }
    for json in written(&column_type, form, cell) {
        let read = serde_json::from_slice::<IgnoredAny>(&json);
        assert!(read.is_ok(), "what is written of {column_type:?} is not JSON");
        assert!(json.len() <= written_max(cell), "the JSON of {column_type:?} is too large: {}", json.len());
    }
}

/// Bytes that a cell may become: six for each (`\u0001`), and for each numeric the most digits that it may have, whose
/// binary form leaves out the zeros.
fn written_max(cell: &[u8]) -> usize {
    const NUMERIC: usize = 6 * 160_000;
    const NUMERIC_BINARY_MIN: usize = 8;
    1024 + 32 * cell.len() + NUMERIC * (cell.len() / NUMERIC_BINARY_MIN)
}

/// A stored offset: what is read comes back from its JSON, and a position comes back from its offset.
pub fn offset(input: &[u8]) {
    let Ok(offset) = SourceOffset::from_json(input) else { return };
    let json = offset.to_json();
    assert!(
        SourceOffset::from_json(json.as_bytes()).is_ok_and(|read| read == offset),
        "an offset comes back"
    );
    let Ok(stored) = StoredPosition::from_offset(&offset) else { return };
    let again = StoredPosition::from_offset(&stored.to_offset());
    assert!(again.is_ok_and(|again| again == stored), "a position comes back");
}

/// The row with that cell alone in both envelopes, and the server's text of what they cannot hold.
fn written(column_type: &ColumnType, form: Form, cell: &[u8]) -> impl Iterator<Item = Bytes> {
    let column = Column {
        name: "v".to_owned(),
        type_oid: column_type.oid(),
        typmod: column_type.typmod(),
        in_identity: false,
        not_null: None,
        column_type: column_type.clone(),
    };
    let relation = Arc::new(Relation {
        oid: 16_384,
        schema: "public".to_owned(),
        table: "t".to_owned(),
        identity: ReplicaIdentity::Nothing,
        columns: vec![column],
        key: Vec::new(),
        topic: "t".into(),
        version: 1,
    });
    let record = insert(relation, tuple(form, cell));
    let records = CONVERTERS.with_borrow_mut(|(debezium, flat)| {
        let mut buffer = BytesMut::new();
        let debezium =
            debezium.as_mut().and_then(|converter| converter.encode(record.clone(), &mut buffer).ok());
        [debezium, flat.encode(record, &mut buffer).ok()]
    });
    records.into_iter().flatten().flat_map(|record| {
        let texts = record.headers.iter().filter(|header| &*header.name == SOURCE_TEXT_HEADER);
        let texts: Vec<_> = texts.filter_map(|header| header.value.clone()).collect();
        record.value.into_iter().chain(texts)
    })
}

thread_local! {
    /// What they prepare for a relation is the same for all: a column's name, and a table's.
    static CONVERTERS: RefCell<(Option<DebeziumConverter>, FlatConverter)> = RefCell::new((
        DebeziumConverter::new(DebeziumOptions::default(), Arc::new(SystemClock)).ok(),
        FlatConverter::new(FlatOptions::default()),
    ));
}

fn insert(relation: Arc<Relation>, new: Bytes) -> ConnectRecord<ChangeKey, ChangeEvent> {
    let event = ChangeEvent {
        operation: Operation::Insert,
        part: ChangePart::Whole,
        lsn: Lsn::new(1),
        ordinal: 0,
        transaction: None,
        source: Arc::new(SourceInfo { topic_prefix: "p".to_owned(), database: "d".to_owned() }),
        body: Body::Row { relation, old: None, new: Some(new) },
    };
    ConnectRecord::new(None, Some(event))
}

/// TupleData of one cell.
fn tuple(form: Form, cell: &[u8]) -> Bytes {
    let kind = match form {
        Form::Text => b't',
        Form::Binary => b'b',
    };
    // An input of the fuzzer is far smaller than 4 GiB.
    let length = u32::try_from(cell.len()).unwrap_or_default();
    let mut tuple = BytesMut::new();
    tuple.put_u16(1);
    tuple.put_u8(kind);
    tuple.put_u32(length);
    tuple.put_slice(cell);
    tuple.freeze()
}
