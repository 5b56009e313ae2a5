//! Recordings with something broken: an error that says where, or another message; never a panic, and never the
//! message that was sent.

use std::collections::{HashMap, HashSet};

use crabka_pgoutput::{
    Begin, Cell, ColumnsBuf, DecodeError, Decoder, Insert, Message, Relation, RelationOidsBuf,
    ReplicaIdentity, StreamAbort, Truncate, Tuple, TupleBuf,
};

use crate::capture::{self, Recording};

/// Calls `check` with the messages of all recordings and the decoder as it was before each.
///
/// The bulk and stream recordings repeat one shape of insert thousands of times: of those, a few. Trying every byte
/// of a message is quadratic in its length: of those over 1 kB, one of each kind per scenario and variant.
fn each_message(mut check: impl FnMut(&Recording, &Decoder, &[u8], &Message<'_>)) -> usize {
    let mut seen = 0;
    let mut long = HashSet::new();
    for recording in capture::index() {
        let keep_one_in = match recording.scenario.as_str() {
            scenario if scenario.starts_with("bulk_") => 1000,
            scenario if scenario.starts_with("stream_") => 100,
            _ => 1,
        };
        let cap = recording.read();
        let mut decoder = recording.decoder();
        let mut inserts = 0;
        for payload in capture::payloads(&cap) {
            let before = decoder.clone();
            let message = decoder.decode(payload).unwrap();
            if let Message::Insert(_) = message {
                inserts += 1;
                if inserts % keep_one_in != 0 {
                    continue;
                }
            }
            if payload.len() > 1000 && !long.insert((without_major(&recording), message.tag())) {
                continue;
            }
            check(&recording, &before, payload, &message);
            seen += 1;
        }
    }
    seen
}

/// The same for all recordings of one scenario and variant.
fn without_major(recording: &Recording) -> String {
    recording.base.replace(|c: char| c.is_ascii_digit(), "")
}

fn says_where(error: &DecodeError, payload: &[u8], context: &str) {
    assert!(!error.message.is_empty() && !error.field.is_empty(), "{context}: {error}");
    assert!(error.offset <= payload.len(), "{context}: {error}");
}

#[test]
fn cut_at_every_byte_is_an_error() {
    let seen = each_message(|recording, before, payload, message| {
        let mut decoder = before.clone();
        for end in 0..payload.len() {
            let error = decoder.decode(&payload[..end]).expect_err(&recording.base);
            says_where(&error, &payload[..end], &recording.base);
            if end > 0 {
                assert_eq!(error.message, message.name(), "{} cut at {end}", recording.base);
            }
            assert_eq!(decoder.in_stream(), before.in_stream(), "an error leaves the state alone");
        }
    });
    assert!(seen > 12_000, "only {seen} messages");
}

#[test]
fn followed_by_another_byte_is_an_error() {
    each_message(|recording, before, payload, message| {
        let longer = [payload, &[0]].concat();
        let mut decoder = before.clone();
        let error = decoder.decode(&longer).expect_err(&recording.base);
        assert_eq!(decoder.in_stream(), before.in_stream(), "an error leaves the state alone");
        assert_eq!((error.message, error.field), (message.name(), "end"), "{}", recording.base);
        assert_eq!(error.offset, payload.len(), "{}", recording.base);
    });
}

/// Where a length or count stands in a payload, and how many bytes it takes.
struct CountField {
    offset: usize,
    width: usize,
}

fn offset_of(payload: &[u8], part: *const u8) -> usize {
    part.addr() - payload.as_ptr().addr()
}

fn count_fields(payload: &[u8], message: &Message<'_>) -> Vec<CountField> {
    let mut fields = Vec::new();
    let mut row = |tuple: Tuple<'_>| {
        let mut offset = offset_of(payload, tuple.as_bytes().as_ptr());
        fields.push(CountField { offset, width: 2 });
        offset += 2;
        for cell in tuple.cells() {
            offset += match cell {
                Cell::Null | Cell::Unchanged => 1,
                Cell::Text(value) | Cell::Binary(value) => {
                    fields.push(CountField { offset: offset + 1, width: 4 });
                    5 + value.len()
                }
            };
        }
    };
    match message {
        Message::Insert(m) => row(m.new),
        Message::Delete(m) => row(m.old.tuple),
        Message::Update(m) => {
            if let Some(old) = m.old {
                row(old.tuple);
            }
            row(m.new);
        }
        Message::Relation(m) => {
            // Behind the name's zero byte and the replica identity.
            let offset = offset_of(payload, m.name.as_ptr()) + m.name.len() + 2;
            fields.push(CountField { offset, width: 2 });
        }
        Message::Truncate(m) => {
            fields.push(CountField { offset: if m.xid.is_some() { 5 } else { 1 }, width: 4 });
        }
        Message::LogicalMessage(m) => {
            fields.push(CountField { offset: offset_of(payload, m.content.as_ptr()) - 4, width: 4 });
        }
        _ => {}
    }
    fields
}

