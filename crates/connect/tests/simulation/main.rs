//! A seeded simulation of the runtime in a hostile world: the process crashes before and after every step, every call
//! may fail before or after its effect, and everything takes random (virtual) time.
//!
//! `CRABKA_SIMULATION_SEEDS=100000` runs that many seeds; `CRABKA_SIMULATION_SEED=42` runs one.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod fakes;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crabka_connect::{ConnectError, ConnectorRuntime, Limits, Point, RetryPolicy, RuntimeHandle};
use rand::RngExt;

use fakes::{CrashPoints, FakeConverter, FakeSink, FakeSource, FakeStore};
use world::{Sabotage, World};

const SEEDS_DEFAULT: u64 = 1000;
/// Virtual time after which a run counts as stuck.
const STUCK: Duration = Duration::from_secs(600);

/// How one process ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// Crash at this step, counted from the start of the process.
    Crash(u64),
    /// A graceful stop after this time.
    Stop(Duration),
    /// A graceful stop when everything is saved.
    Complete,
}

fn runtime(world: &Arc<World>) -> ConnectorRuntime<u64, u64> {
    let (limits, random) = {
        let rng = &mut world.lock().rng;
        let limits = Limits {
            max_batch_records: rng.random_range(1..40),
            max_batch_bytes: rng.random_range(1..1000),
            max_batch_age: Duration::from_millis(rng.random_range(0..50)),
            idle_min: Duration::from_micros(rng.random_range(0..1000)),
            idle_max: Duration::from_millis(rng.random_range(1..20)),
            drain_timeout: Duration::from_secs(3600),
        };
        (limits, rng.random::<f64>())
    };
    let (source, sink) = (Arc::clone(world), Arc::clone(world));
    ConnectorRuntime::builder("simulated")
        .source(move || FakeSource::open(Arc::clone(&source)))
        .sink(move || FakeSink::open(Arc::clone(&sink)))
        .converter(FakeConverter)
        .checkpoint_store(FakeStore(Arc::clone(world)))
        .observer(Arc::new(CrashPoints(Arc::clone(world))))
        .limits(limits)
        .retry(RetryPolicy { first_delay: Duration::from_millis(10), ..RetryPolicy::default() })
        .random(move || random)
        .build()
        .unwrap()
}

/// Pauses and resumes now and then, for ever.
async fn meddle(world: Arc<World>, handle: RuntimeHandle) {
    loop {
        let (pause, resume) = {
            let rng = &mut world.lock().rng;
            (rng.random_range(1..400), rng.random_range(1..50))
        };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        handle.pause();
        tokio::time::sleep(Duration::from_millis(resume)).await;
        handle.resume();
    }
}

/// One process from start to end. `None` after a crash.
async fn process(world: &Arc<World>, end: End) -> Option<Result<(), ConnectError>> {
    let crash_after = if let End::Crash(steps) = end { Some(steps) } else { None };
    world.lock().restart(crash_after);
    let records = world.lock().records;
    let runtime = runtime(world);
    let handle = runtime.handle();
    let mut run = Box::pin(runtime.run());
    let ending = async {
        match end {
            End::Stop(after) => tokio::time::sleep(after).await,
            End::Crash(_) | End::Complete => loop {
                // Not *acknowledged*: a crash may come in between, and after it there is no further batch.
                if world.lock().saved == Some(records) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(7)).await;
            },
        }
        handle.stop();
        std::future::pending::<()>().await;
    };
    let result = tokio::select! {
        biased;
        () = world.crash.notified() => None,
        result = &mut run => Some(result),
        () = ending => None,
        () = meddle(Arc::clone(world), handle.clone()) => None,
        () = tokio::time::sleep(STUCK) => {
            world.lock().violate(format!("stuck in phase {}", handle.state()));
            None
        }
    };
    drop(run);
    // The committer was aborted: let the scheduler drop it before the next process.
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    let status = handle.status();
    let counters = [
        status.records_acknowledged,
        status.records_checkpointed,
        status.records_delivered,
        status.records_received,
    ];
    if !counters.is_sorted() || !status.phase.has_ended() {
        world.lock().violate(format!("the status is out of order: {status:?}"));
    }
    if let Some(Ok(())) = &result {
        let mut state = world.lock();
        let (position, saved, faults) = (state.position, state.saved.unwrap_or(0), state.faults);
        if faults == 0 && (position != saved || saved != state.acknowledged) {
            state.violate(format!("a graceful stop at {position} left the saved position at {saved}"));
        }
    }
    result
}

