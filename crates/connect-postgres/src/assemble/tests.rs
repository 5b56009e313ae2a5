use super::*;
use crate::relation::ReplicaIdentity;

fn relation() -> Arc<Relation> {
    Arc::new(Relation {
        oid: 1,
        schema: "public".into(),
        table: "t".into(),
        identity: ReplicaIdentity::Default,
        columns: Vec::new(),
        key: Vec::new(),
        topic: Arc::from("p.public.t"),
        version: 1,
    })
}

fn at(position: Position) -> Assembler {
    let source = SourceInfo { topic_prefix: "p".into(), database: "d".into() };
    Assembler::new(Arc::new(source), position)
}

fn begin(commit_lsn: u64) -> Begin {
    Begin { final_lsn: commit_lsn, commit_time_us: 0, xid: 7 }
}

fn commit(commit_lsn: u64) -> Commit {
    Commit { commit_lsn, end_lsn: commit_lsn + 0x30, commit_time_us: 0 }
}

/// An insert at `lsn`; the tuple is empty.
fn insert(assembler: &mut Assembler, lsn: u64) {
    let payload = Bytes::from_static(&[0, 0]);
    let new = crabka_pgoutput::Tuple::from_bytes(&payload);
    assembler.row(&relation(), Operation::Insert, Lsn::new(lsn), &payload, None, Some(new)).unwrap();
}

fn transaction(assembler: &mut Assembler, commit_lsn: u64, changes: u64) {
    assembler.begin(&begin(commit_lsn)).unwrap();
    for n in 0..changes {
        insert(assembler, commit_lsn - 8 - n);
    }
    assembler.commit(&commit(commit_lsn)).unwrap();
}

/// Ordinal, resume LSN, open transaction.
type Taken = (u64, u64, Option<(u64, u64)>);

/// What has left.
fn taken(assembler: &mut Assembler) -> Vec<Taken> {
    let open = |p: Position| p.open.map(|open| (open.commit_lsn.as_u64(), open.delivered));
    let items = assembler.take_batch().items;
    items.into_iter().map(|i| (i.event.ordinal, i.position.resume_lsn.as_u64(), open(i.position))).collect()
}

#[test]
fn the_last_change_of_a_transaction_carries_the_position_behind_it() {
    let mut assembler = at(Position::at(Lsn::new(0x10)));
    transaction(&mut assembler, 0x100, 3);
    transaction(&mut assembler, 0x200, 1);
    assert_eq!(
        taken(&mut assembler),
        [(0, 0x10, Some((0x100, 1))), (1, 0x10, Some((0x100, 2))), (2, 0x130, None), (0, 0x230, None),]
    );
    assert_eq!(assembler.emitted().last_commit_end_lsn, Some(Lsn::new(0x230)));
}

#[test]
fn changes_leave_while_their_transaction_is_read() {
    let mut assembler = at(Position::at(Lsn::new(0x10)));
    assembler.begin(&begin(0x100)).unwrap();
    insert(&mut assembler, 0x20);
    assert!(assembler.batch().items.is_empty());
    insert(&mut assembler, 0x20);
    assert_eq!(taken(&mut assembler), [(0, 0x10, Some((0x100, 1)))]);
}

#[test]
fn del_08_a_restart_inside_a_transaction_skips_exactly_what_was_delivered() {
    for delivered in 0..4 {
        let open = Some(OpenTransaction { commit_lsn: Lsn::new(0x100), delivered });
        let mut assembler = at(Position { open, ..Position::at(Lsn::new(0x10)) });
        transaction(&mut assembler, 0x100, 4);
        transaction(&mut assembler, 0x200, 2);
        let ordinals: Vec<u64> = taken(&mut assembler).into_iter().map(|(ordinal, ..)| ordinal).collect();
        let expected: Vec<u64> = (delivered..4).chain(0..2).collect();
        assert_eq!(ordinals, expected, "delivered {delivered}");
    }
}

