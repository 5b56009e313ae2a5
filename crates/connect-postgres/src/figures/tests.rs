use super::*;
use crate::position::OpenTransaction;

fn at(lsn: u64) -> Position {
    Position::at(Lsn::new(lsn))
}

fn inside(lsn: u64, delivered: u64) -> Position {
    Position { open: Some(OpenTransaction { commit_lsn: Lsn::new(lsn + 50), delivered }), ..at(lsn) }
}

#[test]
fn the_oldest_unacknowledged_change_is_known_inside_a_transaction() {
    let figures = SourceFigures::default();
    let oldest = || figures.snapshot().oldest_unacknowledged_us;
    assert_eq!(oldest(), None);
    figures.queued(10, at(100), Some(1));
    figures.queued(10, inside(100, 5), Some(2));
    figures.queued(10, inside(100, 9), Some(2));
    figures.queued(10, at(160), Some(2));
    figures.queued(10, at(170), None);
    assert_eq!((oldest(), figures.snapshot().queue_bytes), (Some(1), 50));
    figures.acknowledged(at(100));
    assert_eq!(oldest(), Some(2));
    figures.acknowledged(inside(100, 5));
    assert_eq!(oldest(), Some(2));
    // The session begins again behind what is acknowledged: the rest comes again.
    figures.session_begins(inside(100, 5), Lsn::new(100), 1 << 20);
    assert_eq!((oldest(), figures.snapshot().queue_bytes), (None, 0));
    figures.queued(10, at(160), Some(3));
    figures.acknowledged(at(160));
    assert_eq!(oldest(), None);
}

#[test]
fn many_small_batches_are_kept_in_bounded_memory_and_the_oldest_stays_exact() {
    let figures = SourceFigures::default();
    for lsn in 1..=10_000 {
        figures.queued(1, at(lsn), Some(i64::try_from(lsn).unwrap()));
    }
    figures.acknowledged(at(3));
    assert_eq!(figures.snapshot().oldest_unacknowledged_us, Some(4));
    figures.acknowledged(at(9_999));
    assert!(figures.snapshot().oldest_unacknowledged_us.is_some());
    figures.acknowledged(at(10_000));
    assert_eq!(figures.snapshot().oldest_unacknowledged_us, None);
}

#[tokio::test(start_paused = true)]
async fn keepalives_without_progress_are_read_but_do_not_move() {
    let figures = SourceFigures::default();
    assert_eq!(figures.snapshot().last_read, None);
    figures.session_begins(at(100), Lsn::new(100), 1 << 20);
    let second = Duration::from_secs(1);
    tokio::time::advance(second).await;
    // The session also looks when an acknowledge or a heartbeat is due.
    figures.read(&mut Tally::default(), Lsn::new(100), None, Instant::now());
    assert_eq!(figures.snapshot().last_read, Some(second));
    figures.read(&mut Tally { heard: true, ..Tally::default() }, Lsn::new(100), None, Instant::now());
    let snapshot = figures.snapshot();
    assert_eq!((snapshot.last_read, snapshot.last_moved), (Some(Duration::ZERO), Some(second)));
    tokio::time::advance(second).await;
    figures.read(&mut Tally::default(), Lsn::new(101), None, Instant::now());
    assert_eq!(figures.snapshot().last_moved, Some(Duration::ZERO));
    tokio::time::advance(second).await;
    let reading = Reading { xid: 7, changes: 3, bytes: 30, commit_time_us: 5 };
    figures.read(
        &mut Tally { pgoutput_bytes: 30, ..Tally::default() },
        Lsn::new(101),
        Some(reading),
        Instant::now(),
    );
    tokio::time::advance(second).await;
    let snapshot = figures.snapshot();
    assert_eq!(snapshot.last_moved, Some(second));
    let transaction = snapshot.transaction.unwrap();
    assert_eq!((transaction.xid, transaction.changes, transaction.since), (7, 3, second));
    figures.session_ends(StreamState::Closed);
    let snapshot = figures.snapshot();
    assert_eq!((snapshot.transaction, snapshot.state), (None, StreamState::Closed));
}