fn simulate(seed: u64, sabotage: Sabotage, ends: Option<Vec<End>>) -> Result<Arc<World>, String> {
    let world = Arc::new(World::new(seed, sabotage));
    let ends = ends.unwrap_or_else(|| {
        let rng = &mut world.lock().rng;
        let mut end = || match rng.random_range(0..3) {
            0 => End::Stop(Duration::from_millis(rng.random_range(0..300))),
            _ => End::Crash(rng.random_range(1..150)),
        };
        (0..4).map(|_| end()).collect()
    });
    let scheduler =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    scheduler.block_on(async {
        for end in ends.into_iter().chain([End::Complete]) {
            let result = process(&world, end).await;
            let mut state = world.lock();
            if let Some(Err(error)) = result
                && (!error.is_transient() || matches!(end, End::Complete) && state.error_rate == 0.0)
            {
                state.violate(format!("ended with {error:?}"));
            }
            if !state.violations.is_empty() {
                return;
            }
        }
        // An injected error may have met the last stop; what it left is delivered by one more process.
        world.lock().error_rate = 0.0;
        process(&world, End::Complete).await;
        world.lock().check_ledger();
    });
    let violations = std::mem::take(&mut world.lock().violations);
    if violations.is_empty() { Ok(world) } else { Err(violations.join("\n  ")) }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn nothing_is_lost_or_reordered_whatever_crashes() {
    let seeds = match number("CRABKA_SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CRABKA_SIMULATION_SEEDS").unwrap_or(SEEDS_DEFAULT),
    };
    let (mut repeated, mut faults, mut exactly_once) = (0, 0, 0);
    let (mut steps, mut crashes) = (BTreeSet::new(), BTreeSet::new());
    for seed in seeds.clone() {
        match simulate(seed, Sabotage::None, None) {
            Ok(world) => {
                let state = world.lock();
                repeated += state.durable.len() as u64 - state.delivered;
                faults += state.faults;
                exactly_once += u64::from(state.exactly_once);
                steps.extend(&state.steps);
                crashes.extend(&state.crashes);
            }
            Err(violations) => panic!("CRABKA_SIMULATION_SEED={seed}:\n  {violations}"),
        }
    }
    println!("{} seeds, {faults} faults, {repeated} repeated records", seeds.end - seeds.start);
    if seeds.end - seeds.start >= SEEDS_DEFAULT {
        // Otherwise the simulation has lost its teeth.
        assert!(faults > 2000 && repeated > 1000 && exactly_once > 100, "{faults} {repeated} {exactly_once}");
        assert_everywhere(&steps, &crashes);
        assert!(crashes.len() >= Point::ALL.len() + 24, "{crashes:?}");
    }
}

/// The process has crashed before and after every effect, and at every named point of the runtime.
fn assert_everywhere(steps: &BTreeSet<&str>, crashes: &BTreeSet<&str>) {
    let missed: Vec<_> = steps.difference(crashes).collect();
    assert!(missed.is_empty(), "no crash ever came at: {missed:?}");
    for point in Point::ALL {
        assert!(crashes.contains(point.as_str()), "never reached: {point}");
    }
}

#[test]
fn a_crash_at_every_single_step_is_survived() {
    let mut steps_seen = 0;
    for seed in 0..3 {
        // Up to the step that is never reached: the process then ends by itself.
        for steps in 1.. {
            let world = simulate(seed, Sabotage::None, Some(vec![End::Crash(steps)]))
                .unwrap_or_else(|violations| panic!("seed {seed}, crash at step {steps}:\n  {violations}"));
            steps_seen += 1;
            let state = world.lock();
            if state.crash_count == 0 {
                break;
            }
        }
    }
    assert!(steps_seen > 300, "{steps_seen}");
}

#[test]
fn the_simulation_notices_swapped_steps() {
    for sabotage in [Sabotage::CommitBeforeDurable, Sabotage::SaveBeforeStored, Sabotage::CheckpointAhead] {
        let found = (0..50).find_map(|seed| simulate(seed, sabotage, None).err().map(|why| (seed, why)));
        let (seed, why) = found.unwrap_or_else(|| panic!("{sabotage:?} was never noticed"));
        println!("{sabotage:?} noticed with seed {seed}: {why}");
    }
}