#[test]
fn what_is_captured_today_does_not_shift_what_is_skipped() {
    // Delivered up to the fourth change; the first three were captured then and are not any more.
    let open = Some(OpenTransaction { commit_lsn: Lsn::new(0x100), delivered: 4 });
    let mut assembler = at(Position { open, ..Position::at(Lsn::new(0x10)) });
    assembler.begin(&begin(0x100)).unwrap();
    for _ in 0..3 {
        assembler.uncaptured(Lsn::new(0x20)).unwrap();
    }
    for _ in 3..6 {
        insert(&mut assembler, 0x20);
    }
    assembler.commit(&commit(0x100)).unwrap();
    let ordinals: Vec<u64> = taken(&mut assembler).into_iter().map(|(ordinal, ..)| ordinal).collect();
    assert_eq!(ordinals, [4, 5]);
}

#[test]
fn a_transaction_that_comes_again_with_fewer_changes_than_were_delivered_is_refused() {
    let open = Some(OpenTransaction { commit_lsn: Lsn::new(0x100), delivered: 4 });
    let mut assembler = at(Position { open, ..Position::at(Lsn::new(0x10)) });
    assembler.begin(&begin(0x100)).unwrap();
    insert(&mut assembler, 0x20);
    let error = assembler.commit(&commit(0x100)).unwrap_err();
    assert!(matches!(error, ConnectError::Offset(_)), "{error}");
}

#[test]
fn del_04_a_transaction_with_lower_row_lsns_that_commits_later_is_not_skipped() {
    let mut assembler = at(Position::at(Lsn::new(0x230)));
    assembler.begin(&begin(0x300)).unwrap();
    insert(&mut assembler, 0x20);
    assembler.commit(&commit(0x300)).unwrap();
    assert_eq!(taken(&mut assembler), [(0, 0x330, None)]);
}

#[test]
fn an_empty_transaction_moves_the_position_without_a_record() {
    let mut assembler = at(Position::at(Lsn::new(0x10)));
    assert!(!assembler.has_idle_progress());
    transaction(&mut assembler, 0x100, 0);
    assert!(assembler.batch().items.is_empty());
    assert!(assembler.has_idle_progress());
    assembler.heartbeat();
    assert_eq!(taken(&mut assembler), [(0, 0x130, None)]);
    assert!(!assembler.has_idle_progress());
}

#[test]
fn a_keepalive_is_a_position_only_between_transactions() {
    let mut assembler = at(Position::at(Lsn::new(0x10)));
    assembler.begin(&begin(0x100)).unwrap();
    assembler.keepalive(Lsn::new(0x90));
    assert!(!assembler.has_idle_progress());
    assembler.commit(&commit(0x100)).unwrap();
    assembler.keepalive(Lsn::new(0x500));
    assert!(assembler.has_idle_progress());
    // An older keepalive never moves it back.
    assembler.keepalive(Lsn::new(0x40));
    assembler.heartbeat();
    assert_eq!(taken(&mut assembler), [(0, 0x500, None)]);
}

#[test]
fn a_keepalive_before_the_partly_delivered_transaction_comes_again_is_no_position() {
    let open = Some(OpenTransaction { commit_lsn: Lsn::new(0x100), delivered: 1 });
    let mut assembler = at(Position { open, ..Position::at(Lsn::new(0x10)) });
    assembler.keepalive(Lsn::new(0x80));
    assert!(!assembler.has_idle_progress());
}

#[test]
fn del_11_a_message_outside_transactions_is_a_resume_point() {
    let mut assembler = at(Position::at(Lsn::new(0x10)));
    let payload = Bytes::from_static(b"x");
    let wire = WireMessage { xid: None, transactional: false, lsn: 0x88, prefix: "hb", content: &payload };
    assembler.message(&wire, &payload).unwrap();
    assert_eq!(taken(&mut assembler), [(0, 0x88, None)]);
}

#[test]
fn a_stream_that_breaks_its_order_is_refused() {
    let refused = |result: Result<(), ConnectError>| assert!(matches!(result, Err(ConnectError::Bug(_))));
    let mut assembler = at(Position::default());
    refused(assembler.commit(&commit(0x100)));
    let payload = Bytes::from_static(&[0, 0]);
    refused(assembler.truncate(&relation(), Lsn::new(1), false, false));
    assembler.begin(&begin(0x100)).unwrap();
    refused(assembler.begin(&begin(0x200)));
    refused(assembler.commit(&commit(0x200)));
    let wire = WireMessage { xid: None, transactional: false, lsn: 1, prefix: "", content: &payload };
    assembler.begin(&begin(0x300)).unwrap();
    refused(assembler.message(&wire, &payload));
}
