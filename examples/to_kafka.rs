//! Stream into Kafka from a program of your own: what `crabka run` does, with the checkpoint kept in Kafka as well.
//!
//! ```sh
//! cargo run -p crabka-examples --example to_kafka -- postgres://app@localhost/shop localhost:9092
//! ```
//!
//! Changes of `public.orders` go to the topic `to_kafka.public.orders`. A third argument ends it after so many records.

use std::error::Error;
use std::sync::Arc;

use crabka_connect::{ConnectorRuntime, Sink, Source, SystemClock};
use crabka_connect_kafka::{KafkaCheckpointConfig, KafkaCheckpointStore, KafkaSink, KafkaSinkConfig};
use crabka_connect_postgres::envelope::{DebeziumConverter, DebeziumOptions};
use crabka_connect_postgres::{PostgresSource, PostgresSourceConfig, SourceFigures};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("first argument: the server's URL")?;
    let brokers = arguments.next().ok_or("second argument: Kafka's HOST:PORT")?;
    let end_after: u64 = arguments.next().map_or(Ok(u64::MAX), |number| number.parse())?;

    let mut postgres = PostgresSourceConfig::new("to_kafka", url.parse()?)?;
    postgres.tables = vec!["public.orders".parse()?];
    // For how long another instance reads the slot is kept in them, over all sources of the run.
    let figures = Arc::<SourceFigures>::default();
    let kafka = KafkaSinkConfig::new(&brokers);
    let store = KafkaCheckpointStore::open(KafkaCheckpointConfig::new(&brokers)).await?;

    let runtime = ConnectorRuntime::builder("to_kafka")
        .source(move || {
            let source = PostgresSource::new(postgres.clone());
            let source = source.map(|source| source.with_figures(Arc::clone(&figures)));
            std::future::ready(source.map(|source| Box::new(source) as Box<dyn Source<_, _>>))
        })
        .sink(move || {
            let kafka = kafka.clone();
            async move { Ok(Box::new(KafkaSink::open(kafka).await?) as Box<dyn Sink<_, _>>) }
        })
        .converter(DebeziumConverter::new(DebeziumOptions::default(), Arc::new(SystemClock))?)
        .checkpoint_store(store)
        .build()?;

    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        status = handle.until(|status| status.records_acknowledged >= end_after) => {
            println!("{} records are durable in Kafka and released in PostgreSQL", status.records_acknowledged);
        }
    }
    handle.stop();
    run.await??;
    Ok(())
}
