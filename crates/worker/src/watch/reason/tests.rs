use std::sync::Arc;

use crabka_connect::{InFlight, LastError};
use crabka_connect_postgres::figures::{ReadingTransaction, SlotLook, SourceSnapshot};
use crabka_pgrepl::Lsn;
use tokio::time::Instant;

use super::*;
use crate::watch::{SinkFigures, Watch};

const STALL: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(31);
const SHORT: Duration = Duration::from_millis(10);

/// Running, caught up, heard of a moment ago.
fn idle() -> View {
    let handle = {
        let builder =
            crabka_connect::ConnectorRuntime::<serde_json::Value, serde_json::Value>::builder("orders");
        builder
            .source(|| async { Err(crabka_connect::ConnectError::bug("never opened")) })
            .sink(|| async { Err(crabka_connect::ConnectError::bug("never opened")) })
            .converter(crabka_connect::JsonConverter)
            .build()
            .unwrap()
            .handle()
    };
    let sink = SinkFigures { kind: "null", kafka: None };
    let mut view = Watch::new(&handle, Arc::default(), sink, STALL).view();
    view.status.phase = Phase::Running;
    view.source = SourceSnapshot {
        state: StreamState::Streaming,
        state_for: LONG,
        sessions: 1,
        received: Some(Lsn::new(1_000)),
        polled: Some(Lsn::new(1_000)),
        acknowledged: Some(Lsn::new(1_000)),
        server_wal_end: Some(Lsn::new(1_000)),
        last_read: Some(SHORT),
        last_moved: Some(LONG),
        last_data: None,
        ..view.source
    };
    view
}

fn code(view: &View) -> (Code, bool) {
    let reason = view.reason();
    assert!(!reason.text.is_empty());
    (reason.code, reason.ready)
}

fn failed(view: &mut View, part: Option<&'static str>, sqlstate: Option<&str>) {
    view.status.attempts = 2;
    view.status.last_error = Some(LastError {
        class: "transient",
        part,
        message: "no".to_owned(),
        fix: None,
        sqlstate: sqlstate.map(str::to_owned),
        at_ms: 0,
    });
}

fn look(wal_end: u64, ahead_for: Option<Duration>, error: Option<&str>) -> Option<Arc<SlotLook>> {
    Some(Arc::new(SlotLook {
        at: Instant::now(),
        slot: "orders".to_owned(),
        row: None,
        wal_end: Some(Lsn::new(wal_end)),
        ahead_since: ahead_for.map(|ahead_for| Instant::now().checked_sub(ahead_for).unwrap()),
        wal_retained_bytes: None,
        max_slot_wal_keep_bytes: None,
        retained_bytes_per_second: None,
        held_by: None,
        error: error.map(str::to_owned),
    }))
}

#[tokio::test]
async fn idle_and_heard_of_is_ready() {
    let mut view = idle();
    assert_eq!(code(&view), (Code::Idle, true));
    // The header of a page is nothing to wait for.
    view.source.server_wal_end = Some(Lsn::new(1_040));
    assert_eq!(code(&view), (Code::Idle, true));
    // A server that is looked at need not speak.
    view.source.last_read = Some(LONG);
    view.source.slot = look(1_040, None, None);
    assert_eq!(code(&view), (Code::Idle, true));
    // What is not acknowledged is on its way.
    view.source.oldest_unacknowledged_us = Some(1);
    assert_eq!(code(&view), (Code::Streaming, true));
}

#[tokio::test]
async fn silence_is_not_taken_for_caught_up() {
    let mut view = idle();
    view.source.last_read = Some(LONG);
    assert_eq!(code(&view), (Code::ServerSilent, false));
    view.source.slot = look(1_000, None, Some("no answer"));
    assert_eq!(code(&view), (Code::ServerSilent, false));
    // A look that is old is none.
    let mut old = SlotLook::clone(&look(1_000, None, None).unwrap());
    old.at = Instant::now().checked_sub(LONG).unwrap();
    view.source.slot = Some(Arc::new(old));
    assert_eq!(code(&view), (Code::ServerSilent, false));
}

#[tokio::test]
async fn a_stream_that_stands_still_while_wal_moves_is_not_ready() {
    let mut view = idle();
    view.source.server_wal_end = Some(Lsn::new(9_000));
    // The first look that sees more after a long idle time is no standstill.
    view.source.slot = look(9_000, Some(SHORT), None);
    assert_eq!(code(&view), (Code::Decoding, true));
    view.source.slot = look(9_000, Some(LONG), None);
    view.source.last_moved = Some(SHORT);
    assert_eq!(code(&view), (Code::Decoding, true));
    view.source.last_moved = Some(LONG);
    assert_eq!(code(&view), (Code::Decoding, false));
    view.source.last_read = Some(LONG);
    assert_eq!(code(&view), (Code::ServerSilent, false));
    assert!(view.reason().text.contains("8000 bytes"), "{}", view.reason().text);
}

