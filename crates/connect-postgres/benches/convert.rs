//! Nanoseconds per row from typed change to bytes: a narrow row of seven columns and a wide one of forty, in text
//! and in binary, in both envelopes.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../tests/rows/mod.rs"]
mod rows;

use std::hint::black_box;
use std::sync::Arc;

use bytes::BytesMut;
use crabka_connect::{ConnectRecord, Converter, SystemClock};
use crabka_connect_postgres::envelope::{DebeziumConverter, DebeziumOptions, FlatConverter, FlatOptions};
use crabka_connect_postgres::types::TypeRegistry;
use crabka_connect_postgres::{ChangeEvent, ChangeKey, Operation, Relation};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rows::{C, b, column, relation, row_change, t};

/// A column, its value as text and in binary.
type Sample = (&'static str, u32, i32, &'static str, &'static [u8]);

const NUMERIC_10_2: i32 = (10 << 16 | 2) + 4;

const NARROW: [Sample; 7] = [
    ("id", 20, -1, "1234567", &[0, 0, 0, 0, 0, 0x12, 0xD6, 0x87]),
    ("customer_id", 23, -1, "90210", &[0, 1, 0x60, 0x62]),
    ("status", 25, -1, "shipped", b"shipped"),
    ("amount", 1700, NUMERIC_10_2, "1234.50", &[0, 2, 0, 0, 0, 0, 0, 2, 0x04, 0xD2, 0x13, 0x88]),
    ("paid", 16, -1, "t", &[1]),
    ("note", 1043, 54, "leave it with the neighbour", b"leave it with the neighbour"),
    ("created_at", 1184, -1, "2024-02-29 07:04:56.789+00", &[0x00, 0x02, 0xB5, 0x7E, 0xA5, 0x46, 0x80, 0x08]),
];

/// What the wide row has besides the narrow one, again and again.
const MORE: [Sample; 5] = [
    (
        "uuid",
        2950,
        -1,
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        &[0xA0, 0xEE, 0xBC, 0x99, 0x9C, 0x0B, 0x4E, 0xF8, 0xBB, 0x6D, 0x6B, 0xB9, 0xBD, 0x38, 0x0A, 0x11],
    ),
    ("doc", 3802, -1, "{\"a\": 1, \"tags\": [\"x\", \"y\"]}", b"\x01{\"a\": 1, \"tags\": [\"x\", \"y\"]}"),
    ("ratio", 701, -1, "0.1", &[0x3F, 0xB9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9A]),
    ("day", 1082, -1, "2024-02-29", &[0, 0, 0x22, 0x79]),
    (
        "text",
        25,
        -1,
        "a somewhat longer piece of text, as people write it into forms",
        b"a somewhat longer piece of text, as people write it into forms",
    ),
];

fn wide() -> Vec<Sample> {
    NARROW.iter().chain(MORE.iter().cycle()).take(40).copied().collect()
}

fn table(samples: &[Sample]) -> Arc<Relation> {
    let registry = TypeRegistry::default();
    let columns = samples
        .iter()
        .enumerate()
        .map(|(index, &(name, oid, typmod, ..))| column(&format!("{name}_{index}"), oid, typmod, &registry))
        .collect();
    relation("orders", columns, 1)
}

const BATCH: usize = 1000;

fn bench_rows(criterion: &mut Criterion, name: &str, samples: &[Sample]) {
    let table = table(samples);
    let text: Vec<C> = samples.iter().map(|sample| t(sample.3)).collect();
    let binary: Vec<C> = samples.iter().map(|sample| b(sample.4)).collect();
    for (form, cells) in [("text", text), ("binary", binary)] {
        let record = row_change(Operation::Update, &table, None, Some(&cells));
        let clock = || Arc::new(SystemClock);
        let with_headers = DebeziumConverter::new(DebeziumOptions::default(), clock()).unwrap();
        let options = DebeziumOptions { extended_headers: false, ..Default::default() };
        let without_headers = DebeziumConverter::new(options, clock()).unwrap();
        let flat = FlatConverter::new(FlatOptions::default());
        bench(criterion, &format!("{name}/{form}/debezium"), with_headers, &record);
        bench(
            criterion,
            &format!("{name}/{form}/debezium without context headers"),
            without_headers,
            &record,
        );
        bench(criterion, &format!("{name}/{form}/flat"), flat, &record);
    }
}

fn bench(
    criterion: &mut Criterion,
    name: &str,
    mut converter: impl Converter<ChangeKey, ChangeEvent>,
    record: &ConnectRecord<ChangeKey, ChangeEvent>,
) {
    let mut group = criterion.benchmark_group("convert");
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut buffer = BytesMut::new();
    group.bench_function(name, |bencher| {
        bencher.iter_batched(
            || vec![record.clone(); BATCH],
            |records| {
                let encode = |record| converter.encode(black_box(record), &mut buffer).unwrap();
                records.into_iter().map(encode).collect::<Vec<_>>()
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn convert(criterion: &mut Criterion) {
    bench_rows(criterion, "narrow", &NARROW);
    bench_rows(criterion, "wide", &wide());
}

criterion_group!(benches, convert);
criterion_main!(benches);
