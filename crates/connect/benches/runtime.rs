//! Records per second through the runtime alone: a source in memory, tiny records, no destination.
//!
//! `cargo bench -p crabka-connect`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use crabka_connect::{
    ConnectError, ConnectRecord, ConnectorRuntime, Converter, FileCheckpointStore, LineSink,
    MemoryCheckpointStore, NullSink, Sink, Source, SourceOffset,
};
use tokio::time::Instant;

const RECORDS: u64 = 1_000_000;

struct Numbers {
    next: u64,
    /// Records per poll; 0 makes one boxed poll per record, as the default does.
    chunk: usize,
}

impl Numbers {
    fn one(&mut self) -> Option<ConnectRecord<u64, u64>> {
        if self.next == RECORDS {
            return None;
        }
        self.next += 1;
        Some(ConnectRecord::new(Some(self.next), Some(self.next)))
    }
}

#[async_trait]
impl Source<u64, u64> for Numbers {
    async fn poll(&mut self) -> Result<Option<ConnectRecord<u64, u64>>, ConnectError> {
        Ok(self.one())
    }

    fn checkpoint(&self) -> Option<SourceOffset> {
        Some(SourceOffset::new(
            [
                ("system", "7000000000000000000".into()),
                ("database", "shop".into()),
                ("slot", "orders".into()),
            ],
            [("end_lsn", self.next.into()), ("commit_lsn", self.next.into()), ("ordinal", 0_u64.into())],
        ))
    }

    async fn seek(&mut self, offset: SourceOffset) -> Result<(), ConnectError> {
        self.next = offset.position["end_lsn"].as_u64().unwrap();
        Ok(())
    }

    async fn poll_batch(
        &mut self,
        limit: usize,
        out: &mut Vec<ConnectRecord<u64, u64>>,
    ) -> Result<usize, ConnectError> {
        let before = out.len();
        let most = if self.chunk == 0 { limit } else { limit.min(self.chunk) };
        while out.len() - before < most {
            let record = if self.chunk == 0 { self.poll().await? } else { self.one() };
            match record {
                Some(record) => out.push(record),
                None => break,
            }
        }
        Ok(out.len() - before)
    }
}

/// Decimal text, so that it is JSON as well.
struct Decimal;

impl Converter<u64, u64> for Decimal {
    fn encode(
        &mut self,
        record: ConnectRecord<u64, u64>,
        buffer: &mut BytesMut,
    ) -> Result<ConnectRecord<Bytes, Bytes>, ConnectError> {
        let mut number = record.value.unwrap_or_default();
        let mut digits = [0_u8; 20];
        let mut start = digits.len();
        loop {
            start -= 1;
            digits[start] = b'0' + u8::try_from(number % 10).unwrap();
            number /= 10;
            if number == 0 {
                break;
            }
        }
        buffer.put_slice(&digits[start..]);
        let text = buffer.split().freeze();
        Ok(record.with_key_value(Some(text.clone()), Some(text)))
    }
}

async fn measure(name: &str, chunk: usize, file: bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    let builder = ConnectorRuntime::builder("bench")
        .source(move || async move { Ok(Box::new(Numbers { next: 0, chunk }) as Box<dyn Source<_, _>>) })
        .converter(Decimal);
    let builder = if file {
        let store = FileCheckpointStore::open(folder.path().join("checkpoint")).await.unwrap();
        builder.checkpoint_store(store).sink(move || {
            let path = path.clone();
            async move { Ok(Box::new(LineSink::append(path).await?) as Box<dyn Sink<_, _>>) }
        })
    } else {
        let sink = || std::future::ready(Ok(Box::new(NullSink::new()) as Box<dyn Sink<_, _>>));
        builder.checkpoint_store(MemoryCheckpointStore::new()).sink(sink)
    };
    let runtime = builder.build().unwrap();
    let handle = runtime.handle();
    let began = Instant::now();
    let run = tokio::spawn(runtime.run());
    let status = handle.until(|status| status.records_acknowledged == RECORDS).await;
    let took = began.elapsed();
    handle.stop();
    run.await.unwrap().unwrap();
    let rate = RECORDS as f64 / took.as_secs_f64() / 1e6;
    println!("{name}: {rate:.2} million records/s, {} batches", status.batches);
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    for _ in 0..2 {
        measure("null sink, polls of 1024", 1024, false).await;
        measure("null sink, polls of 64", 64, false).await;
        measure("null sink, one boxed poll per record", 0, false).await;
        measure("null sink, polls of 1", 1, false).await;
        measure("line file with an offset per record, file checkpoint", 1024, true).await;
    }
}
