//! What the fuzz targets and the replay of their corpus run. Feature `fuzz`; not part of the API.
//!
//! A body panics when a promise of the decoder is broken, and on nothing else.

use alloc::vec::Vec;

use crate::{Decoder, Message, Tuple};

/// One message in one state: the first byte says which (bit 0: `streaming 'parallel'`, bit 1: inside a chunk),
/// the rest is the payload.
pub fn one_message(input: &[u8]) {
    let Some((&settings, payload)) = input.split_first() else { return };
    let mut decoder = Decoder::new().streaming_parallel(settings & 1 != 0);
    if settings & 2 != 0 {
        let opened = decoder.decode(b"S\0\0\0\x01\x01");
        assert!(opened.is_ok() && decoder.in_stream(), "a Stream Start opens a chunk");
    }
    check(&mut decoder, payload);
    // Bytes that nobody checked are a row as well.
    let cells = Tuple::from_bytes(payload).cells().count();
    assert!(cells <= payload.len(), "every cell takes at least one byte");
}

/// The messages of a session: the first byte as in [`one_message`] (bit 0 only), then u16 lengths and payloads.
pub fn session(input: &[u8]) {
    let Some((&settings, mut rest)) = input.split_first() else { return };
    let mut decoder = Decoder::new().streaming_parallel(settings & 1 != 0);
    while let Some((length, tail)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(tail.len());
        let (payload, tail) = tail.split_at_checked(length).unwrap_or((tail, &[]));
        check(&mut decoder, payload);
        rest = tail;
    }
}

fn check(decoder: &mut Decoder, payload: &[u8]) {
    let in_stream = decoder.in_stream();
    match decoder.decode(payload) {
        Ok(message) => {
            let after = match message {
                Message::StreamStart(_) => true,
                Message::StreamStop(_) => false,
                _ => in_stream,
            };
            assert_eq!(decoder.in_stream(), after, "only Stream Start and Stream Stop change the state");
            walk(&message);
            let mut encoded = Vec::new();
            assert!(message.encode(&mut encoded).is_ok(), "what was decoded can be encoded");
            assert!(encoded == payload, "every byte of the input is in the message");
        }
        Err(error) => {
            assert_eq!(decoder.in_stream(), in_stream, "an error leaves the state alone");
            assert!(error.offset <= payload.len(), "the offset is inside the input: {error}");
        }
    }
}

/// What the counts promise is there.
fn walk(message: &Message<'_>) {
    match message {
        Message::Relation(relation) => assert_eq!(relation.columns.iter().count(), relation.columns.len()),
        Message::Truncate(truncate) => {
            assert_eq!(truncate.relations.iter().count(), truncate.relations.len())
        }
        Message::Insert(insert) => walk_row(insert.new),
        Message::Update(update) => {
            walk_row(update.new);
            if let Some(old) = update.old {
                walk_row(old.tuple);
            }
        }
        Message::Delete(delete) => walk_row(delete.old.tuple),
        _ => {}
    }
}

fn walk_row(row: Tuple<'_>) {
    assert_eq!(row.cells().count(), row.len(), "a decoded row has as many cells as columns");
}
