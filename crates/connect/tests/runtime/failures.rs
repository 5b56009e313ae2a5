//! Retries, and errors that are not retried.

use std::time::Duration;

use crabka_connect::{
    BytesConverter, ConnectError, ConnectorRuntime, ErrorClass, Limits, NullSink, Phase, RetryPolicy, Sink,
};
use tokio::time::sleep;

use crate::parts::{Next, Parts};

fn away() -> Next {
    Next::Fail(ConnectError::transient("database away"))
}

/// OPS-22: capped exponential back-off, visible, for ever; opening alone does not start it afresh.
#[tokio::test(start_paused = true)]
async fn ops_22_transient_errors_are_retried_with_growing_delays() {
    let parts = Parts::with(5);
    for _ in 0..12 {
        parts.source().polls.push_back(away());
        parts.sink().commits.push_back(Next::Fail(ConnectError::transient("broker away")));
    }
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    let status = handle.until(|status| status.attempts == 3).await;
    assert_eq!(status.phase, Phase::BackingOff);
    assert_eq!(status.retries, 3);
    let error = status.last_error.unwrap();
    assert_eq!((error.class, error.message.as_str()), ("transient", "database away"));
    assert!(status.next_attempt_at_ms.unwrap() >= error.at_ms + 800);
    let status = handle.until(|status| status.records_acknowledged == 5).await;
    assert_eq!((status.attempts, status.retries, status.next_attempt_at_ms), (0, 12, None));
    assert_eq!(status.last_error.unwrap().message, "database away");

    let opened = parts.source().opened.clone();
    let delays: Vec<u128> = opened.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    assert_eq!(delays, [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000, 30000, 30000]);

    // Progress was made: the next trouble begins with the first delay again.
    parts.sink().commits.clear();
    parts.source().polls.push_back(away());
    let before = parts.source().opened.len();
    handle.until(|status| status.retries == 13 && status.phase == Phase::Running).await;
    assert_eq!(parts.source().opened.len(), before + 1);
    assert_eq!(handle.status().attempts, 1);
    handle.stop();
    run.await.unwrap().unwrap();
    assert_eq!(parts.delivered(), [1, 2, 3, 4, 5]);
    let opened = parts.source().opened.len();
    assert_eq!(parts.source().closed, opened);
}

#[tokio::test(start_paused = true)]
async fn ops_22_attempts_can_be_limited() {
    let parts = Parts::with(5);
    for _ in 0..10 {
        parts.source().opens.push_back(away());
    }
    let retry = RetryPolicy { max_attempts: Some(4), ..RetryPolicy::default() };
    let runtime = parts.builder().retry(retry).build().unwrap();
    let handle = runtime.handle();
    let error = runtime.run().await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient);
    assert_eq!(
        error.message(),
        "gave up after 4 attempts without progress: opening the source: database away"
    );
    assert_eq!(parts.source().opened.len(), 4);
    assert_eq!(handle.state(), Phase::Failed);
}

#[tokio::test(start_paused = true)]
async fn ops_22_other_classes_stop_at_once() {
    for make in [ConnectError::configuration, ConnectError::data, ConnectError::offset, ConnectError::fenced]
    {
        let parts = Parts::with(5);
        parts.source().opens.push_back(Next::Fail(make("no".to_owned())));
        let error = parts.build().run().await.unwrap_err();
        assert_eq!(error.class(), make("no".to_owned()).class());
        assert_eq!((parts.source().opened.len(), parts.sink().closed), (1, 1));
    }
}

/// Whatever fails, the run goes on behind the last saved offset, and repeats no more than that.
#[tokio::test(start_paused = true)]
async fn every_part_may_fail_for_a_while() {
    let parts = Parts::with(0);
    let runtime = parts.build();
    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    for round in 1..=60_u64 {
        match round % 6 {
            0 => parts.source().polls.push_back(away()),
            1 => parts.source().acknowledges.push_back(away()),
            2 => parts.sink().commits.push_back(away()),
            3 => parts.store().saves.push_back(away()),
            4 => {
                parts.source().opens.push_back(away());
                parts.source().polls.push_back(away());
            }
            _ => {
                parts.sink().opens.push_back(away());
                parts.source().polls.push_back(away());
            }
        }
        parts.source().available = round * 10;
        let status = handle.until(|status| status.records_checkpointed >= round * 10).await;
        assert!(!status.phase.has_ended(), "{:?}", status.last_error);
        sleep(Duration::from_millis(100)).await;
    }
    handle.stop();
    run.await.unwrap().unwrap();
    let delivered = parts.delivered();
    let mut seen = delivered.clone();
    seen.dedup();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (1..=600).collect::<Vec<_>>());
    // Only a failed save repeats records here: the sink had them.
    assert_eq!(delivered.len(), 600 + 10 * 10);
    assert_eq!(parts.source().acknowledged.last(), Some(&600));
}

