//! How a stream ends, and what must not end it.

use std::time::Duration;

use crabka_pgrepl::{Error, ErrorClass, StreamEvent, StreamSettings};
use tokio::io::AsyncReadExt;

use super::server::{Received, Walsender, config, drain, keepalive, message, parameter, report, wal};

fn payloads(events: &[StreamEvent]) -> Vec<Vec<u8>> {
    let payload = |event: &StreamEvent| match event {
        StreamEvent::Wal { payload, .. } => Some(payload.to_vec()),
        _ => None,
    };
    events.iter().filter_map(payload).collect()
}

#[tokio::test(start_paused = true)]
async fn an_error_in_mid_stream_comes_after_the_events_before_it() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    server.send(&wal(0x2000, b"before")).await;
    server.send(&report(b'E', "FATAL", "57P01", "terminating connection")).await;
    drop(server);
    let (events, error) = drain(&mut stream).await;
    assert_eq!(payloads(&events), [b"before"]);
    let error = error.unwrap();
    assert_eq!((error.sqlstate(), error.class()), (Some("57P01"), ErrorClass::Transient));
    let message = error.server().unwrap();
    assert_eq!((message.severity(), message.message()), ("FATAL", "terminating connection"));
    assert_eq!(message.detail(), Some("secret row"));
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    // After an error the stream says only that it is over.
    assert!(matches!(stream.try_next(), Err(Error::Ended)));
    assert!(matches!(stream.fill().await, Err(Error::Ended)));
}

/// DEL-40: the class of each code.
#[tokio::test(start_paused = true)]
async fn each_sqlstate_has_its_class() {
    for (sqlstate, class) in [
        ("57P01", ErrorClass::Transient),
        ("57P02", ErrorClass::Transient),
        ("57P03", ErrorClass::Transient),
        ("53300", ErrorClass::Transient),
        ("55006", ErrorClass::Transient),
        ("08006", ErrorClass::Transient),
        ("28P01", ErrorClass::Authentication),
        ("28000", ErrorClass::Authentication),
        ("42501", ErrorClass::Server),
        ("42704", ErrorClass::Server),
        ("55000", ErrorClass::Server),
        ("22021", ErrorClass::Server),
        ("QQ123", ErrorClass::Server),
    ] {
        let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
        server.send(&report(b'E', "ERROR", sqlstate, "text")).await;
        let error = drain(&mut stream).await.1.unwrap();
        assert_eq!((error.sqlstate(), error.class()), (Some(sqlstate), class));
    }
}

