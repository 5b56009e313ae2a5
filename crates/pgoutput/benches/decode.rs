//! Decoding of recorded rows: two shapes, in text and in binary.
//!
//! ```sh
//! cargo bench -p crabka-pgoutput --bench decode
//! ```
//!
//! Every figure is the time for one row: `decode` checks the message, `cells` also reads every cell of it.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::hint::black_box;

use crabka_pgoutput::{Cell, Decoder, Message};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

#[expect(dead_code, reason = "the tests use all of it")]
#[path = "../tests/suite/capture.rs"]
mod capture;

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("pgoutput");
    for base in ["bulk_narrow.pg15.text", "bulk_narrow.pg15.bin", "bulk_wide.pg15.text", "bulk_wide.pg15.bin"]
    {
        let cap = capture::open(base).read();
        let inserts: Vec<&[u8]> = capture::payloads(&cap).filter(|payload| payload[0] == b'I').collect();
        let mut rows = inserts.iter().cycle();
        group.throughput(Throughput::Elements(1));
        let mut decoder = Decoder::new();
        group.bench_function(BenchmarkId::new("decode", base), |b| {
            b.iter(|| decoder.decode(black_box(rows.next().unwrap())).map(|m| black_box(m).tag()));
        });
        group.bench_function(BenchmarkId::new("cells", base), |b| {
            b.iter(|| value_bytes(decoder.decode(black_box(rows.next().unwrap())).unwrap()));
        });
    }
    group.finish();
}

fn value_bytes(message: Message<'_>) -> usize {
    let Message::Insert(insert) = message else { panic!("not an Insert") };
    insert
        .new
        .cells()
        .map(|cell| match cell {
            Cell::Null | Cell::Unchanged => 0,
            Cell::Text(value) | Cell::Binary(value) => black_box(value).len(),
        })
        .sum()
}

criterion_group!(benches, decode);
criterion_main!(benches);
