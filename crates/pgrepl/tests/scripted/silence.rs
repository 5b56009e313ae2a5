//! DEL-38: a peer that goes silent is detected, not waited on for ever.

use std::time::Duration;

use crabka_pgrepl::{Error, StreamSettings};
use tokio::time::{Instant, timeout};

use super::server::{Received, Walsender, drain, keepalive, wal};

fn near(elapsed: Duration, expected: u64) -> bool {
    elapsed.abs_diff(Duration::from_secs(expected)) < Duration::from_millis(100)
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_asked_and_then_given_up() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    server.send(&wal(0x2000, b"last words")).await;
    let began = Instant::now();
    let listen = async {
        let mut asked = Vec::new();
        while let Received::Status(status) = server.receive().await {
            if status.ask {
                asked.push(began.elapsed());
            }
        }
        asked
    };
    let reading = async {
        let (events, error) = drain(&mut stream).await;
        drop(stream);
        (events, error)
    };
    let ((events, error), asked) = tokio::join!(reading, listen);
    assert_eq!(events.len(), 1);
    let error = error.unwrap();
    assert!(matches!(error, Error::PeerSilent { .. }) && error.is_transient(), "{error}");
    assert!(near(began.elapsed(), 60), "{:?}", began.elapsed());
    assert_eq!(asked.len(), 1);
    assert!(near(asked[0], 30), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_is_not_given_up() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    let answer = async {
        while let Received::Status(status) = server.receive().await {
            if status.ask {
                server.send(&keepalive(0x1000, false)).await;
            }
        }
    };
    let reading = timeout(Duration::from_secs(3600), drain(&mut stream));
    tokio::select! {
        outcome = reading => assert!(outcome.is_err(), "{outcome:?}"),
        () = answer => panic!("the stream ended"),
    }
}

#[tokio::test(start_paused = true)]
async fn not_reading_is_not_the_servers_silence() {
    let (mut server, mut stream) = Walsender::streaming(StreamSettings::default()).await;
    drop(timeout(Duration::from_secs(300), stream.keep_alive()).await);
    while let Ok(Received::Status(status)) = timeout(Duration::ZERO, server.receive()).await {
        assert!(!status.ask);
    }
    // The server was quiet all the time; it is asked first, and has its time to answer.
    let began = Instant::now();
    let answer = async {
        while let Received::Status(status) = server.receive().await {
            if status.ask {
                tokio::time::sleep(Duration::from_secs(20)).await;
                server.send(&keepalive(0x1000, false)).await;
                return began.elapsed();
            }
        }
        panic!("not asked");
    };
    let (filled, answered) = tokio::join!(stream.fill(), answer);
    filled.unwrap();
    assert!(near(answered, 20), "{answered:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_silence_is_accepted() {
    let settings = StreamSettings { silence_limit: None, ..StreamSettings::default() };
    let (_server, mut stream) = Walsender::streaming(settings).await;
    assert!(timeout(Duration::from_secs(86_400), stream.fill()).await.is_err());
}
