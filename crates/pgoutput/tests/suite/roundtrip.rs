//! Any message encodes to bytes that decode to it, and any bytes do not break the decoder.

use crabka_pgoutput::{
    AbortPoint, Begin, BeginPrepare, Cell, Column, ColumnsBuf, Commit, CommitPrepared, Decoder, Delete,
    Insert, LogicalMessage, Message, OldTuple, OldTupleKind, Origin, Prepare, Relation, RelationOidsBuf,
    ReplicaIdentity, RollbackPrepared, StreamAbort, StreamCommit, StreamStart, StreamStop, Truncate,
    TupleBuf, Type, Update, fuzz,
};
use proptest::collection::vec;
use proptest::prelude::*;

const TAGS: &[u8; 19] = b"BCORYIUDTMSEcAbPKrp";

#[derive(Debug, Clone)]
enum OwnedCell {
    Null,
    Unchanged,
    Text(Vec<u8>),
    Binary(Vec<u8>),
}

impl OwnedCell {
    fn as_cell(&self) -> Cell<'_> {
        match self {
            Self::Null => Cell::Null,
            Self::Unchanged => Cell::Unchanged,
            Self::Text(value) => Cell::Text(value),
            Self::Binary(value) => Cell::Binary(value),
        }
    }
}

/// Values for the fields of any message.
#[derive(Debug, Clone)]
struct Parts {
    tag: u8,
    in_stream: bool,
    streaming_parallel: bool,
    xids: [u32; 2],
    lsns: [u64; 2],
    times_us: [i64; 2],
    flags: [bool; 2],
    names: [String; 2],
    content: Vec<u8>,
    identity: ReplicaIdentity,
    columns: Vec<(bool, String, u32, i32)>,
    oids: Vec<u32>,
    new: Vec<OwnedCell>,
    old: Option<(OldTupleKind, Vec<OwnedCell>)>,
}

fn name() -> impl Strategy<Value = String> {
    "[^\\x00]{0,16}"
}

fn cells() -> impl Strategy<Value = Vec<OwnedCell>> {
    let value = || vec(any::<u8>(), 0..24);
    vec(
        prop_oneof![
            Just(OwnedCell::Null),
            Just(OwnedCell::Unchanged),
            value().prop_map(OwnedCell::Text),
            value().prop_map(OwnedCell::Binary),
        ],
        0..12,
    )
}

fn parts() -> impl Strategy<Value = Parts> {
    let identity = prop_oneof![
        Just(ReplicaIdentity::Default),
        Just(ReplicaIdentity::Nothing),
        Just(ReplicaIdentity::Full),
        Just(ReplicaIdentity::Index),
    ];
    let old_kind = prop_oneof![Just(OldTupleKind::Key), Just(OldTupleKind::Full)];
    let numbers = (any::<[u32; 2]>(), any::<[u64; 2]>(), any::<[i64; 2]>());
    let settings = (proptest::sample::select(&TAGS[..]), any::<bool>(), any::<bool>(), any::<[bool; 2]>());
    let lists = (
        vec(any::<u8>(), 0..40),
        vec((any::<bool>(), name(), any::<u32>(), any::<i32>()), 0..8),
        vec(any::<u32>(), 0..8),
    );
    let rows = (cells(), proptest::option::of((old_kind, cells())));
    (settings, numbers, [name(), name()], identity, lists, rows).prop_map(
        |(
            (tag, in_stream, streaming_parallel, flags),
            (xids, lsns, times_us),
            names,
            identity,
            (content, columns, oids),
            (new, old),
        )| Parts {
            tag,
            // A chunk begins outside of any, and ends inside one.
            in_stream: tag == b'E' || in_stream && tag != b'S',
            streaming_parallel,
            xids,
            lsns,
            times_us,
            flags,
            names,
            content,
            identity,
            columns,
            oids,
            new,
            old,
        },
    )
}

/// What the rows and lists of a message borrow from.
struct Buffers {
    new: TupleBuf,
    old: Option<(OldTupleKind, TupleBuf)>,
    columns: ColumnsBuf,
    oids: RelationOidsBuf,
}

impl Parts {
    fn buffers(&self) -> Buffers {
        let row = |cells: &[OwnedCell]| TupleBuf::new(cells.iter().map(OwnedCell::as_cell)).unwrap();
        let columns = self.columns.iter().map(|(key, name, type_oid, type_modifier)| Column {
            key: *key,
            name,
            type_oid: *type_oid,
            type_modifier: *type_modifier,
        });
        Buffers {
            new: row(&self.new),
            old: self.old.as_ref().map(|(kind, cells)| (*kind, row(cells))),
            columns: ColumnsBuf::new(columns).unwrap(),
            oids: RelationOidsBuf::new(self.oids.iter().copied()),
        }
    }