#[tokio::test(start_paused = true)]
async fn notices_and_parameters_end_nothing() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    server.send(&parameter("application_name", "x")).await;
    server.send(&report(b'N', "WARNING", "55000", "skipped loading publication: p")).await;
    server.send(&wal(0x2000, b"after")).await;
    server.send(&message(b'A', &[0, 0, 0, 1, b'c', 0, b'p', 0])).await;
    server.send(&message(b'C', b"COPY 0\0")).await;
    let (events, error) = drain(&mut stream).await;
    assert!(error.is_none());
    let StreamEvent::Notice { notice } = &events[0] else { panic!("{events:?}") };
    assert_eq!((notice.severity(), notice.sqlstate()), ("WARNING", "55000"));
    assert_eq!(payloads(&events), [b"after"]);
    assert_eq!(events.last(), Some(&StreamEvent::Ended));
    // The end is said again to whoever asks, and waiting for more does not hang.
    stream.fill().await.unwrap();
    assert_eq!(stream.try_next().unwrap(), Some(StreamEvent::Ended));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_is_transient() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    server.send(&wal(0x2000, b"before")).await;
    drop(server);
    let (events, error) = drain(&mut stream).await;
    assert_eq!(payloads(&events), [b"before"]);
    let error = error.unwrap();
    assert!(error.is_transient() && matches!(error, Error::Closed { .. }), "{error}");

    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    let frame = wal(0x2000, b"cut off");
    server.send(&frame[..frame.len() - 1]).await;
    drop(server);
    let (events, error) = drain(&mut stream).await;
    assert!(events.is_empty());
    let error = error.unwrap();
    assert!(error.is_transient() && error.to_string().contains("inside a message"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_oversized_frame_is_refused_before_it_is_buffered() {
    let config = config().with_frame_limit(100_000);
    let (mut server, mut stream) =
        Walsender::streaming_over(1 << 20, &config, StreamSettings::default()).await;
    server.send(&wal(0x2000, b"small")).await;
    // The header alone: the error must not wait for the body.
    server.send(&[b'd', 0x7f, 0xff, 0xff, 0xff]).await;
    let (events, error) = drain(&mut stream).await;
    assert_eq!(payloads(&events), [b"small"]);
    let error = error.unwrap();
    assert!(
        matches!(error, Error::FrameTooLarge { tag: 'd', length: 0x8000_0000, limit: 100_000 }),
        "{error}"
    );
    assert_eq!(error.class(), ErrorClass::Configuration);
}

#[tokio::test(start_paused = true)]
async fn broken_messages_are_protocol_errors() {
    for bytes in [
        message(b'd', b""),
        message(b'd', b"w\0\0\0"),
        message(b'd', &[b"k".as_slice(), &[0; 16]].concat()),
        message(b'd', &[b"k".as_slice(), &[0; 18]].concat()),
        message(b'd', b"z"),
        message(b'T', b""),
        message(b'E', b"Cno end"),
        vec![b'd', 0, 0, 0, 3],
    ] {
        let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
        server.send(&bytes).await;
        let (events, error) = drain(&mut stream).await;
        assert!(events.is_empty());
        assert_eq!(error.unwrap().class(), ErrorClass::Protocol, "{bytes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_reports_the_last_position_and_waits_for_the_server() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    server.send(&wal(0x2000, b"x")).await;
    stream.fill().await.unwrap();
    stream.try_next().unwrap();
    stream.acknowledge(0x2000.into()).unwrap();
    let script = async {
        let status = server.status().await;
        assert_eq!((status.write, status.flush), (0x2000, 0x2000));
        assert_eq!(server.receive().await, Received::CopyDone);
        // A transaction that is being sent goes on after the server's CopyDone.
        server.send(&message(b'c', b"")).await;
        for lsn in 0x3000..0x3100 {
            server.send(&wal(lsn, &[7; 5000])).await;
        }
        server.send(&message(b'C', b"COPY 0\0")).await;
        server.send(&message(b'C', b"START_REPLICATION\0")).await;
        server.send(&message(b'Z', b"I")).await;
        assert_eq!(server.receive().await, Received::Terminate);
        assert_eq!(server.receive().await, Received::End);
    };
    let (closed, ()) = tokio::join!(stream.close(Duration::from_secs(5)), script);
    closed.unwrap();
}

#[tokio::test(start_paused = true)]
async fn closing_a_stream_that_is_over_tells_whether_the_position_was_reported() {
    for (acknowledge_late, reported) in [(false, true), (true, false)] {
        let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
        server.send(&wal(0x2000, b"x")).await;
        server.send(&message(b'C', b"COPY 0\0")).await;
        drain(&mut stream).await;
        if acknowledge_late {
            stream.acknowledge(0x2000.into()).unwrap();
        }
        assert_eq!(stream.close(Duration::from_secs(1)).await.is_ok(), reported);
    }
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    server.send(&report(b'E', "FATAL", "57P01", "gone")).await;
    drain(&mut stream).await;
    assert!(stream.close(Duration::from_secs(1)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_ever() {
    let (mut server, stream) = Walsender::streaming(StreamSettings::default()).await;
    let error = stream.close(Duration::from_secs(2)).await.unwrap_err();
    assert!(error.is_transient() && matches!(error, Error::TimedOut { .. }), "{error}");
    // What the server has is the last status, the end, and nothing broken.
    server.status().await;
    assert_eq!(server.receive().await, Received::CopyDone);
    let mut rest = Vec::new();
    server.io.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_servers_own_end_is_answered() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    server.send(&message(b'c', b"")).await;
    server.send(&keepalive(0x2000, true)).await;
    let script = async {
        assert_eq!(server.receive().await, Received::CopyDone);
        server.send(&message(b'C', b"COPY 0\0")).await;
    };
    let ((events, error), ()) = tokio::join!(drain(&mut stream), script);
    assert!(error.is_none());
    assert_eq!(events.last(), Some(&StreamEvent::Ended));
}