/// What a source returned before it failed is delivered, so that a poison record does not repeat its neighbours.
#[tokio::test(start_paused = true)]
async fn records_before_a_bad_one_are_delivered_before_the_stop() {
    for (error, delivered) in [
        (ConnectError::data("row of table t cannot be decoded"), 10),
        (ConnectError::configuration("publication missing"), 10),
        (ConnectError::offset("slot invalidated"), 10),
        (ConnectError::fenced("another instance"), 0),
        (ConnectError::bug("broken invariant"), 0),
    ] {
        let class = error.class();
        let parts = Parts::with(10);
        parts.source().polls.push_back(Next::Fail(error));
        assert_eq!(parts.build().run().await.unwrap_err().class(), class);
        assert_eq!(parts.delivered().len(), delivered, "{class}");
        assert_eq!(parts.saved() as usize, delivered, "{class}");
        assert_eq!(parts.source().acknowledged.len(), usize::from(delivered > 0), "{class}");
        assert_eq!(parts.source().closed, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_cannot_be_encoded_stops_with_the_position_before_it() {
    struct Picky;
    impl crabka_connect::Converter<serde_json::Value, serde_json::Value> for Picky {
        fn encode(
            &mut self,
            record: crabka_connect::ConnectRecord<serde_json::Value, serde_json::Value>,
            buffer: &mut bytes::BytesMut,
        ) -> Result<crabka_connect::ConnectRecord<bytes::Bytes, bytes::Bytes>, ConnectError> {
            if record.value == Some(serde_json::json!(77)) {
                return Err(ConnectError::data("no form for this value"));
            }
            crabka_connect::JsonConverter.encode(record, buffer)
        }
    }
    let parts = Parts::with(100);
    parts.source().chunk = 10;
    parts.sink().commit_time = Duration::from_millis(1);
    let error = parts.builder().converter(Picky).build().unwrap().run().await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Data);
    // Polls of ten: the whole poll with the bad value is held back, everything before it is through.
    assert_eq!(parts.delivered(), (1..=70).collect::<Vec<_>>());
    assert_eq!((parts.saved(), parts.source().acknowledged.last().copied()), (70, Some(70)));
}

#[tokio::test(start_paused = true)]
async fn records_without_a_position_are_a_bug() {
    let parts = Parts::with(5);
    parts.source().no_checkpoint = true;
    let error = parts.build().run().await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Bug);
    assert_eq!((parts.delivered().len(), parts.source().closed), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_panic_anywhere_ends_the_run_with_a_bug() {
    let inject: [fn(&Parts); 6] = [
        |parts| parts.source().opens.push_back(Next::Panic),
        |parts| parts.source().polls.push_back(Next::Panic),
        |parts| parts.source().acknowledges.push_back(Next::Panic),
        |parts| parts.sink().opens.push_back(Next::Panic),
        |parts| parts.sink().commits.push_back(Next::Panic),
        |parts| parts.store().saves.push_back(Next::Panic),
    ];
    for inject in inject {
        let parts = Parts::with(5);
        inject(&parts);
        let runtime = parts.build();
        let handle = runtime.handle();
        let run = tokio::time::timeout(Duration::from_secs(3600), runtime.run());
        let error = run.await.expect("the run hangs").unwrap_err();
        assert_eq!(error.class(), ErrorClass::Bug, "{error}");
        assert!(error.message().contains("panicked: told to panic"), "{error}");
        assert_eq!(handle.state(), Phase::Failed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_store_is_a_configuration_error() {
    let runtime = ConnectorRuntime::<bytes::Bytes, bytes::Bytes>::builder("numbers")
        .source(|| async { Err(ConnectError::bug("not reached")) })
        .sink(|| async { Ok(Box::new(NullSink::new()) as Box<dyn Sink<_, _>>) })
        .converter(BytesConverter)
        .build()
        .unwrap();
    let error = runtime.run().await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Configuration);
}

#[test]
fn a_builder_with_something_missing_or_senseless_is_refused() {
    let parts = Parts::with(0);
    let incomplete = ConnectorRuntime::<bytes::Bytes, bytes::Bytes>::builder("numbers").build();
    assert_eq!(incomplete.err().unwrap().class(), ErrorClass::Configuration);
    let limits = Limits { max_batch_records: 0, ..Limits::default() };
    assert_eq!(parts.builder().limits(limits).build().err().unwrap().class(), ErrorClass::Configuration);
    let retry = RetryPolicy { first_delay: Duration::ZERO, ..RetryPolicy::default() };
    assert_eq!(parts.builder().retry(retry).build().err().unwrap().class(), ErrorClass::Configuration);
}
