//! The SPI as somebody else's crate sees it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use crabka_connect::{
    ConnectError, ConnectRecord, ConnectorRuntime, FileCheckpointStore, JsonConverter, LineSink, NullSink,
    Scalar, Sink, Source, SourceOffset,
};
use serde_json::{Value, json};

/// A source with exactly the methods that have no default: what a connector written to the original SPI looks like.
struct Countdown {
    next: u64,
}

#[async_trait]
impl Source<Value, Value> for Countdown {
    async fn poll(&mut self) -> Result<Option<ConnectRecord<Value, Value>>, ConnectError> {
        if self.next == 0 {
            return Ok(None);
        }
        let record = ConnectRecord::new(Some(json!(self.next)), Some(json!({ "left": self.next - 1 })));
        self.next -= 1;
        Ok(Some(record.with_topic("countdown")))
    }

    fn checkpoint(&self) -> Option<SourceOffset> {
        Some(SourceOffset::new([], [("next", self.next.into())]))
    }

    async fn seek(&mut self, offset: SourceOffset) -> Result<(), ConnectError> {
        let next = offset.position.get("next").and_then(Scalar::as_u64);
        self.next = next.ok_or_else(|| ConnectError::offset("no position in the offset"))?;
        Ok(())
    }
}

#[tokio::test]
async fn a_source_with_the_seeds_methods_only_can_be_driven_by_hand() {
    let mut source: Box<dyn Source<Value, Value>> = Box::new(Countdown { next: 5 });
    let mut out = Vec::new();
    assert_eq!(source.poll_batch(3, &mut out).await.unwrap(), 3);
    let offset = source.checkpoint().unwrap();
    source.acknowledge(&offset).await.unwrap();
    assert_eq!(source.poll_batch(3, &mut out).await.unwrap(), 2);
    assert_eq!(source.poll_batch(3, &mut out).await.unwrap(), 0);
    assert_eq!(out.len(), 5);
    source.close().await.unwrap();

    let mut source = Countdown { next: 99 };
    source.seek(offset).await.unwrap();
    assert_eq!(source.poll().await.unwrap().unwrap().key, Some(json!(2)));
    assert!(matches!(source.seek(SourceOffset::default()).await, Err(ConnectError::Offset(_))));
}

#[tokio::test]
async fn a_source_with_the_seeds_methods_only_runs() {
    let sink = NullSink::new();
    let counts = sink.counts();
    let runtime = ConnectorRuntime::builder("countdown")
        .source(|| async { Ok(Box::new(Countdown { next: 1000 }) as Box<dyn Source<_, _>>) })
        .sink(move || std::future::ready(Ok(Box::new(sink.clone()) as Box<dyn Sink<_, _>>)))
        .converter(JsonConverter)
        .checkpoint_store(crabka_connect::MemoryCheckpointStore::new())
        .build()
        .unwrap();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    let status = handle.until(|status| status.records_acknowledged == 1000).await;
    assert_eq!(status.checkpointed.unwrap().to_json(), r#"{"partition":{},"position":{"next":0}}"#);
    handle.stop();
    run.await.unwrap().unwrap();
    assert_eq!(counts.records(), 1000);
    let json = serde_json::to_value(handle.status()).unwrap();
    assert_eq!(json["phase"], "stopped");
    assert_eq!(json["acknowledged"]["position"]["next"], 0);
}

/// One process: runs until `left` records are left, with everything on disk.
async fn process(folder: &Path, left: u64) {
    let lines: PathBuf = folder.join("out.jsonl");
    let runtime = ConnectorRuntime::builder("countdown")
        .source(|| async { Ok(Box::new(Countdown { next: 100 }) as Box<dyn Source<_, _>>) })
        .sink(move || {
            let lines = lines.clone();
            async move { Ok(Box::new(LineSink::append(lines).await?) as Box<dyn Sink<_, _>>) }
        })
        .converter(JsonConverter)
        .checkpoint_store(FileCheckpointStore::open(folder.join("checkpoint")).await.unwrap())
        .limits(crabka_connect::Limits { max_batch_records: 9, ..Default::default() })
        .build()
        .unwrap();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    let is_there = move |offset: &SourceOffset| offset.position["next"].as_u64().unwrap() <= left;
    let status = handle.until(|status| status.checkpointed.as_deref().is_some_and(is_there)).await;
    assert!(!status.phase.has_ended(), "{:?}", status.last_error);
    handle.stop();
    run.await.unwrap().unwrap();
}

#[tokio::test]
async fn lines_and_checkpoint_on_disk_go_on_where_they_stopped() {
    let folder = tempfile::tempdir().unwrap();
    process(folder.path(), 60).await;
    process(folder.path(), 0).await;
    let text = std::fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let keys: Vec<u64> = lines.iter().map(|line| line["key"].as_u64().unwrap()).collect();
    assert_eq!(keys, (1..=100).rev().collect::<Vec<_>>());
    for line in &lines {
        assert_eq!(line["topic"], "countdown");
        // The position behind this very record, whatever the batch was.
        assert_eq!(line["offset"]["position"]["next"], line["value"]["left"]);
    }
}
