//! Statuses: when they go out, what they say, how many there are.

use std::time::Duration;

use crabka_pgrepl::{Error, ErrorClass, Lsn, StreamEvent, StreamSettings};
use proptest::prelude::*;
use tokio::time::{Instant, advance, timeout};

use super::server::{Received, START, Walsender, config, keepalive, wal};

#[tokio::test(start_paused = true)]
async fn a_requested_reply_goes_out_at_once() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    let before = Instant::now();
    server.send(&keepalive(0x2000, true)).await;
    stream.fill().await.unwrap();
    let event = stream.try_next().unwrap().unwrap();
    assert_eq!(
        event,
        StreamEvent::KeepAlive { wal_end: Lsn::new(0x2000), time_us: 78, reply_requested: true }
    );
    let status = tokio::select! {
        outcome = timeout(Duration::from_secs(1), stream.fill()) => panic!("{outcome:?}"),
        status = server.status() => status,
    };
    assert_eq!((status.write, status.flush, status.apply, status.ask), (0x2000, 0x1000, 0x1000, false));
    assert!(before.elapsed() <= Duration::from_millis(2), "{:?}", before.elapsed());
}

/// DEL-37: our own timer, whatever the server's time-out.
#[tokio::test(start_paused = true)]
async fn an_acknowledge_on_a_quiet_stream_goes_out_within_milliseconds() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    server.send(&wal(0x3000, b"x")).await;
    stream.fill().await.unwrap();
    stream.try_next().unwrap().unwrap();
    for (acknowledged, reported) in [(0x2000, 0x2000), (0x3000, 0x3000)] {
        // Long after the last status, and in a `fill` that has begun to wait before.
        assert!(timeout(Duration::from_millis(700), stream.fill()).await.is_err());
        stream.acknowledge(Lsn::new(acknowledged)).unwrap();
        let before = Instant::now();
        let status = tokio::select! {
            outcome = stream.fill() => panic!("{outcome:?}"),
            status = server.status() => status,
        };
        assert_eq!((status.write, status.flush, status.apply), (0x3000, reported, reported));
        assert!(before.elapsed() <= Duration::from_millis(2), "{:?}", before.elapsed());
    }
    // Nothing new: nothing is sent before the interval is over.
    stream.acknowledge(Lsn::new(0x2000)).unwrap();
    assert_eq!(stream.acknowledged(), Lsn::new(0x3000));
    let before = Instant::now();
    let status = tokio::select! {
        outcome = stream.fill() => panic!("{outcome:?}"),
        status = server.status() => status,
    };
    assert_eq!(status.flush, 0x3000);
    assert!((9..=10).contains(&before.elapsed().as_secs()), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_interval_is_a_third_of_the_servers_patience_at_most() {
    let patience = Duration::from_secs(6);
    let config = config().with_wal_sender_timeout(Some(patience));
    let (mut server, mut stream) =
        Walsender::streaming_over(1 << 20, &config, StreamSettings::default()).await;
    let before = Instant::now();
    let reading = tokio::spawn(async move { stream.fill().await });
    for count in 1..=5 {
        server.status().await;
        let expected = Duration::from_secs(2) * count;
        assert!(
            before.elapsed().abs_diff(expected) < Duration::from_millis(50),
            "{count}: {:?}",
            before.elapsed()
        );
    }
    reading.abort();
}

/// DEL-36: a consumer without room keeps the feedback going and reads nothing.
#[tokio::test(start_paused = true)]
async fn keep_alive_sends_statuses_and_reads_nothing() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    server.send(&wal(0x2000, b"waits")).await;
    for _ in 0..6 {
        let before = Instant::now();
        let status = tokio::select! {
            outcome = stream.keep_alive() => panic!("{outcome:?}"),
            status = server.status() => status,
        };
        assert_eq!((status.write, status.ask), (0x1000, false));
        assert!(before.elapsed() <= Duration::from_millis(10_010));
    }
    assert!(stream.try_next().unwrap().is_none());
    stream.fill().await.unwrap();
    assert!(matches!(stream.try_next().unwrap(), Some(StreamEvent::Wal { .. })));
}

#[tokio::test(start_paused = true)]
async fn statuses_do_not_pile_up_before_a_server_that_reads_nothing() {
    // The pipe holds two statuses and a half.
    let (mut server, mut stream) = Walsender::streaming_over(100, &config(), StreamSettings::default()).await;
    server.send(&wal(0x2000, b"x")).await;
    stream.fill().await.unwrap();
    stream.try_next().unwrap();
    drop(timeout(Duration::from_secs(3600), stream.keep_alive()).await);
    stream.acknowledge(Lsn::new(0x2000)).unwrap();
    let mut statuses = Vec::new();
    let reading = async {
        while statuses.last() != Some(&0x2000) {
            statuses.push(server.status().await.flush);
        }
    };
    tokio::select! {
        outcome = stream.keep_alive() => panic!("{outcome:?}"),
        () = reading => {}
    }
    assert_eq!(statuses, [0x1000, 0x1000, 0x1000, 0x2000]);
}

