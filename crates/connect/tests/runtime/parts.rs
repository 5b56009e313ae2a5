//! A source, a sink and a store that do what a test tells them, and remember what was asked of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crabka_connect::{
    CheckpointStore, ConnectError, ConnectRecord, ConnectorRuntime, ConnectorRuntimeBuilder, JsonConverter,
    Limits, MemoryCheckpointStore, RetryPolicy, Sink, Source, SourceOffset,
};
use serde_json::{Value, json};

pub(crate) fn offset(n: u64) -> SourceOffset {
    SourceOffset::new([("stream", "numbers".into())], [("n", n.into())])
}

pub(crate) fn number(offset: &SourceOffset) -> u64 {
    offset.position["n"].as_u64().unwrap()
}

/// What a call is to do next.
pub(crate) enum Next {
    Fail(ConnectError),
    Panic,
}

impl Next {
    fn act(self) -> Result<(), ConnectError> {
        match self {
            Self::Fail(error) => Err(error),
            Self::Panic => panic!("told to panic"),
        }
    }
}

#[derive(Default)]
pub(crate) struct SourceState {
    /// Numbers up to this are available.
    pub(crate) available: u64,
    /// Most numbers returned by one poll; 0 is no limit.
    pub(crate) chunk: usize,
    /// How long a poll takes.
    pub(crate) poll_time: Duration,
    /// How long a poll waits before it says that it is caught up.
    pub(crate) idle_time: Duration,
    /// Outcome of the next polls, after appending what is available.
    pub(crate) polls: VecDeque<Next>,
    /// Outcome of the next acknowledges.
    pub(crate) acknowledges: VecDeque<Next>,
    /// Outcome of the next attempts to open.
    pub(crate) opens: VecDeque<Next>,
    pub(crate) no_checkpoint: bool,
    pub(crate) opened: Vec<tokio::time::Instant>,
    pub(crate) sought: Vec<u64>,
    pub(crate) polled: u64,
    pub(crate) poll_calls: usize,
    pub(crate) acknowledged: Vec<u64>,
    pub(crate) closed: usize,
}

#[derive(Default)]
pub(crate) struct SinkState {
    /// Committed batches.
    pub(crate) batches: Vec<Vec<u64>>,
    pub(crate) put: Vec<u64>,
    /// Commits do not return while this is set.
    pub(crate) blocked: bool,
    pub(crate) commit_time: Duration,
    pub(crate) commits: VecDeque<Next>,
    pub(crate) opens: VecDeque<Next>,
    pub(crate) stores_offset: bool,
    pub(crate) stored: Option<u64>,
    pub(crate) record_offsets: bool,
    /// Offsets carried by committed records.
    pub(crate) offsets: Vec<Option<u64>>,
    pub(crate) aborted: usize,
    pub(crate) closed: usize,
}

#[derive(Default)]
pub(crate) struct StoreState {
    pub(crate) save_time: Duration,
    pub(crate) saves: VecDeque<Next>,
    /// A failing save stores all the same.
    pub(crate) fails_after_effect: bool,
    pub(crate) saved: Vec<u64>,
    pub(crate) loads: usize,
}

/// The three parts of one test.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    source: Arc<Mutex<SourceState>>,
    sink: Arc<Mutex<SinkState>>,
    store: Arc<Mutex<StoreState>>,
    pub(crate) memory: MemoryCheckpointStore,
}

impl Parts {
    pub(crate) fn with(available: u64) -> Self {
        let parts = Self::default();
        parts.source().available = available;
        parts
    }

    pub(crate) fn source(&self) -> MutexGuard<'_, SourceState> {
        self.source.lock().unwrap()
    }

    pub(crate) fn sink(&self) -> MutexGuard<'_, SinkState> {
        self.sink.lock().unwrap()
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, StoreState> {
        self.store.lock().unwrap()
    }

    pub(crate) fn saved(&self) -> u64 {
        self.memory.get("numbers").as_ref().map_or(0, number)
    }

    pub(crate) fn delivered(&self) -> Vec<u64> {
        self.sink().batches.concat()
    }

    pub(crate) fn builder(&self) -> ConnectorRuntimeBuilder<Value, Value> {
        let (source, sink) = (self.clone(), self.clone());
        ConnectorRuntime::builder("numbers")
            .source(move || {
                let parts = source.clone();
                async move {
                    let next = {
                        let mut state = parts.source();
                        state.opened.push(tokio::time::Instant::now());
                        state.opens.pop_front()
                    };
                    next.map_or(Ok(()), Next::act)?;
                    Ok(Box::new(Numbers { parts, position: 0 }) as Box<dyn Source<Value, Value>>)
                }
            })
            .sink(move || {
                let parts = sink.clone();
                async move {
                    let next = parts.sink().opens.pop_front();
                    next.map_or(Ok(()), Next::act)?;
                    Ok(Box::new(Batches(parts)) as Box<dyn Sink<Bytes, Bytes>>)
                }
            })
            .converter(JsonConverter)
            .checkpoint_store(Store(self.clone()))
            .limits(Limits { max_batch_records: 1000, ..Limits::default() })
            .retry(RetryPolicy::default())
            .random(|| 1.0)
    }

    pub(crate) fn build(&self) -> ConnectorRuntime<Value, Value> {
        self.builder().build().unwrap()
    }
}

