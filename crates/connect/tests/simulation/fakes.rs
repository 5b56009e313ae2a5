//! Source, sink, store and observer of the simulated world. Each checks that the runtime keeps its side of the contract.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use crabka_connect::{
    CheckpointStore, ConnectError, ConnectRecord, Converter, Observer, Point, Sink, Source, SourceOffset,
};
use rand::RngExt;

use crate::world::{Sabotage, State, World};

fn offset(position: u64) -> SourceOffset {
    SourceOffset::new([("log", "simulated".into())], [("next", position.into())])
}

fn position(offset: &SourceOffset) -> u64 {
    offset.position["next"].as_u64().unwrap()
}

fn injected(where_from: &str) -> ConnectError {
    ConnectError::transient(format!("injected into {where_from}"))
}

pub(crate) struct FakeSource {
    world: Arc<World>,
    position: u64,
    sought: bool,
    polled: bool,
    closed: bool,
}

impl FakeSource {
    pub(crate) async fn open(world: Arc<World>) -> Result<Box<dyn Source<u64, u64>>, ConnectError> {
        world.step("source open: before").await;
        if world.lock().fails() {
            return Err(injected("opening the source"));
        }
        world.step("source open: after").await;
        Ok(Box::new(Self { world, position: 0, sought: false, polled: false, closed: false }))
    }

    fn first_poll(&mut self) {
        if self.polled {
            return;
        }
        self.polled = true;
        let mut state = self.world.lock();
        let due = state.saved.unwrap_or(0);
        if self.position != due {
            state.violate(format!("started at {} although {due} was saved", self.position));
        }
        state.starts.push(self.position);
        state.position = self.position;
    }
}

/// Notices a poll whose future was dropped before it was done.
struct PollGuard<'a> {
    world: &'a World,
    done: bool,
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        if let Some(mut state) = self.world.try_state()
            && !self.done
            && !state.has_crashed()
        {
            state.violate("the future of a poll was dropped");
        }
    }
}

#[async_trait]
impl Source<u64, u64> for FakeSource {
    async fn poll(&mut self) -> Result<Option<ConnectRecord<u64, u64>>, ConnectError> {
        let mut out = Vec::new();
        self.poll_batch(1, &mut out).await?;
        Ok(out.pop())
    }

    fn checkpoint(&self) -> Option<SourceOffset> {
        let ahead = self.world.lock().sabotage == Sabotage::CheckpointAhead;
        (self.polled || self.sought).then(|| offset(self.position + u64::from(ahead)))
    }

    async fn seek(&mut self, offset: SourceOffset) -> Result<(), ConnectError> {
        self.world.step("source seek: before").await;
        let to = position(&offset);
        {
            let mut state = self.world.lock();
            if self.polled || self.sought {
                state.violate("sought twice, or after a poll");
            }
            if to < state.acknowledged {
                let acknowledged = state.acknowledged;
                state.violate(format!("{to} was released: {acknowledged} is acknowledged"));
            }
            if state.fails() {
                return Err(injected("seek"));
            }
        }
        self.sought = true;
        self.position = to;
        self.world.step("source seek: after").await;
        Ok(())
    }

    async fn acknowledge(&mut self, offset: &SourceOffset) -> Result<(), ConnectError> {
        let to = position(offset);
        self.world.step("source acknowledge: before").await;
        if self.world.lock().fails() {
            return Err(injected("acknowledge"));
        }
        {
            let mut state = self.world.lock();
            if to < state.acknowledged || self.closed {
                let before = state.acknowledged;
                state.violate(format!("acknowledged {to} after {before}"));
            }
            state.acknowledged = to;
            state.check_positions();
        }
        self.world.step("source acknowledge: after").await;
        Ok(())
    }

    async fn close(&mut self) -> Result<(), ConnectError> {
        if std::mem::replace(&mut self.closed, true) {
            self.world.lock().violate("closed twice");
        }
        self.world.step("source close: before").await;
        Ok(())
    }

    async fn poll_batch(
        &mut self,
        limit: usize,
        out: &mut Vec<ConnectRecord<u64, u64>>,
    ) -> Result<usize, ConnectError> {
        let world = Arc::clone(&self.world);
        let mut guard = PollGuard { world: &world, done: false };
        if self.closed {
            world.lock().violate("polled after close");
        }
        self.first_poll();
        world.step("source poll batch: before").await;
        let (count, fails) = {
            let mut state = world.lock();
            let left = usize::try_from(state.records - self.position).unwrap().min(limit);
            let count = match state.rng.random_range(0..4) {
                0 => 0,
                1 => left,
                _ => state.rng.random_range(0..=left),
            };
            (count, state.fails())
        };
        for record in (self.position..).take(count) {
            out.push(ConnectRecord::new(Some(record), Some(record)));
        }
        self.position += count as u64;
        {
            let mut state = world.lock();
            state.position = self.position;
            state.received = state.received.max(self.position);
            state.boundaries.insert(self.position);
        }
        world.step("source poll batch: after").await;
        guard.done = true;
        if fails { Err(injected("poll")) } else { Ok(count) }
    }
}

pub(crate) struct FakeSink {
    world: Arc<World>,
    number: usize,
    begun: bool,
}

impl FakeSink {
    pub(crate) async fn open(world: Arc<World>) -> Result<Box<dyn Sink<Bytes, Bytes>>, ConnectError> {
        world.step("sink open: before").await;
        let number = {
            let mut state = world.lock();
            if state.fails() {
                return Err(injected("opening the sink"));
            }
            state.sinks_opened += 1;
            state.sinks_opened
        };
        world.step("sink open: after").await;
        Ok(Box::new(Self { world, number, begun: false }))
    }

