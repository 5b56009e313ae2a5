//! Embed the source in a worker with a loop of its own: the host polls, does its work, saves the position, and only
//! then acknowledges.
//!
//! ```sh
//! cargo run -p crabka-examples --example own_loop -- postgres://app@localhost/shop /tmp/orders.offset
//! ```
//!
//! Needs `CREATE TABLE public.orders (id bigint PRIMARY KEY, customer text NOT NULL, quantity int NOT NULL)`. A third
//! argument ends it after so many changes.

use std::collections::BTreeMap;
use std::error::Error;

use crabka_connect::{CheckpointStore, FileCheckpointStore, Source};
use crabka_connect_postgres::{ChangeEvent, Field, Operation, PostgresSource, PostgresSourceConfig};

const CONNECTOR: &str = "own_loop";

/// The worker's own work: how much each customer has ordered.
#[derive(Default)]
struct Totals {
    by_customer: BTreeMap<String, i64>,
    changes: usize,
}

impl Totals {
    fn take(&mut self, event: &ChangeEvent) -> Result<(), Box<dyn Error>> {
        if event.operation != Operation::Insert {
            return Ok(());
        }
        let Some(row) = event.after() else { return Ok(()) };
        // Columns are read by name and Rust type, straight from what the server sent.
        let (Field::Value(customer), Field::Value(quantity)) =
            (row.get::<&str>("customer")?, row.get::<i32>("quantity")?)
        else {
            return Ok(());
        };
        *self.by_customer.entry(customer.to_owned()).or_default() += i64::from(quantity);
        self.changes += 1;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("first argument: the server's URL")?;
    let offset_file = arguments.next().ok_or("second argument: the file that keeps the position")?;
    let end_after: usize = arguments.next().map_or(Ok(usize::MAX), |number| number.parse())?;

    let mut config = PostgresSourceConfig::new(CONNECTOR, url.parse()?)?;
    config.tables = vec!["public.orders".parse()?];
    let mut source = PostgresSource::new(config)?;
    let mut store = FileCheckpointStore::open(offset_file).await?;
    if let Some(offset) = store.load(CONNECTOR).await? {
        source.seek(offset).await?;
    }

    let mut totals = Totals::default();
    let mut records = Vec::new();
    while totals.changes < end_after {
        records.clear();
        // Zero records: caught up for now. The source has waited a moment itself, so polling again at once is fine.
        if source.poll_batch(1_000, &mut records).await? == 0 {
            continue;
        }
        // Taken right after the batch: the position behind its last record.
        let offset = source.checkpoint();
        for record in &records {
            if let Some(event) = &record.value {
                totals.take(event)?;
            }
        }
        // In this order, always: the work is durable, the position is saved, the server may forget.
        if let Some(offset) = offset {
            store.save(CONNECTOR, &offset).await?;
            source.acknowledge(&offset).await?;
        }
        for (customer, quantity) in &totals.by_customer {
            println!("{customer}: {quantity}");
        }
    }
    source.close().await?;
    Ok(())
}
