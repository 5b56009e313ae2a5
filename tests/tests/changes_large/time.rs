//! The time of a row does not grow with its transaction, nor that of a transaction with their number.

use std::sync::Arc;

use bytes::BytesMut;
use crabka_connect::{Converter, Source, SystemClock};
use crabka_connect_postgres::envelope::{DebeziumConverter, DebeziumOptions};
use crabka_connect_postgres::{Operation, PostgresSource};
use crabka_testkit::{PgServer, needs};
use crabka_tests::Database;

use crate::measure::{alone, processor_ns, size};

/// How much more a row may cost in one size than in another. Far from quadratic, and far enough from what a loaded
/// machine does to caches.
const RATIO_MAX: f64 = 3.0;

struct Measured {
    database: Database,
    source: PostgresSource,
    converter: DebeziumConverter,
    next: i64,
}

impl Measured {
    async fn new() -> Self {
        let server = PgServer::shared_default().await.unwrap();
        let table = "CREATE TABLE t (id bigint PRIMARY KEY, v text, n numeric, at timestamptz DEFAULT now())";
        let database = Database::on(server, table).await;
        let mut source = PostgresSource::new(database.config(&["public.t"])).unwrap();
        assert!(source.poll().await.unwrap().is_none());
        let converter = DebeziumConverter::new(DebeziumOptions::default(), Arc::new(SystemClock)).unwrap();
        Self { database, source, converter, next: 1 }
    }

    /// Processor time of a row, in ns, with `rows` rows written by `statement(first, last)`.
    async fn per_row(&mut self, rows: u32, statement: impl Fn(i64, i64) -> String) -> f64 {
        let (first, last) = (self.next, self.next + i64::from(rows) - 1);
        self.database.run(&statement(first, last)).await;
        let (mut batch, mut scratch) = (Vec::new(), BytesMut::new());
        let before = processor_ns();
        while self.next <= last {
            self.source.poll_batch(1000, &mut batch).await.unwrap();
            for record in batch.drain(..) {
                if record.value.as_ref().unwrap().operation == Operation::Heartbeat {
                    continue;
                }
                self.converter.encode(record, &mut scratch).unwrap();
                self.next += 1;
            }
        }
        let spent = processor_ns() - before;
        let offset = self.source.checkpoint().unwrap();
        self.source.acknowledge(&offset).await.unwrap();
        #[allow(clippy::cast_precision_loss)]
        let per_row = spent as f64 / f64::from(rows);
        println!("{rows} rows: {per_row:.0} ns each");
        per_row
    }
}

fn within_bounds(what: &str, costs: &[f64]) {
    let (least, most) = costs.iter().fold((f64::MAX, 0.0_f64), |(a, b), cost| (a.min(*cost), b.max(*cost)));
    assert!(most / least < RATIO_MAX, "{what}: between {least:.0} and {most:.0} ns a row: {costs:?}");
}

/// `CRABKA_TEST_LINEAR_ROWS` sets the largest transaction and the number of small ones; 300 000 is the case's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_15_linear_time() {
    needs!(postgres);
    let _alone = alone().await;
    let largest = size("CRABKA_TEST_LINEAR_ROWS", 100_000);
    let mut measured = Measured::new().await;
    let one = |first: i64, last: i64| {
        format!("INSERT INTO t SELECT g, 'row number ' || g, g * 1.5 FROM generate_series({first}, {last}) g")
    };
    // In a warm process, and for small sizes the best of several.
    measured.per_row(5_000, one).await;
    let mut costs = Vec::new();
    for rows in [1_000, 10_000, largest] {
        let mut best = f64::MAX;
        for _ in 0..(largest / rows).clamp(1, 4) {
            best = best.min(measured.per_row(rows, one).await);
        }
        costs.push(best);
    }
    within_bounds("one transaction", &costs);

    let many = |first: i64, last: i64| {
        format!(
            "DO $$ BEGIN FOR i IN {first}..{last} LOOP \
             INSERT INTO t VALUES (i, 'row number ' || i, i * 1.5); COMMIT; END LOOP; END $$"
        )
    };
    let mut costs = Vec::new();
    for rows in [largest / 20, largest / 5] {
        costs.push(measured.per_row(rows, many).await);
    }
    within_bounds("transactions of one row", &costs);
    measured.source.close().await.unwrap();
}