    fn check(&self, state: &mut State, begun: bool) {
        if self.begun != begun || self.number != state.sinks_opened {
            state.violate("sink calls out of order, or two sinks at work");
        }
    }
}

#[async_trait]
impl Sink<Bytes, Bytes> for FakeSink {
    async fn begin(&mut self) -> Result<(), ConnectError> {
        self.world.step("sink begin: before").await;
        {
            let mut state = self.world.lock();
            self.check(&mut state, false);
            if state.sabotage == Sabotage::CommitBeforeDurable {
                let late = state.pending.len();
                state.make_durable(late);
            }
            state.pending.clear();
        }
        self.begun = true;
        self.world.step("sink begin: after").await;
        if self.world.lock().fails() { Err(injected("begin")) } else { Ok(()) }
    }

    async fn put(&mut self, records: &mut Vec<ConnectRecord<Bytes, Bytes>>) -> Result<(), ConnectError> {
        self.world.step("sink put: before").await;
        {
            let mut state = self.world.lock();
            self.check(&mut state, true);
            for record in records.drain(..) {
                let value: [u8; 8] = record.value.as_deref().unwrap().try_into().unwrap();
                state.pending.push(u64::from_be_bytes(value));
            }
        }
        self.world.step("sink put: after").await;
        if self.world.lock().fails() { Err(injected("put")) } else { Ok(()) }
    }

    async fn commit(&mut self, offset: Option<&SourceOffset>) -> Result<(), ConnectError> {
        self.world.step("sink commit: before").await;
        let behind = position(offset.unwrap());
        if self.world.lock().sabotage == Sabotage::CommitBeforeDurable {
            self.begun = false;
            return Ok(());
        }
        let whole = {
            let mut state = self.world.lock();
            self.check(&mut state, true);
            if state.pending.last().map(|last| last + 1) != Some(behind) {
                state.violate(format!("the offset {behind} is not the one behind the batch"));
            }
            if state.fails() {
                let most = if state.exactly_once { 0 } else { state.pending.len() };
                let kept = state.rng.random_range(0..=most);
                state.make_durable(kept);
                return Err(injected("commit, before its effect"));
            }
            let whole = state.pending.len();
            if state.exactly_once {
                state.make_durable(whole);
                state.saved = Some(behind);
            } else {
                state.make_durable(whole / 2);
            }
            state.check_positions();
            whole
        };
        self.world.step("sink commit: within").await;
        {
            let mut state = self.world.lock();
            if !state.exactly_once {
                state.make_durable(whole - whole / 2);
            }
        }
        self.begun = false;
        self.world.step("sink commit: after").await;
        if self.world.lock().fails() { Err(injected("commit, after its effect")) } else { Ok(()) }
    }

    async fn abort(&mut self) -> Result<(), ConnectError> {
        self.world.step("sink abort: before").await;
        self.world.lock().pending.clear();
        self.world.step("sink abort: after").await;
        Ok(())
    }

    fn stores_offset(&self) -> bool {
        self.world.lock().exactly_once
    }

    async fn restore_offset(&mut self) -> Result<Option<SourceOffset>, ConnectError> {
        self.world.step("sink restore offset: before").await;
        let saved = {
            let mut state = self.world.lock();
            if state.fails() {
                return Err(injected("restore"));
            }
            state.saved
        };
        self.world.step("sink restore offset: after").await;
        Ok(saved.map(offset))
    }
}

pub(crate) struct FakeStore(pub(crate) Arc<World>);

#[async_trait]
impl CheckpointStore for FakeStore {
    async fn load(&mut self, _connector: &str) -> Result<Option<SourceOffset>, ConnectError> {
        self.0.step("store load: before").await;
        let saved = {
            let mut state = self.0.lock();
            if state.exactly_once {
                state.violate("the store was asked although the sink stores offsets");
            }
            if state.fails() {
                return Err(injected("load"));
            }
            state.saved
        };
        self.0.step("store load: after").await;
        Ok(saved.map(offset))
    }

    async fn save(&mut self, _connector: &str, offset: &SourceOffset) -> Result<(), ConnectError> {
        let to = position(offset);
        self.0.step("store save: before").await;
        {
            let mut state = self.0.lock();
            if state.exactly_once || Some(to) < state.saved || !state.boundaries.contains(&to) {
                state.violate(format!("saved {to}, which is no position behind a poll, or out of turn"));
            }
            if state.fails() {
                return Err(injected("save, before its effect"));
            }
            if state.sabotage == Sabotage::SaveBeforeStored {
                state.saved = state.promised.replace(to).or(state.saved);
                return Ok(());
            }
            state.saved = Some(to);
            state.check_positions();
        }
        self.0.step("store save: after").await;
        if self.0.lock().fails() { Err(injected("save, after its effect")) } else { Ok(()) }
    }
}

/// Big-endian bytes.
pub(crate) struct FakeConverter;

impl Converter<u64, u64> for FakeConverter {
    fn encode(
        &mut self,
        record: ConnectRecord<u64, u64>,
        buffer: &mut BytesMut,
    ) -> Result<ConnectRecord<Bytes, Bytes>, ConnectError> {
        buffer.put_u64(record.value.unwrap());
        let value = buffer.split().freeze();
        Ok(record.with_key_value(Some(value.clone()), Some(value)))
    }
}

pub(crate) struct CrashPoints(pub(crate) Arc<World>);

#[async_trait]
impl Observer for CrashPoints {
    async fn reached(&self, point: Point) {
        self.0.lock().check_positions();
        self.0.step(point.as_str()).await;
    }
}
