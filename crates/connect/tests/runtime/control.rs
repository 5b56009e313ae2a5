//! Pause, resume, stop, abort.

use std::time::Duration;

use crabka_connect::{ConnectError, ErrorClass, Limits, Phase};
use tokio::time::{Instant, sleep};

use crate::parts::{Next, Parts};

#[tokio::test(start_paused = true)]
async fn a_paused_run_has_delivered_all_it_polled_and_polls_no_more() {
    let parts = Parts::with(10);
    parts.sink().commit_time = Duration::from_millis(100);
    let runtime = parts.build();
    let handle = runtime.handle();
    assert_eq!(handle.state(), Phase::Starting);
    let run = tokio::spawn(runtime.run());
    handle.until(|status| status.records_received == 10).await;
    parts.source().available = 15;
    sleep(Duration::from_millis(20)).await;
    handle.pause();
    let status = handle.until(|status| status.phase == Phase::Paused).await;
    assert_eq!((status.records_received, status.records_acknowledged), (15, 15));
    parts.source().available = 20;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(handle.status().records_received, 15);
    handle.resume();
    handle.until(|status| status.records_acknowledged == 20).await;
    assert_eq!(handle.state(), Phase::Running);
    handle.pause();
    handle.until(|status| status.phase == Phase::Paused).await;
    handle.stop();
    run.await.unwrap().unwrap();
    assert_eq!(handle.state(), Phase::Stopped);
    assert_eq!(parts.delivered(), (1..=20).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_stop_finishes_saves_and_acknowledges_what_was_polled() {
    let parts = Parts::with(100);
    parts.sink().commit_time = Duration::from_secs(3);
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    sleep(Duration::from_millis(100)).await;
    parts.source().available = 150;
    sleep(Duration::from_millis(100)).await;
    handle.stop();
    sleep(Duration::from_millis(10)).await;
    assert_eq!(handle.state(), Phase::Draining);
    parts.source().available = 1000;
    assert_eq!(handle.ended().await.phase, Phase::Stopped);
    run.await.unwrap().unwrap();
    assert_eq!(parts.delivered(), (1..=150).collect::<Vec<_>>());
    assert_eq!((parts.saved(), parts.source().acknowledged.last().copied()), (150, Some(150)));
    assert_eq!((parts.source().closed, parts.sink().closed), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_cannot_drain_says_so_in_bounded_time() {
    let parts = Parts::with(100);
    parts.sink().blocked = true;
    let limits = Limits { drain_timeout: Duration::from_secs(5), ..Limits::default() };
    let runtime = parts.builder().limits(limits).build().unwrap();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    handle.stop();
    let error = run.await.unwrap().unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient);
    assert!(error.message().contains("not finished within 5s"), "{error}");
    // The drain, and then the sink that does not close either.
    assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
    assert_eq!((parts.saved(), parts.source().closed), (0, 1));
    assert!(parts.source().acknowledged.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_abort_ends_at_once_and_leaves_the_batch() {
    let parts = Parts::with(100);
    parts.sink().commit_time = Duration::from_secs(3600);
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    handle.abort();
    assert_eq!(run.await.unwrap().unwrap_err().class(), ErrorClass::Transient);
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(handle.state(), Phase::Aborted);
    sleep(Duration::from_secs(7200)).await;
    assert_eq!((parts.saved(), parts.sink().batches.len()), (0, 0), "the committer is gone as well");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_run_is_an_abort() {
    let parts = Parts::with(100);
    parts.sink().commit_time = Duration::from_secs(3600);
    let runtime = parts.build();
    let handle = runtime.handle();
    tokio::time::timeout(Duration::from_secs(1), runtime.run()).await.unwrap_err();
    assert_eq!(handle.ended().await.phase, Phase::Aborted);
    sleep(Duration::from_secs(7200)).await;
    assert_eq!((parts.saved(), parts.sink().batches.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_backing_off_or_opening_ends_at_once() {
    let parts = Parts::with(1);
    for _ in 0..20 {
        parts.source().opens.push_back(Next::Fail(ConnectError::transient("database away")));
    }
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(handle.state(), Phase::BackingOff);
    let began = Instant::now();
    handle.stop();
    run.await.unwrap().unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);

    let runtime = parts
        .builder()
        .source(|| async {
            sleep(Duration::from_secs(3600)).await;
            Err(ConnectError::bug("never reached"))
        })
        .build()
        .unwrap();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    handle.stop();
    run.await.unwrap().unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_long_for_a_first_poll() {
    let parts = Parts::default();
    parts.source().idle_time = Duration::from_secs(3600);
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(handle.state(), Phase::Running);
    let began = Instant::now();
    handle.stop();
    run.await.unwrap().unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(2));
    assert_eq!(parts.source().poll_calls, 1);
    assert_eq!((parts.source().closed, parts.sink().closed), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_first_poll_that_comes_back_in_time_is_delivered() {
    let parts = Parts::with(3);
    parts.source().poll_time = Duration::from_secs(10);
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    sleep(Duration::from_secs(9)).await;
    handle.stop();
    run.await.unwrap().unwrap();
    assert_eq!((parts.delivered(), parts.saved()), (vec![1, 2, 3], 3));
}

#[tokio::test(start_paused = true)]
async fn a_poll_of_a_source_that_has_delivered_is_never_dropped() {
    let parts = Parts::with(3);
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    handle.until(|status| status.records_acknowledged == 3).await;
    parts.source().idle_time = Duration::from_secs(60);
    sleep(Duration::from_secs(1)).await;
    parts.source().available = 6;
    handle.stop();
    run.await.unwrap().unwrap();
    assert_eq!((parts.delivered(), parts.saved()), (vec![1, 2, 3, 4, 5, 6], 6));
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_the_start_opens_nothing() {
    let parts = Parts::with(1);
    let runtime = parts.build();
    runtime.handle().stop();
    runtime.run().await.unwrap();
    assert_eq!(parts.source().opened.len(), 0);
}
