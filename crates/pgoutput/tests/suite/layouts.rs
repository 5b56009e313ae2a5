//! Every layout written out by hand, field by field, with a different value in each: what the recordings' text form
//! leaves out (times), and what was not recorded (Stream Prepare, a Message outside a chunk).
//!
//! <https://www.postgresql.org/docs/17/protocol-logicalrep-message-formats.html>

use crabka_pgoutput::{
    AbortPoint, Begin, BeginPrepare, Commit, CommitPrepared, Decoder, Insert, LogicalMessage, Message,
    Origin, Prepare, ReplicaIdentity, RollbackPrepared, StreamAbort, StreamCommit, StreamStart, StreamStop,
    Truncate, Tuple, Type,
};

const LSN: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 0x0a];
const END_LSN: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 0x0b];
const TIME: &[u8] = &[0, 0, 0, 2, 0, 0, 0, 0x0c];
const LATER_TIME: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf3];
const XID: &[u8] = &[0, 0, 0x30, 0x39];
const OID: &[u8] = &[0, 0, 0x40, 0x01];

const LSN_VALUE: u64 = 0x1_0000_000a;
const END_LSN_VALUE: u64 = 0x1_0000_000b;
const TIME_VALUE: i64 = 0x2_0000_000c;
const LATER_TIME_VALUE: i64 = -13;
const XID_VALUE: u32 = 12_345;
const OID_VALUE: u32 = 16_385;

#[track_caller]
fn check(mut decoder: Decoder, fields: &[&[u8]], expected: Message<'_>) {
    let payload = fields.concat();
    assert_eq!(decoder.decode(&payload).unwrap(), expected);
    let mut encoded = Vec::new();
    expected.encode(&mut encoded).unwrap();
    assert_eq!(encoded, payload);
}

fn in_chunk() -> Decoder {
    let mut decoder = Decoder::new();
    decoder.decode(&[b"S", XID, &[0]].concat()).unwrap();
    decoder
}

#[test]
fn begin_and_commit() {
    let begin = Begin { final_lsn: LSN_VALUE, commit_time_us: TIME_VALUE, xid: XID_VALUE };
    check(Decoder::new(), &[b"B", LSN, TIME, XID], Message::Begin(begin));
    let commit = Commit { commit_lsn: LSN_VALUE, end_lsn: END_LSN_VALUE, commit_time_us: LATER_TIME_VALUE };
    check(Decoder::new(), &[b"C", &[0], LSN, END_LSN, LATER_TIME], Message::Commit(commit));
    check(Decoder::new(), &[b"O", LSN, b"node\0"], Message::Origin(Origin { lsn: LSN_VALUE, name: "node" }));
}

/// Origin is the one message of a chunk that has no xid in front.
#[test]
fn origin_in_a_chunk() {
    check(in_chunk(), &[b"O", &[0; 8], b"node\0"], Message::Origin(Origin { lsn: 0, name: "node" }));
}

#[test]
fn types() {
    let built_in = Type { xid: None, oid: OID_VALUE, namespace: "", name: "int4" };
    check(Decoder::new(), &[b"Y", OID, b"\0int4\0"], Message::Type(built_in));
    let own = Type { xid: Some(XID_VALUE), oid: OID_VALUE, namespace: "shop", name: "mood" };
    check(in_chunk(), &[b"Y", XID, OID, b"shop\0mood\0"], Message::Type(own));
}

#[test]
fn replica_identities() {
    for (byte, identity) in [
        (b'd', ReplicaIdentity::Default),
        (b'n', ReplicaIdentity::Nothing),
        (b'f', ReplicaIdentity::Full),
        (b'i', ReplicaIdentity::Index),
    ] {
        let payload = [b"R", OID, b"s\0t\0", &[byte], &[0, 0]].concat();
        let Message::Relation(relation) = Decoder::new().decode(&payload).unwrap() else {
            panic!("not a Relation")
        };
        assert_eq!((relation.oid, relation.identity), (OID_VALUE, identity));
        assert!(relation.columns.is_empty());
        assert_eq!(identity.as_byte(), byte);
    }
}

#[test]
fn an_insert_in_a_chunk() {
    let new = Tuple::from_bytes(&[0, 1, b'n']);
    let insert = Insert { xid: Some(XID_VALUE), relation: OID_VALUE, new };
    check(in_chunk(), &[b"I", XID, OID, b"N", &[0, 1], b"n"], Message::Insert(insert));
}

