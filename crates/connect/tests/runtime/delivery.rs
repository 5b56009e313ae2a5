//! What is acknowledged, and when.

use std::time::Duration;

use crabka_connect::{ConnectError, ErrorClass, Limits};
use tokio::time::sleep;

use crate::parts::{Next, Parts};

/// DEL-13: records that only the sink's queue holds are neither saved nor acknowledged, and come again.
#[tokio::test(start_paused = true)]
async fn del_13_nothing_is_acknowledged_before_the_sink_has_it() {
    let parts = Parts::with(500);
    parts.sink().blocked = true;
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    sleep(Duration::from_secs(60)).await;
    let status = handle.status();
    assert_eq!((status.records_received, status.records_delivered), (500, 0));
    assert_eq!((parts.saved(), parts.source().acknowledged.len()), (0, 0));
    handle.abort();
    assert_eq!(run.await.unwrap().unwrap_err().class(), ErrorClass::Transient);
    sleep(Duration::from_secs(1)).await;
    assert_eq!((parts.saved(), parts.source().acknowledged.len()), (0, 0));

    parts.sink().blocked = false;
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    handle.until(|status| status.records_acknowledged == 500).await;
    handle.stop();
    run.await.unwrap().unwrap();
    assert_eq!(parts.delivered(), (1..=500).collect::<Vec<_>>());
    assert_eq!(parts.source().acknowledged.last(), Some(&500));
}

/// DEL-14: what is acknowledged is what the store holds, while saves are slow and after one failed.
#[tokio::test(start_paused = true)]
async fn del_14_the_acknowledged_offset_is_the_saved_one() {
    for stored_all_the_same in [false, true] {
        let parts = Parts::with(0);
        parts.store().save_time = Duration::from_secs(2);
        let runtime = parts.build();
        let handle = runtime.handle();
        let run = tokio::spawn(runtime.run());
        for moment in 0..2000 {
            parts.source().available += 3;
            if moment == 1000 {
                let mut store = parts.store();
                store.fails_after_effect = stored_all_the_same;
                store.saves.push_back(Next::Fail(ConnectError::transient("store away")));
            }
            sleep(Duration::from_millis(10)).await;
            let acknowledged = parts.source().acknowledged.last().copied().unwrap_or(0);
            assert!(acknowledged <= parts.saved(), "{acknowledged} > {}", parts.saved());
        }
        let failed = parts.source().sought.clone();
        assert_eq!(failed.len(), 1, "reopened once, after the failed save");
        // Either offset may be stored after a failure: the store was asked again.
        assert_eq!(parts.store().loads, 2);
        handle.abort();
        run.await.unwrap().unwrap_err();
        let (saved, acknowledged) = (parts.saved(), parts.source().acknowledged.last().copied().unwrap());
        assert!(acknowledged <= saved && saved > 2000, "{acknowledged} {saved}");

        let runtime = parts.build();
        let handle = runtime.handle();
        let run = tokio::spawn(runtime.run());
        handle.until(|status| status.records_received > 0).await;
        assert_eq!(parts.source().sought.last(), Some(&saved));
        handle.stop();
        run.await.unwrap().unwrap();
        let mut seen = parts.delivered();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (1..=6000).collect::<Vec<_>>());
    }
}

/// DEL-15: a batch that never finishes holds back everything behind it.
#[tokio::test(start_paused = true)]
async fn del_15_nothing_behind_an_unfinished_batch_is_acknowledged() {
    let parts = Parts::with(10);
    parts.sink().blocked = true;
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    sleep(Duration::from_millis(50)).await;
    parts.source().available = 5000;
    sleep(Duration::from_secs(60)).await;
    // The next batch is full and waits; the sink has not even seen it.
    assert_eq!(parts.source().polled, 1010);
    assert_eq!(parts.sink().put, (1..=10).collect::<Vec<_>>());
    assert_eq!((parts.saved(), parts.source().acknowledged.len()), (0, 0));
    parts.sink().blocked = false;
    handle.until(|status| status.records_acknowledged == 5000).await;
    handle.stop();
    run.await.unwrap().unwrap();
    assert!(parts.source().acknowledged.is_sorted());
    assert_eq!(parts.source().acknowledged.first(), Some(&10));
    assert_eq!(parts.delivered(), (1..=5000).collect::<Vec<_>>());
}

