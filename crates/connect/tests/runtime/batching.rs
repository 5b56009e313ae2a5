//! When a batch is cut.

use std::time::Duration;

use crabka_connect::Limits;
use tokio::time::{Instant, sleep};

use crate::parts::Parts;

async fn deliver(parts: &Parts, limits: Limits, records: u64) -> Duration {
    let runtime = parts.builder().limits(limits).build().unwrap();
    let handle = runtime.handle();
    let began = Instant::now();
    let run = tokio::spawn(runtime.run());
    let status = handle.until(|status| status.records_acknowledged == records).await;
    assert_eq!(status.records_acknowledged, records, "{:?}", status.last_error);
    let took = began.elapsed();
    handle.stop();
    run.await.unwrap().unwrap();
    took
}

#[tokio::test(start_paused = true)]
async fn light_load_makes_small_batches_at_once() {
    let parts = Parts::with(0);
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    for n in 1..=20 {
        sleep(Duration::from_millis(100)).await;
        parts.source().available = n;
        let began = Instant::now();
        handle.until(|status| status.records_acknowledged == n).await;
        assert!(began.elapsed() <= Duration::from_millis(6), "{:?}", began.elapsed());
    }
    handle.stop();
    run.await.unwrap().unwrap();
    assert_eq!(parts.sink().batches.len(), 20);
}

/// KAF-17: a batch fills while the one before is being committed, so the price of a commit is paid once per commit and
/// not once per poll: small polls cost hardly more than large ones.
#[tokio::test(start_paused = true)]
async fn kaf_17_a_batch_fills_while_the_last_one_is_committed() {
    let mut took = Vec::new();
    for chunk in [1, 64, 1024, 16_384] {
        let parts = Parts::with(100_000);
        parts.source().chunk = chunk;
        parts.sink().commit_time = Duration::from_millis(5);
        parts.store().save_time = Duration::from_millis(5);
        let limits = Limits { max_batch_records: 16_384, ..Limits::default() };
        took.push(deliver(&parts, limits, 100_000).await);
        let batches = parts.sink().batches.len();
        assert!(batches <= 20, "{batches} batches for polls of {chunk}");
        assert_eq!(parts.store().saved.len(), batches);
    }
    let slowest = took.iter().max().unwrap();
    let fastest = took.iter().min().unwrap();
    assert!(*slowest <= *fastest * 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_never_exceeds_its_limits_by_more_than_a_poll() {
    let parts = Parts::with(10_000);
    parts.sink().commit_time = Duration::from_millis(1);
    // A number is at most 5 bytes, as key and as value.
    let limits = Limits { max_batch_bytes: 1000, ..Limits::default() };
    deliver(&parts, limits, 10_000).await;
    let largest = parts.sink().batches.iter().map(Vec::len).max().unwrap();
    assert!((90..=1000).contains(&largest), "{largest}");
    let mean = 10_000 / parts.sink().batches.len();
    assert!((60..=250).contains(&mean), "{mean}");

    let parts = Parts::with(1000);
    parts.sink().commit_time = Duration::from_millis(1);
    let limits = Limits { max_batch_records: 7, ..Limits::default() };
    deliver(&parts, limits, 1000).await;
    assert_eq!(parts.sink().batches.iter().map(Vec::len).max(), Some(7));
}

/// A source that always has more at once, and limits that are never reached: the age cuts the batch.
#[tokio::test(start_paused = true)]
async fn the_age_limit_cuts_a_batch_of_a_source_that_never_pauses() {
    let parts = Parts::with(u64::MAX);
    parts.source().poll_time = Duration::from_millis(10);
    let limits = Limits {
        max_batch_records: usize::MAX,
        max_batch_bytes: usize::MAX,
        max_batch_age: Duration::from_millis(200),
        ..Limits::default()
    };
    let runtime = parts.builder().limits(limits).build().unwrap();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    sleep(Duration::from_secs(10)).await;
    let batches = handle.status().batches;
    assert!((40..=55).contains(&batches), "{batches}");
    handle.stop();
    run.await.unwrap().unwrap();
}

/// A poll that waits long holds back neither the filling batch nor the one in flight.
#[tokio::test(start_paused = true)]
async fn a_batch_leaves_while_a_poll_is_waiting() {
    let parts = Parts::with(10);
    parts.source().idle_time = Duration::from_secs(30);
    parts.sink().commit_time = Duration::from_millis(20);
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    sleep(Duration::from_millis(100)).await;
    assert_eq!(handle.status().records_checkpointed, 10);
    // The acknowledge has to wait for the poll.
    assert_eq!(handle.status().records_acknowledged, 0);
    sleep(Duration::from_secs(31)).await;
    assert_eq!(handle.status().records_acknowledged, 10);
    handle.stop();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_idle_source_is_polled_with_pauses() {
    let parts = Parts::with(0);
    let limits = Limits {
        idle_min: Duration::from_millis(1),
        idle_max: Duration::from_millis(16),
        ..Limits::default()
    };
    let runtime = parts.builder().limits(limits).build().unwrap();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    let began = Instant::now();
    sleep(Duration::from_secs(1)).await;
    let polls = parts.source().poll_calls;
    assert!((60..=75).contains(&polls), "{polls}");
    parts.source().available = 1;
    handle.until(|status| status.records_acknowledged == 1).await;
    assert!(began.elapsed() <= Duration::from_millis(1020), "{:?}", began.elapsed());
    handle.stop();
    run.await.unwrap().unwrap();
}