#[test]
fn truncates() {
    for (flags, cascade, restart_identity) in
        [(0, false, false), (1, true, false), (2, false, true), (3, true, true)]
    {
        let payload = [b"T", XID, &[0, 0, 0, 2], &[flags], OID, &[0, 0, 0, 7]].concat();
        let mut decoder = in_chunk();
        let Message::Truncate(truncate) = decoder.decode(&payload).unwrap() else { panic!("not a Truncate") };
        assert_eq!(truncate.relations.iter().collect::<Vec<_>>(), [OID_VALUE, 7]);
        let expected =
            Truncate { xid: Some(XID_VALUE), cascade, restart_identity, relations: truncate.relations };
        assert_eq!(truncate, expected);
    }
}

#[test]
fn logical_messages() {
    let mut message =
        LogicalMessage { xid: None, transactional: false, lsn: LSN_VALUE, prefix: "p", content: b"\0\xff" };
    let behind_flags: &[&[u8]] = &[LSN, b"p\0", &[0, 0, 0, 2], b"\0\xff"];
    check(Decoder::new(), &[b"M", &[0], &behind_flags.concat()], Message::LogicalMessage(message));
    message.xid = Some(XID_VALUE);
    message.transactional = true;
    check(in_chunk(), &[b"M", XID, &[1], &behind_flags.concat()], Message::LogicalMessage(message));
    assert!(!format!("{message:?}").contains("255"), "the content does not belong into logs");
}

#[test]
fn streamed_transactions() {
    let start = |first_segment| Message::StreamStart(StreamStart { xid: XID_VALUE, first_segment });
    check(Decoder::new(), &[b"S", XID, &[1]], start(true));
    check(Decoder::new(), &[b"S", XID, &[0]], start(false));
    check(in_chunk(), &[b"E"], Message::StreamStop(StreamStop {}));
    let commit = StreamCommit {
        xid: XID_VALUE,
        commit_lsn: LSN_VALUE,
        end_lsn: END_LSN_VALUE,
        commit_time_us: TIME_VALUE,
    };
    check(Decoder::new(), &[b"c", XID, &[0], LSN, END_LSN, TIME], Message::StreamCommit(commit));
    let mut abort = StreamAbort { xid: XID_VALUE, subxid: OID_VALUE, abort: None };
    check(Decoder::new(), &[b"A", XID, OID], Message::StreamAbort(abort));
    abort.abort = Some(AbortPoint { lsn: LSN_VALUE, time_us: TIME_VALUE });
    let parallel = Decoder::new().streaming_parallel(true);
    check(parallel, &[b"A", XID, OID, LSN, TIME], Message::StreamAbort(abort));
}

#[test]
fn two_phase_transactions() {
    let gid = "it's";
    let begin = BeginPrepare {
        prepare_lsn: LSN_VALUE,
        end_lsn: END_LSN_VALUE,
        prepare_time_us: TIME_VALUE,
        xid: XID_VALUE,
        gid,
    };
    check(Decoder::new(), &[b"b", LSN, END_LSN, TIME, XID, b"it's\0"], Message::BeginPrepare(begin));

    let prepare = Prepare {
        prepare_lsn: LSN_VALUE,
        end_lsn: END_LSN_VALUE,
        prepare_time_us: TIME_VALUE,
        xid: XID_VALUE,
        gid,
    };
    let behind_tag: &[&[u8]] = &[&[0], LSN, END_LSN, TIME, XID, b"it's\0"];
    check(Decoder::new(), &[b"P", &behind_tag.concat()], Message::Prepare(prepare));
    check(Decoder::new(), &[b"p", &behind_tag.concat()], Message::StreamPrepare(prepare));

    let commit = CommitPrepared {
        commit_lsn: LSN_VALUE,
        end_lsn: END_LSN_VALUE,
        commit_time_us: TIME_VALUE,
        xid: XID_VALUE,
        gid,
    };
    check(Decoder::new(), &[b"K", &behind_tag.concat()], Message::CommitPrepared(commit));

    let rollback = RollbackPrepared {
        prepare_end_lsn: LSN_VALUE,
        rollback_end_lsn: END_LSN_VALUE,
        prepare_time_us: TIME_VALUE,
        rollback_time_us: LATER_TIME_VALUE,
        xid: XID_VALUE,
        gid,
    };
    let fields: &[&[u8]] = &[b"r", &[0], LSN, END_LSN, TIME, LATER_TIME, XID, b"it's\0"];
    check(Decoder::new(), fields, Message::RollbackPrepared(rollback));
}