/// DEL-16: a graceful restart repeats nothing.
#[tokio::test(start_paused = true)]
async fn del_16_a_restart_when_idle_repeats_nothing() {
    let parts = Parts::with(100);
    for round in 1..=3 {
        let runtime = parts.build();
        let handle = runtime.handle();
        let run = tokio::spawn(runtime.run());
        sleep(Duration::from_secs(1)).await;
        parts.source().available += 1;
        sleep(Duration::from_secs(1)).await;
        handle.stop();
        run.await.unwrap().unwrap();
        assert_eq!(parts.delivered(), (1..=100 + round).collect::<Vec<_>>());
        assert_eq!(parts.source().acknowledged.last(), Some(&(100 + round)));
        assert_eq!(parts.source().closed as u64, round);
        assert_eq!(parts.sink().closed as u64, round);
    }
}

/// KAF-01: a batch that failed for good is not covered by a later one.
#[tokio::test(start_paused = true)]
async fn kaf_01_a_failed_batch_is_never_covered_by_a_later_one() {
    for class in ["data", "configuration", "fenced", "bug"] {
        let parts = Parts::with(10);
        let error = match class {
            "data" => ConnectError::data("record too large"),
            "configuration" => ConnectError::configuration("topic missing"),
            "fenced" => ConnectError::fenced("newer producer"),
            _ => ConnectError::bug("broken"),
        };
        parts.sink().commit_time = Duration::from_millis(100);
        parts.sink().commits.push_back(Next::Fail(error));
        let runtime = parts.build();
        let handle = runtime.handle();
        let run = tokio::spawn(runtime.run());
        sleep(Duration::from_millis(20)).await;
        parts.source().available = 20;
        let error = run.await.unwrap().unwrap_err();
        assert_eq!(error.class().as_str(), class);
        assert_eq!(parts.source().polled, 20, "the second batch was filling");
        assert_eq!(parts.delivered(), Vec::<u64>::new());
        assert_eq!((parts.saved(), parts.source().acknowledged.len()), (0, 0));
        assert_eq!((parts.source().closed, parts.sink().closed), (1, 1));
        assert_eq!(parts.sink().aborted, 1);
        assert_eq!(handle.status().last_error.unwrap().class, class);
    }
}

/// On an idle source an acknowledge follows the commit within a poll's wait.
#[tokio::test(start_paused = true)]
async fn an_idle_source_is_told_within_milliseconds() {
    let parts = Parts::with(0);
    parts.source().idle_time = Duration::from_millis(5);
    parts.sink().commit_time = Duration::from_millis(50);
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    sleep(Duration::from_secs(10)).await;
    let began = tokio::time::Instant::now();
    parts.source().available = 1;
    handle.until(|status| status.records_acknowledged == 1).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(50) && took <= Duration::from_millis(62), "{took:?}");
    handle.stop();
    run.await.unwrap().unwrap();
}

/// A sink that stores offsets is the only place they are kept in and read from.
#[tokio::test(start_paused = true)]
async fn a_sink_that_stores_offsets_needs_no_store() {
    let parts = Parts::with(30);
    parts.sink().stores_offset = true;
    parts.sink().stored = Some(10);
    parts.sink().commits.push_back(Next::Fail(ConnectError::transient("broker away")));
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    handle.until(|status| status.records_acknowledged == 20).await;
    handle.stop();
    run.await.unwrap().unwrap();
    assert_eq!(parts.source().sought, [10, 10]);
    assert_eq!(parts.sink().stored, Some(30));
    assert_eq!(parts.delivered(), (11..=30).collect::<Vec<_>>());
    assert_eq!(parts.store().loads, 0);
    assert!(parts.store().saved.is_empty());
}

/// A record carries the position behind it when the sink asks, whatever the batches are.
#[tokio::test(start_paused = true)]
async fn records_carry_their_offset_when_the_sink_asks() {
    let parts = Parts::with(50);
    parts.sink().record_offsets = true;
    parts.sink().commit_time = Duration::from_millis(3);
    let limits = Limits { max_batch_records: 7, ..Limits::default() };
    let runtime = parts.builder().limits(limits).build().unwrap();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    handle.until(|status| status.records_acknowledged == 50).await;
    handle.stop();
    run.await.unwrap().unwrap();
    assert_eq!(parts.sink().offsets, (1..=50).map(Some).collect::<Vec<_>>());
}
