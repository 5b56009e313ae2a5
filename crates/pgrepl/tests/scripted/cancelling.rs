//! DEL-41, DEL-42: futures dropped at every byte, in both directions.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crabka_pgrepl::{Lsn, ReplicationStream, StreamEvent, StreamSettings};
use tokio::time::advance;

use super::server::{Received, Walsender, config, drain, keepalive, message, report, wal};

fn script() -> Vec<u8> {
    let mut bytes = Vec::new();
    for lsn in 0..20_u64 {
        bytes.extend(wal(0x2000 + lsn, &vec![b'x'; usize::try_from(lsn * 3).unwrap()]));
        bytes.extend(keepalive(0x2000 + lsn, lsn % 3 == 0));
    }
    bytes.extend(report(b'N', "NOTICE", "00000", "between"));
    bytes.extend(wal(0x3000, b"last"));
    bytes.extend(message(b'C', b"COPY 0\0"));
    bytes
}

async fn whole() -> Vec<StreamEvent> {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    server.send(&script()).await;
    let (events, error) = drain(&mut stream).await;
    assert!(error.is_none());
    events
}

/// Polls once and drops the future.
async fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

fn take(stream: &mut ReplicationStream, events: &mut Vec<StreamEvent>) {
    while events.last() != Some(&StreamEvent::Ended) {
        match stream.try_next().unwrap() {
            Some(event) => events.push(event),
            None => return,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn byte_at_a_time_gives_the_same_events() {
    let (mut server, mut stream) = Walsender::streaming_over(1, &config(), StreamSettings::default()).await;
    let sending = tokio::spawn(async move {
        server.send(&script()).await;
        server
    });
    // The pipe holds one byte each way and nobody takes the answers: they must not block the reading.
    let (events, error) = drain(&mut stream).await;
    assert!(error.is_none());
    assert_eq!(events, whole().await);
    drop(sending);
}

#[tokio::test(start_paused = true)]
async fn a_read_dropped_at_every_byte_loses_nothing() {
    for read_pause in [Duration::ZERO, Duration::from_millis(1)] {
        let settings = StreamSettings { read_pause, ..StreamSettings::default() };
        let (mut server, mut stream) = Walsender::streaming(settings).await;
        let mut events = Vec::new();
        for byte in script() {
            // Before the byte: a future that waits and is dropped. After it: one that reads it, or puts off the
            // reading, and one that reads it then.
            assert!(once(stream.fill()).await.is_none_or(|outcome| outcome.is_ok()));
            server.send(&[byte]).await;
            drop(once(stream.keep_alive()).await);
            assert!(once(stream.fill()).await.is_none_or(|outcome| outcome.is_ok()));
            advance(read_pause).await;
            assert!(once(stream.fill()).await.is_none_or(|outcome| outcome.is_ok()));
            take(&mut stream, &mut events);
        }
        assert_eq!(events, whole().await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_dropped_at_every_byte_sends_whole_statuses_once() {
    // The pipe takes one byte at a time.
    let settings = StreamSettings { silence_limit: None, ..StreamSettings::default() };
    let (mut server, mut stream) = Walsender::streaming_over(1, &config(), settings).await;
    let reader = tokio::spawn(async move {
        let mut statuses = Vec::new();
        while let Received::Status(status) = server.receive().await {
            statuses.push(status);
        }
        statuses
    });
    let mut expected = 0;
    for round in 0..20 {
        advance(Duration::from_secs(11)).await;
        for _ in 0..60 {
            let future_dropped = if round % 2 == 0 {
                once(stream.keep_alive()).await.is_none()
            } else {
                once(stream.fill()).await.is_none()
            };
            assert!(future_dropped);
            tokio::task::yield_now().await;
        }
        expected += 1;
    }
    drop(stream);
    let statuses = reader.await.unwrap();
    assert_eq!(statuses.len(), expected);
    assert!(statuses.iter().all(|status| (status.write, status.flush) == (0x1000, 0x1000)));
}

#[tokio::test(start_paused = true)]
async fn statuses_and_large_messages_do_not_mix() {
    let (server, mut stream) = Walsender::streaming_over(997, &config(), StreamSettings::default()).await;
    let (mut incoming, mut outgoing) = tokio::io::split(server.io);
    let sending = tokio::spawn(async move {
        for lsn in 0..200_u64 {
            let frame = wal(0x2000 + lsn, &vec![u8::try_from(lsn).unwrap(); 20_000]);
            tokio::io::AsyncWriteExt::write_all(&mut outgoing, &frame).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        outgoing
    });
    let receiving = tokio::spawn(async move {
        let mut bytes = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut incoming, &mut bytes).await.unwrap();
        bytes
    });
    let mut seen = 0_u64;
    while seen < 200 {
        stream.fill().await.unwrap();
        while let Some(event) = stream.try_next().unwrap() {
            let StreamEvent::Wal { end, payload, .. } = event else { panic!("{event:?}") };
            assert_eq!((end, payload.len()), (Lsn::new(0x2000 + seen), 20_000));
            assert!(payload.iter().all(|byte| u64::from(*byte) == seen));
            stream.acknowledge(end).unwrap();
            seen += 1;
        }
    }
    let outgoing = sending.await.unwrap();
    drop(stream);
    drop(outgoing);
    let bytes = receiving.await.unwrap();
    // Nothing but whole statuses: `d`, length 38, `r`.
    assert!(bytes.len() > 100 * 39);
    for status in bytes.chunks(39) {
        assert_eq!(status[..6], [b'd', 0, 0, 0, 38, b'r']);
    }
}