/// DEL-61: a server in fast shutdown asks without end.
#[tokio::test(start_paused = true)]
async fn forty_thousand_requests_a_second_get_a_hundred_answers() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    let began = Instant::now();
    let (mut statuses, mut requests) = (0, 0);
    let burst: Vec<u8> = (0..40).flat_map(|_| keepalive(0x2000, true)).collect();
    for _ in 0..1000 {
        server.send(&burst).await;
        let mut pending = 40;
        while pending > 0 {
            stream.fill().await.unwrap();
            while let Some(event) = stream.try_next().unwrap() {
                assert!(matches!(event, StreamEvent::KeepAlive { reply_requested: true, .. }));
                pending -= 1;
                requests += 1;
            }
        }
        advance(Duration::from_millis(1)).await;
        while let Ok(received) = timeout(Duration::ZERO, server.receive()).await {
            assert!(matches!(received, Received::Status(_)));
            statuses += 1;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    assert_eq!(requests, 40_000);
    assert!((0.9..5.0).contains(&seconds), "{seconds}");
    let rate = f64::from(statuses) / seconds;
    assert!((20.0..=101.0).contains(&rate), "{statuses} in {seconds} s");
}

/// DEL-21: acknowledging every transaction costs no more statuses than acknowledging now and then.
#[tokio::test(start_paused = true)]
async fn a_flood_of_acknowledges_is_coalesced() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    let mut statuses = 0;
    let mut last = 0;
    for lsn in 0x2000..0x2000 + 5_000_u64 {
        server.send(&wal(lsn, b"c")).await;
        stream.fill().await.unwrap();
        while stream.try_next().unwrap().is_some() {}
        stream.acknowledge(Lsn::new(lsn)).unwrap();
        if lsn % 5 == 0 {
            advance(Duration::from_millis(1)).await;
        }
        while let Ok(Received::Status(status)) = timeout(Duration::ZERO, server.receive()).await {
            statuses += 1;
            last = status.flush;
        }
    }
    assert!((50..=1000).contains(&statuses), "{statuses}");
    assert!(last > 0x2000 + 4_800);
}

/// DEL-62: refused, with both positions.
#[tokio::test(start_paused = true)]
async fn nothing_above_what_was_received_is_acknowledged() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    assert_eq!((stream.received(), stream.acknowledged()), (START, START));
    stream.acknowledge(START).unwrap();
    server.send(&wal(0x2000, b"x")).await;
    stream.fill().await.unwrap();
    // Received by the socket only: the event has not been looked at.
    assert!(stream.acknowledge(Lsn::new(0x2000)).is_err());
    stream.try_next().unwrap();
    stream.acknowledge(Lsn::new(0x2000)).unwrap();
    let error = stream.acknowledge(Lsn::new(0x10_2000)).unwrap_err();
    assert!(matches!(error, Error::AcknowledgeAhead { .. }));
    assert_eq!(error.class(), ErrorClass::Caller);
    assert!(error.to_string().contains("0/102000") && error.to_string().contains("0/2000"), "{error}");
    assert_eq!(stream.acknowledged(), Lsn::new(0x2000));
}

#[derive(Debug, Clone)]
enum Step {
    Wal(u64),
    Relation,
    KeepAlive(u64, bool),
    Acknowledge(u64),
    Pause(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u64..0x4000).prop_map(Step::Wal),
        Just(Step::Relation),
        (0_u64..0x4000, any::<bool>()).prop_map(|(lsn, ask)| Step::KeepAlive(lsn, ask)),
        (0_u64..0x4000).prop_map(Step::Acknowledge),
        (0_u64..15_000).prop_map(Step::Pause),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// DEL-18, DEL-62: whatever happens, positions never go back, and flush = apply ≤ write ≤ received.
    #[test]
    fn reported_positions_are_monotone_and_never_ahead(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async move {
            let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
            let (mut sent, mut acknowledged) = (0x1000, 0x1000);
            let (mut write, mut flush) = (0, 0);
            for step in steps {
                let mut arrives = 0;
                match step {
                    Step::Wal(lsn) => { server.send(&wal(lsn, b"x")).await; sent = sent.max(lsn); arrives = 1; }
                    Step::Relation => { server.send(&wal(0, b"R")).await; arrives = 1; }
                    Step::KeepAlive(lsn, ask) => { server.send(&keepalive(lsn, ask)).await; sent = sent.max(lsn); arrives = 1; }
                    Step::Acknowledge(lsn) => {
                        assert_eq!(stream.acknowledge(Lsn::new(lsn)).is_ok(), lsn <= sent);
                        if lsn <= sent { acknowledged = acknowledged.max(lsn); }
                    }
                    Step::Pause(ms) => drop(timeout(Duration::from_millis(ms), stream.keep_alive()).await),
                }
                for _ in 0..arrives {
                    stream.fill().await.unwrap();
                    assert!(stream.try_next().unwrap().is_some());
                }
                drop(timeout(Duration::from_millis(20), stream.keep_alive()).await);
                while let Ok(Received::Status(status)) = timeout(Duration::ZERO, server.receive()).await {
                    assert!(status.write >= write && status.flush >= flush && status.flush == status.apply);
                    assert!(status.flush <= status.write && status.write <= sent);
                    (write, flush) = (status.write, status.flush);
                }
                assert!(flush == 0 || flush == acknowledged, "{flush:x} {acknowledged:x}");
            }
        });
    }
}