#[test]
fn every_length_and_count_matters() {
    let (mut altered_fields, mut other_message) = (0, 0);
    // xorshift: the same values in every run.
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    each_message(|recording, before, payload, message| {
        for CountField { offset, width } in count_fields(payload, message) {
            let field = offset..offset + width;
            let was = payload[field.clone()].iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
            let max = (1 << (8 * width)) - 1;
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let values = [0, 1, was.wrapping_sub(1) & max, (was + 1) & max, max, max >> 1, random & max];
            for value in values.into_iter().filter(|&value| value != was) {
                let mut damaged = payload.to_vec();
                damaged[field.clone()].copy_from_slice(&value.to_be_bytes()[8 - width..]);
                match before.clone().decode(&damaged) {
                    Ok(decoded) => {
                        assert!(decoded != *message, "{} byte {offset} := {value}", recording.base);
                        other_message += 1;
                    }
                    Err(error) => says_where(&error, &damaged, &recording.base),
                }
                altered_fields += 1;
            }
        }
    });
    assert!(altered_fields > 80_000, "only {altered_fields}");
    // A wrong length can by chance lead to a well-formed row, but hardly ever.
    assert!(other_message * 1000 < altered_fields, "{other_message} of {altered_fields} still decoded");
}

#[test]
fn no_byte_is_without_meaning() {
    let mut tried = HashMap::<String, String>::new();
    each_message(|recording, before, payload, message| {
        // One recording of each scenario and variant; the majors differ in nothing that matters here.
        if *tried.entry(without_major(recording)).or_insert_with(|| recording.base.clone()) != recording.base
        {
            return;
        }
        let mut damaged = payload.to_vec();
        for offset in 0..payload.len() {
            for mask in [0x01, 0x20, 0x80, 0xff] {
                damaged[offset] ^= mask;
                match before.clone().decode(&damaged) {
                    Ok(decoded) => assert!(decoded != *message, "{} byte {offset} ^ {mask}", recording.base),
                    Err(error) => says_where(&error, &damaged, &recording.base),
                }
                damaged[offset] ^= mask;
            }
        }
    });
    assert!(tried.len() > 46, "only {} recordings", tried.len());
}

/// A lost Stream Start or Stream Stop does not go unnoticed.
#[test]
fn a_message_of_a_chunk_is_not_the_same_outside_and_the_other_way_round() {
    let mut tried = 0;
    each_message(|recording, before, payload, message| {
        // Relations, types and logical messages begin with numbers and texts, which fit nearly anything: they can
        // only come out different. In a change the byte in front of the tuple tells.
        let is_change = match message {
            Message::Insert(_) | Message::Update(_) | Message::Delete(_) | Message::Truncate(_) => true,
            Message::Relation(_) | Message::Type(_) | Message::LogicalMessage(_) => false,
            _ => return,
        };
        let mut other = recording.decoder();
        if !before.in_stream() {
            other.decode(b"S\0\0\0\x01\x01").unwrap();
        }
        tried += 1;
        match other.decode(payload) {
            Ok(decoded) => {
                assert!(!is_change, "{}: {message:?} was taken for {decoded:?}", recording.base);
                assert!(decoded != *message, "{}: {message:?}", recording.base);
            }
            Err(error) => says_where(&error, payload, &recording.base),
        }
    });
    assert!(tried > 5_000, "only {tried}");
}

#[test]
fn stream_abort_is_as_long_as_the_settings_say() {
    let mut tried = 0;
    each_message(|recording, _, payload, message| {
        if let Message::StreamAbort(StreamAbort { abort, .. }) = message {
            assert_eq!(abort.is_some(), recording.streaming_parallel);
            let error = Decoder::new().streaming_parallel(abort.is_none()).decode(payload).unwrap_err();
            assert_eq!(error.message, "Stream Abort", "{}", recording.base);
            assert_eq!(error.offset, 9, "{}", recording.base);
            tried += 1;
        }
    });
    assert_eq!(tried, 20);
}

#[test]
fn a_stream_abort_without_streaming_is_reported_and_changes_nothing() {
    let mut decoder = Decoder::new();
    let abort = decoder.decode(b"A\0\0\0\x07\0\0\0\x09").unwrap();
    assert_eq!(abort, Message::StreamAbort(StreamAbort { xid: 7, subxid: 9, abort: None }));
    assert!(!decoder.in_stream());
    let begin = decoder.decode(b"B\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x03").unwrap();
    assert_eq!(begin, Message::Begin(Begin { final_lsn: 1, commit_time_us: 2, xid: 3 }));
}

