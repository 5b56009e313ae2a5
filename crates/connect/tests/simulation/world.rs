//! The world outside the runtime: what survives a crash, and the ledger that every step is checked against.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Notify;

/// Which part breaks its promise on purpose, to see that the ledger notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    None,
    /// The sink's commit returns before the records are durable: durable and saved are swapped.
    CommitBeforeDurable,
    /// The store's save returns before the offset is stored: saved and acknowledged are swapped.
    SaveBeforeStored,
    /// The source gives the position behind a poll that the host has not made yet.
    CheckpointAhead,
}

/// Everything that outlives a process, and the ledger.
pub(crate) struct State {
    pub(crate) rng: StdRng,
    pub(crate) sabotage: Sabotage,
    /// Records that exist: 0 to `records - 1`.
    pub(crate) records: u64,
    /// The sink stores offsets, together with the records or not at all.
    pub(crate) exactly_once: bool,
    /// Probability of an injected transient error per call.
    pub(crate) error_rate: f64,
    step: u64,
    /// Names of the steps that were reached, and of those at which the process has crashed.
    pub(crate) steps: BTreeSet<&'static str>,
    pub(crate) crashes: BTreeSet<&'static str>,
    pub(crate) crash_at: Option<u64>,
    crashed: bool,
    /// Position of the source that is open, or was last.
    pub(crate) position: u64,
    pub(crate) received: u64,
    pub(crate) acknowledged: u64,
    pub(crate) saved: Option<u64>,
    /// What a lying store said it had saved.
    pub(crate) promised: Option<u64>,
    /// Put and not durable: lost in a crash, all of it or a part.
    pub(crate) pending: Vec<u64>,
    /// Durable records in the order in which they got there, with the number of the run they came from.
    pub(crate) durable: Vec<(usize, u64)>,
    /// All records below this are durable.
    pub(crate) delivered: u64,
    /// Where each opened source began.
    pub(crate) starts: Vec<u64>,
    /// Positions behind a whole poll: the only ones that may be saved.
    pub(crate) boundaries: BTreeSet<u64>,
    pub(crate) sinks_opened: usize,
    /// Crashes and injected errors: only after one of these may records repeat.
    pub(crate) faults: usize,
    pub(crate) crash_count: usize,
    pub(crate) violations: Vec<String>,
}

pub(crate) struct World {
    state: Mutex<State>,
    pub(crate) crash: Notify,
}

impl World {
    pub(crate) fn new(seed: u64, sabotage: Sabotage) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let records = rng.random_range(1..200);
        let exactly_once = sabotage == Sabotage::None && rng.random_bool(0.25);
        let error_rate = if rng.random_bool(0.5) { 0.0 } else { rng.random_range(0.0..0.05) };
        let state = State {
            rng,
            sabotage,
            records,
            exactly_once,
            error_rate,
            step: 0,
            steps: BTreeSet::new(),
            crashes: BTreeSet::new(),
            crash_at: None,
            crashed: false,
            position: 0,
            received: 0,
            acknowledged: 0,
            saved: None,
            promised: None,
            pending: Vec::new(),
            durable: Vec::new(),
            delivered: 0,
            starts: Vec::new(),
            boundaries: BTreeSet::from([0]),
            sinks_opened: 0,
            faults: 0,
            crash_count: 0,
            violations: Vec::new(),
        };
        Self { state: Mutex::new(state), crash: Notify::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// As [`lock`](Self::lock), for a destructor.
    pub(crate) fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }

    /// A moment at which the process may crash: then nothing goes on until the next process. The name says which, for
    /// the account of where crashes came.
    pub(crate) async fn step(&self, name: &'static str) {
        let pause = {
            let mut state = self.lock();
            state.step += 1;
            state.steps.insert(name);
            if state.crash_at == Some(state.step) {
                state.crashes.insert(name);
                state.crash();
                self.crash.notify_one();
            }
            if state.crashed { None } else { Some(state.pause()) }
        };
        if let Some(pause) = pause
            && !pause.is_zero()
        {
            tokio::time::sleep(pause).await;
        }
        if self.lock().crashed {
            std::future::pending::<()>().await;
        }
    }
}

impl State {
    fn pause(&mut self) -> Duration {
        match self.rng.random_range(0..10) {
            0 => Duration::from_millis(self.rng.random_range(1..30)),
            1 | 2 => Duration::from_micros(self.rng.random_range(1..2000)),
            _ => Duration::ZERO,
        }
    }

    /// Of the records that were put and not committed, the destination may have kept any first part.
    fn crash(&mut self) {
        self.crashed = true;
        self.faults += 1;
        self.crash_count += 1;
        if !self.exactly_once {
            let kept = self.rng.random_range(0..=self.pending.len());
            self.make_durable(kept);
        }
        self.pending.clear();
    }

    /// The next process starts.
    pub(crate) fn restart(&mut self, crash_after: Option<u64>) {
        self.crashed = false;
        self.crash_at = crash_after.map(|steps| self.step + steps);
        self.pending.clear();
        self.promised = None;
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.crashed
    }

    /// Whether a transient error is due now.
    pub(crate) fn fails(&mut self) -> bool {
        let rate = self.error_rate;
        let fails = self.rng.random_bool(rate);
        self.faults += usize::from(fails);
        fails
    }

    /// The first `count` pending records become durable.
    pub(crate) fn make_durable(&mut self, count: usize) {
        let run = self.starts.len();
        let records: Vec<u64> = self.pending.drain(..count).collect();
        for record in records {
            self.durable.push((run, record));
            if record == self.delivered {
                self.delivered += 1;
            } else if record > self.delivered {
                self.violate(format!("record {record} became durable before {}", self.delivered));
            }
        }
    }

    pub(crate) fn violate(&mut self, what: impl fmt::Display) {
        self.violations.push(what.to_string());
    }

    /// The rule of positions, after any step.
    pub(crate) fn check_positions(&mut self) {
        let (acknowledged, saved) = (self.acknowledged, self.saved.unwrap_or(0));
        let (delivered, received) = (self.delivered, self.received);
        if !(acknowledged <= saved && saved <= delivered && delivered <= received) {
            self.violate(format!(
                "acknowledged {acknowledged}, saved {saved}, delivered {delivered}, received {received}"
            ));
        }
    }

    /// After everything was saved: nothing lost, order kept, repetitions only after a fault and only from the
    /// saved position on.
    pub(crate) fn check_ledger(&mut self) {
        if self.delivered != self.records {
            self.violate(format!("{} of {} records are durable", self.delivered, self.records));
        }
        let mut expected = 0;
        let mut current = 0;
        for (run, record) in self.durable.clone() {
            if run != current {
                current = run;
                expected = self.starts[run - 1];
            }
            if record != expected {
                self.violate(format!("run {run} delivered record {record} where {expected} was due"));
            }
            expected = record + 1;
        }
        let repeated = self.durable.len() as u64 - self.delivered.min(self.durable.len() as u64);
        if repeated > 0 && self.faults == 0 {
            self.violate(format!("{repeated} records repeated without a fault"));
        }
        if repeated > 0 && self.exactly_once {
            self.violate(format!("{repeated} records repeated although the sink stores offsets"));
        }
        self.check_positions();
    }
}
