//! Embed the source with the runtime: batches, order of commits, retries and a graceful end are the runtime's.
//!
//! ```sh
//! cargo run -p crabka-examples --example with_runtime -- postgres://app@localhost/shop
//! ```
//!
//! Prints every change of `public.orders` as one line of JSON until Ctrl-C, or for as many records as a second
//! argument says.

use std::error::Error;
use std::sync::Arc;

use crabka_connect::{ConnectorRuntime, LineSink, MemoryCheckpointStore, Sink, Source, SystemClock};
use crabka_connect_postgres::envelope::{DebeziumConverter, DebeziumOptions};
use crabka_connect_postgres::{PostgresSource, PostgresSourceConfig, SourceFigures};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("first argument: the server's URL")?;
    let end_after: u64 = arguments.next().map_or(Ok(u64::MAX), |number| number.parse())?;

    let mut config = PostgresSourceConfig::new("with_runtime", url.parse()?)?;
    config.tables = vec!["public.orders".parse()?];
    // For how long another instance reads the slot is kept in them, over all sources of the run.
    let figures = Arc::<SourceFigures>::default();
    let runtime = ConnectorRuntime::builder("with_runtime")
        // Both are opened again after a transient error, from the last checkpoint.
        .source(move || {
            let source = PostgresSource::new(config.clone());
            let source = source.map(|source| source.with_figures(Arc::clone(&figures)));
            std::future::ready(source.map(|source| Box::new(source) as Box<dyn Source<_, _>>))
        })
        .sink(|| std::future::ready(Ok(Box::new(LineSink::stdout()) as Box<dyn Sink<_, _>>)))
        .converter(DebeziumConverter::new(DebeziumOptions::default(), Arc::new(SystemClock))?)
        .checkpoint_store(MemoryCheckpointStore::new())
        .build()?;

    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = handle.until(|status| status.records_acknowledged >= end_after) => {}
    }
    // What was read is finished, checkpointed and acknowledged before it ends.
    handle.stop();
    run.await??;
    Ok(())
}