struct Numbers {
    parts: Parts,
    position: u64,
}

#[async_trait]
impl Source<Value, Value> for Numbers {
    async fn poll(&mut self) -> Result<Option<ConnectRecord<Value, Value>>, ConnectError> {
        let mut out = Vec::new();
        self.poll_batch(1, &mut out).await?;
        Ok(out.pop())
    }

    fn checkpoint(&self) -> Option<SourceOffset> {
        (!self.parts.source().no_checkpoint).then(|| offset(self.position))
    }

    async fn seek(&mut self, offset: SourceOffset) -> Result<(), ConnectError> {
        self.position = number(&offset);
        self.parts.source().sought.push(self.position);
        Ok(())
    }

    async fn acknowledge(&mut self, offset: &SourceOffset) -> Result<(), ConnectError> {
        let mut state = self.parts.source();
        state.acknowledges.pop_front().map_or(Ok(()), Next::act)?;
        state.acknowledged.push(number(offset));
        Ok(())
    }

    async fn close(&mut self) -> Result<(), ConnectError> {
        self.parts.source().closed += 1;
        Ok(())
    }

    async fn poll_batch(
        &mut self,
        limit: usize,
        out: &mut Vec<ConnectRecord<Value, Value>>,
    ) -> Result<usize, ConnectError> {
        let (wait, next) = {
            let mut state = self.parts.source();
            state.poll_calls += 1;
            let idle = state.available == self.position;
            (if idle { state.idle_time } else { state.poll_time }, state.polls.pop_front())
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let before = self.position;
        {
            let mut state = self.parts.source();
            let limit = if state.chunk == 0 { limit } else { limit.min(state.chunk) };
            self.position = state.available.min(before + limit as u64);
            state.polled = self.position;
        }
        for n in before + 1..=self.position {
            out.push(ConnectRecord::new(Some(json!(n)), Some(json!(n))));
        }
        next.map_or(Ok(()), Next::act)?;
        Ok(usize::try_from(self.position - before).unwrap())
    }
}

struct Batches(Parts);

#[async_trait]
impl Sink<Bytes, Bytes> for Batches {
    async fn begin(&mut self) -> Result<(), ConnectError> {
        self.0.sink().put.clear();
        Ok(())
    }

    async fn put(&mut self, records: &mut Vec<ConnectRecord<Bytes, Bytes>>) -> Result<(), ConnectError> {
        let mut state = self.0.sink();
        for record in records.drain(..) {
            state.put.push(serde_json::from_slice(record.value.as_deref().unwrap()).unwrap());
            state.offsets.push(record.offset.as_deref().map(number));
        }
        Ok(())
    }

    async fn commit(&mut self, offset: Option<&SourceOffset>) -> Result<(), ConnectError> {
        let wait = self.0.sink().commit_time;
        tokio::time::sleep(wait).await;
        while self.0.sink().blocked {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut state = self.0.sink();
        state.commits.pop_front().map_or(Ok(()), Next::act)?;
        let batch = std::mem::take(&mut state.put);
        state.batches.push(batch);
        if state.stores_offset {
            state.stored = offset.map(number);
        }
        Ok(())
    }

    async fn abort(&mut self) -> Result<(), ConnectError> {
        self.0.sink().aborted += 1;
        Ok(())
    }

    async fn close(&mut self) -> Result<(), ConnectError> {
        self.0.sink().closed += 1;
        Ok(())
    }

    fn wants_record_offsets(&self) -> bool {
        self.0.sink().record_offsets
    }

    fn stores_offset(&self) -> bool {
        self.0.sink().stores_offset
    }

    async fn restore_offset(&mut self) -> Result<Option<SourceOffset>, ConnectError> {
        Ok(self.0.sink().stored.map(offset))
    }
}

struct Store(Parts);

#[async_trait]
impl CheckpointStore for Store {
    async fn load(&mut self, connector: &str) -> Result<Option<SourceOffset>, ConnectError> {
        self.0.store().loads += 1;
        self.0.memory.load(connector).await
    }

    async fn save(&mut self, connector: &str, offset: &SourceOffset) -> Result<(), ConnectError> {
        let wait = self.0.store().save_time;
        tokio::time::sleep(wait).await;
        let (next, effect) = {
            let mut state = self.0.store();
            let next = state.saves.pop_front();
            let effect = next.is_none() || state.fails_after_effect;
            if effect {
                state.saved.push(number(offset));
            }
            (next, effect)
        };
        if effect {
            self.0.memory.save(connector, offset).await?;
        }
        next.map_or(Ok(()), Next::act)
    }
}