#[tokio::test]
async fn a_transaction_is_told_with_its_rows_and_bytes() {
    let mut view = idle();
    let since = Duration::from_secs(2);
    view.source.transaction =
        Some(ReadingTransaction { xid: 77, changes: 1_234, bytes: 5_678, commit_time_us: 0, since });
    view.source.last_moved = Some(SHORT);
    assert_eq!(code(&view), (Code::ReadingTransaction, true));
    assert_eq!(view.reason().text, "reading transaction 77: 1234 rows and 5678 bytes in 2000 ms so far");
    view.source.last_moved = Some(LONG);
    view.source.last_read = Some(LONG);
    assert_eq!(code(&view), (Code::ServerSilent, false));
    assert!(view.reason().text.ends_with(", in transaction 77"));
}

#[tokio::test]
async fn a_blocked_sink_says_sink() {
    let mut view = idle();
    let batch = InFlight { records: 5, bytes: 50, since_at_ms: view.at_ms, since: view.at, durable: false };
    view.status.in_flight = Some(batch);
    view.at += STALL - SHORT;
    // A wall clock that is set moves nothing.
    view.at_ms += 1_000_000;
    assert_eq!(code(&view), (Code::Streaming, true));
    view.at += SHORT;
    assert_eq!(code(&view), (Code::Sink, false));
    // An earlier one was delivered twice because its position could not be saved.
    (view.status.records_delivered, view.status.records_checkpointed) = (10, 5);
    assert_eq!(code(&view), (Code::Sink, false));
    view.status.in_flight = Some(InFlight { durable: true, ..batch });
    assert_eq!(code(&view), (Code::Checkpoint, false));
    let mut view = idle();
    view.source.state = StreamState::Unread;
    assert_eq!(code(&view), (Code::Sink, false));
    let mut view = idle();
    view.source.state = StreamState::WaitingForRoom;
    assert_eq!(code(&view), (Code::Sink, false));
    view.source.state_for = SHORT;
    assert!(code(&view).1);
}

#[tokio::test]
async fn an_error_names_the_part_and_is_ready_again_when_that_part_works() {
    for (part, sqlstate, expected) in [
        (Some("sink"), None, Code::Sink),
        (Some("checkpoint"), None, Code::Checkpoint),
        (Some("converter"), None, Code::Converter),
        (Some("source"), Some("57P01"), Code::Source),
        (Some("source"), Some("55006"), Code::SlotHeld),
        (None, None, Code::Source),
    ] {
        let mut view = idle();
        failed(&mut view, part, sqlstate);
        for phase in [Phase::BackingOff, Phase::Starting] {
            view.status.phase = phase;
            assert_eq!(code(&view), (expected, false), "{phase}");
        }
        // Reopened: a server that speaks is well, a sink that has failed with a batch only when it has taken one.
        view.status.phase = Phase::Running;
        let of_source = matches!(expected, Code::Source | Code::SlotHeld);
        view.status.batch_failed = !of_source;
        assert_eq!(code(&view).1, of_source, "{expected:?}");
        // One that only could not be opened has nothing more to show while the run is idle.
        view.status.batch_failed = false;
        assert_eq!(code(&view).1, expected != Code::Converter, "{expected:?}");
        view.status.batch_failed = !of_source;
        view.source.state_for = SHORT;
        assert_eq!(code(&view), (expected, false), "nothing read yet");
        view.status.batch_failed = false;
        view.status.attempts = 0;
        assert!(code(&view).1);
    }
}

#[tokio::test]
async fn what_has_not_begun_or_has_ended_is_not_ready() {
    let mut view = idle();
    view.source.state = StreamState::Starting;
    assert_eq!(code(&view), (Code::Starting, false));
    view.source.state = StreamState::Closed;
    assert_eq!(code(&view), (Code::Source, false));
    view.source.sessions = 0;
    assert_eq!(code(&view), (Code::Starting, false));
    for (phase, expected) in [
        (Phase::Starting, Code::Starting),
        (Phase::Paused, Code::Paused),
        (Phase::Draining, Code::Draining),
        (Phase::Stopped, Code::Stopped),
        (Phase::Aborted, Code::Aborted),
        (Phase::Failed, Code::Failed),
    ] {
        view.status.phase = phase;
        assert_eq!(code(&view), (expected, false));
    }
}