#[test]
fn chunks_do_not_nest() {
    let mut decoder = Decoder::new();
    assert_eq!(decoder.decode(b"E").unwrap_err().reason, "no chunk is open");
    decoder.decode(b"S\0\0\0\x01\x01").unwrap();
    assert_eq!(decoder.decode(b"S\0\0\0\x02\x01").unwrap_err().reason, "a chunk is open already");
    assert!(decoder.in_stream());
    decoder.decode(b"E").unwrap();
    assert!(!decoder.in_stream());
}

#[test]
fn unknown_tags_kinds_and_flags_are_named() {
    let error_of = |payload: &[u8]| {
        let error = Decoder::new().decode(payload).unwrap_err();
        (error.message, error.field, error.offset, error.found)
    };
    let commit = b"C\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03";
    assert_eq!(error_of(b""), ("message", "tag", 0, None));
    assert_eq!(error_of(b"Z123"), ("message", "tag", 0, Some(b'Z')));
    assert_eq!(error_of(commit), ("Commit", "flags", 1, Some(1)));
    assert_eq!(error_of(b"I\0\0\0\x01O\0\0"), ("Insert", "new tuple kind", 5, Some(b'O')));
    assert_eq!(error_of(b"U\0\0\0\x01X\0\0"), ("Update", "tuple kind", 5, Some(b'X')));
    assert_eq!(error_of(b"D\0\0\0\x01N\0\0"), ("Delete", "old tuple kind", 5, Some(b'N')));
    assert_eq!(error_of(b"U\0\0\0\x01K\0\0K\0\0"), ("Update", "new tuple kind", 8, Some(b'K')));
    assert_eq!(error_of(b"I\0\0\0\x01N\0\x01x"), ("Insert", "new tuple cell kind", 8, Some(b'x')));
    assert_eq!(error_of(b"T\0\0\0\0\x04"), ("Truncate", "flags", 5, Some(4)));
    assert_eq!(error_of(b"R\0\0\0\x01\0t\0x\0\0"), ("Relation", "replica identity", 8, Some(b'x')));
    assert_eq!(error_of(b"R\0\0\0\x01\0t\0d\0\x01\x02"), ("Relation", "column flags", 11, Some(2)));
    assert_eq!(error_of(b"S\0\0\0\x01\x02"), ("Stream Start", "first segment", 5, Some(2)));
    assert_eq!(error_of(b"Y\0\0\0\x01\xff\0t\0"), ("Type", "namespace", 5, None));
}

/// Counts of billions in messages of a few bytes. An allocation or a loop sized by them would not end in our time.
/// (That there is no allocation at all is the compiler's to say: without `encode` the crate has no `alloc`.)
#[test]
fn huge_counts_cost_nothing() {
    let huge: [&[u8]; 7] = [
        b"T\xff\xff\xff\xff\0",
        b"T\x40\0\0\x01\0\0\0\0\x01",
        b"I\0\0\0\x01N\xff\xff",
        b"I\0\0\0\x01N\0\x01t\xff\xff\xff\xff",
        b"R\0\0\0\x01\0t\0d\xff\xff",
        b"M\0\0\0\0\0\0\0\0\x01p\0\xff\xff\xff\xff",
        b"U\0\0\0\x01O\xff\xffn",
    ];
    for payload in huge {
        for _ in 0..10_000 {
            let error = Decoder::new().decode(payload).unwrap_err();
            assert!(error.offset <= payload.len(), "{error}");
        }
    }
}

/// The widest messages that the counts allow are still messages.
#[test]
fn the_largest_counts_decode() {
    let mut out = Vec::new();
    let row = TupleBuf::new(std::iter::repeat_n(Cell::Text(b"x"), 65_535)).unwrap();
    let insert = Message::Insert(Insert { xid: None, relation: 1, new: row.as_tuple() });
    let columns = (0..65_535).map(|_| crabka_pgoutput::Column {
        key: false,
        name: "c",
        type_oid: 25,
        type_modifier: -1,
    });
    let columns = ColumnsBuf::new(columns).unwrap();
    let relation = Message::Relation(Relation {
        xid: None,
        oid: 1,
        namespace: "",
        name: "t",
        identity: ReplicaIdentity::Nothing,
        columns: columns.as_columns(),
    });
    let oids = RelationOidsBuf::new(0..100_000);
    let truncate = Message::Truncate(Truncate {
        xid: None,
        cascade: true,
        restart_identity: false,
        relations: oids.as_oids(),
    });
    for message in [insert, relation, truncate] {
        out.clear();
        message.encode(&mut out).unwrap();
        assert!(Decoder::new().decode(&out).unwrap() == message, "{}", message.name());
    }
}