    fn message<'a>(&'a self, buffers: &'a Buffers) -> Message<'a> {
        let [xid, oid] = self.xids;
        let [lsn, end_lsn] = self.lsns;
        let [time_us, other_time_us] = self.times_us;
        let [name, namespace] = [self.names[0].as_str(), self.names[1].as_str()];
        match self.tag {
            b'B' => Message::Begin(Begin { final_lsn: lsn, commit_time_us: time_us, xid }),
            b'C' => Message::Commit(Commit { commit_lsn: lsn, end_lsn, commit_time_us: time_us }),
            b'O' => Message::Origin(Origin { lsn, name }),
            b'S' => Message::StreamStart(StreamStart { xid, first_segment: self.flags[0] }),
            b'E' => Message::StreamStop(StreamStop {}),
            b'c' => {
                let commit_time_us = time_us;
                Message::StreamCommit(StreamCommit { xid, commit_lsn: lsn, end_lsn, commit_time_us })
            }
            b'A' => {
                let abort = self.streaming_parallel.then_some(AbortPoint { lsn, time_us });
                Message::StreamAbort(StreamAbort { xid, subxid: oid, abort })
            }
            b'b' => Message::BeginPrepare(BeginPrepare {
                prepare_lsn: lsn,
                end_lsn,
                prepare_time_us: time_us,
                xid,
                gid: name,
            }),
            b'P' | b'p' => {
                let prepare = Prepare { prepare_lsn: lsn, end_lsn, prepare_time_us: time_us, xid, gid: name };
                if self.tag == b'P' { Message::Prepare(prepare) } else { Message::StreamPrepare(prepare) }
            }
            b'K' => {
                let commit_time_us = time_us;
                Message::CommitPrepared(CommitPrepared {
                    commit_lsn: lsn,
                    end_lsn,
                    commit_time_us,
                    xid,
                    gid: name,
                })
            }
            b'r' => Message::RollbackPrepared(RollbackPrepared {
                prepare_end_lsn: lsn,
                rollback_end_lsn: end_lsn,
                prepare_time_us: time_us,
                rollback_time_us: other_time_us,
                xid,
                gid: name,
            }),
            _ => self.change(buffers, self.in_stream.then_some(xid), oid, lsn, name, namespace),
        }
    }

    /// The messages that carry an xid inside a chunk.
    fn change<'a>(
        &'a self,
        buffers: &'a Buffers,
        xid: Option<u32>,
        oid: u32,
        lsn: u64,
        name: &'a str,
        namespace: &'a str,
    ) -> Message<'a> {
        let relation = oid;
        let new = buffers.new.as_tuple();
        let old = buffers.old.as_ref().map(|(kind, row)| OldTuple { kind: *kind, tuple: row.as_tuple() });
        match self.tag {
            b'R' => {
                let (identity, columns) = (self.identity, buffers.columns.as_columns());
                Message::Relation(Relation { xid, oid, namespace, name, identity, columns })
            }
            b'Y' => Message::Type(Type { xid, oid, namespace, name }),
            b'I' => Message::Insert(Insert { xid, relation, new }),
            b'U' => Message::Update(Update { xid, relation, old, new }),
            b'D' => {
                let old = old.unwrap_or(OldTuple { kind: OldTupleKind::Full, tuple: new });
                Message::Delete(Delete { xid, relation, old })
            }
            b'T' => {
                let [cascade, restart_identity] = self.flags;
                let relations = buffers.oids.as_oids();
                Message::Truncate(Truncate { xid, cascade, restart_identity, relations })
            }
            b'M' => {
                let (transactional, content) = (self.flags[0], self.content.as_slice());
                Message::LogicalMessage(LogicalMessage { xid, transactional, lsn, prefix: name, content })
            }
            tag => panic!("no message has the tag {tag}"),
        }
    }

    fn decoder(&self) -> Decoder {
        let mut decoder = Decoder::new().streaming_parallel(self.streaming_parallel);
        if self.in_stream {
            decoder.decode(b"S\0\0\0\x01\x01").unwrap();
        }
        decoder
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn messages_survive_bytes(parts in parts()) {
        let buffers = parts.buffers();
        let message = parts.message(&buffers);
        prop_assert_eq!(message.tag(), parts.tag);
        let mut payload = Vec::new();
        message.encode(&mut payload).unwrap();
        let mut decoder = parts.decoder();
        let decoded = decoder.decode(&payload).unwrap();
        prop_assert_eq!(decoded, message);

        // The views give what went into the buffers, not only the same bytes.
        match decoded {
            Message::Insert(insert) => {
                let cells: Vec<_> = parts.new.iter().map(OwnedCell::as_cell).collect();
                prop_assert_eq!(insert.new.cells().collect::<Vec<_>>(), cells);
            }
            Message::Relation(relation) => {
                let columns: Vec<_> = relation
                    .columns
                    .iter()
                    .map(|c| (c.key, c.name.to_owned(), c.type_oid, c.type_modifier))
                    .collect();
                prop_assert_eq!(columns, parts.columns);
            }
            Message::Truncate(truncate) => {
                prop_assert_eq!(truncate.relations.iter().collect::<Vec<_>>(), parts.oids);
            }
            _ => {}
        }
    }

    #[test]
    fn a_message_with_a_byte_changed_is_never_itself(
        parts in parts(),
        at in any::<proptest::sample::Index>(),
        mask in 1_u8..,
    ) {
        let buffers = parts.buffers();
        let message = parts.message(&buffers);
        let mut payload = Vec::new();
        message.encode(&mut payload).unwrap();
        let at = at.index(payload.len());
        payload[at] ^= mask;
        if let Ok(decoded) = parts.decoder().decode(&payload) {
            prop_assert_ne!(decoded, message);
        }
    }

    #[test]
    fn any_bytes_do_not_break_the_decoder(input in vec(any::<u8>(), 0..300)) {
        fuzz::one_message(&input);
        fuzz::session(&input);
    }

    #[test]
    fn any_bytes_behind_a_known_tag_do_not_break_the_decoder(
        settings in 0_u8..4,
        tag in proptest::sample::select(&TAGS[..]),
        // Small numbers and the kinds of cells lead further into a message than any byte would.
        body in vec(prop_oneof![0_u8..4, proptest::sample::select(&b"NKOtbnudfi"[..]), any::<u8>()], 0..80),
    ) {
        fuzz::one_message(&[&[settings, tag], body.as_slice()].concat());
    }
}
