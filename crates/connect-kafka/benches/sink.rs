//! Records per second and CPU of the sink, into a real broker of its own.
//!
//! `cargo bench -p crabka-connect-kafka --bench sink`. Prints one line per batch size and linger; `longest turn` is the
//! longest time that `put` kept the runtime's thread before it let others run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crabka_connect::{ConnectRecord, Sink};
use crabka_connect_kafka::{KafkaSink, KafkaSinkConfig};
use crabka_testkit::KafkaBroker;

const VALUE_BYTES: usize = 200;

/// User and system time of this process so far, in hundredths of a second as the kernel counts.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].iter().filter_map(|field| fields.get(*field)).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// Drives a future and tells the longest of its polls.
async fn longest_poll<F: Future>(future: F, longest: &mut Duration) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        let began = Instant::now();
        let polled = future.as_mut().poll(context);
        *longest = began.elapsed().max(*longest);
        polled
    })
    .await
}

async fn measure(servers: &str, batch: usize, linger_ms: u32, records: usize) {
    let topic = format!("bench-{batch}-{linger_ms}");
    let config = KafkaSinkConfig { linger_ms, ..KafkaSinkConfig::new(servers) };
    let mut sink = KafkaSink::open(config).await.unwrap();
    sink.prepare(&[&topic]).await.unwrap();
    let topic: std::sync::Arc<str> = topic.into();
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    let keys: Vec<Bytes> = (0..10_000).map(|id| Bytes::from(format!(r#"{{"id":{id:08}}}"#))).collect();
    let mut longest = Duration::ZERO;
    let mut buffer = Vec::with_capacity(batch);
    let (began, cpu) = (Instant::now(), cpu_ticks());
    for first in (0..records).step_by(batch) {
        buffer.extend((first..first + batch).map(|n| {
            ConnectRecord::new(Some(keys[n % keys.len()].clone()), Some(value.clone()))
                .with_topic(topic.clone())
        }));
        sink.begin().await.unwrap();
        longest_poll(sink.put(&mut buffer), &mut longest).await.unwrap();
        sink.commit(None).await.unwrap();
    }
    let (took, cpu) = (began.elapsed().as_secs_f64(), cpu_ticks() - cpu);
    let written = sink.counters().delivered() as f64;
    println!(
        "batch {batch:>6}  linger {linger_ms} ms  {:>8.0} records/s  {:>5.2} us CPU/record  {:>6.2} ms/batch  longest turn \
         {:>5.2} ms",
        written / took,
        cpu as f64 * 10_000.0 / written,
        took * 1_000.0 * batch as f64 / written,
        longest.as_secs_f64() * 1_000.0,
    );
    sink.close().await.unwrap();
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // `cargo bench` says so; `cargo test --all-targets` runs this too and wants no measurement.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let broker = KafkaBroker::builder().heap_mb(768).start().await.unwrap();
    let servers = broker.bootstrap_servers();
    // The broker's Java compiles what it runs often.
    measure(&servers, 16_000, 0, 400_000).await;
    for linger_ms in [0, 1, 5] {
        for (batch, records) in [(64, 128_000), (1_024, 1_024_000), (16_384, 1_048_576)] {
            measure(&servers, batch, linger_ms, records).await;
        }
    }
}
