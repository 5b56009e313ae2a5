//! The corpus of the fuzz targets `message` and `session`; the seeds are made from the recordings.

use std::collections::BTreeMap;

use crabka_pgoutput::{LogicalMessage, Message, Prepare, fuzz};

use crate::{capture, replay};

/// A session of at most this many bytes becomes a seed.
const SESSION_BYTES_MAX: usize = 4096;

/// Whole sessions that together hold every kind of message.
const SESSIONS: &[&str] = &[
    "binary_mix.pg18",
    "generated.pg18.stored",
    "origin.pg18",
    "replident.pg18",
    "stream_immediate.pg18.par4",
    "stream_immediate.pg18.s2",
    "stream_toast.pg18.s2",
    "truncate.pg18",
    "twophase.pg18.on",
];

fn settings(streaming_parallel: bool, in_stream: bool) -> u8 {
    u8::from(streaming_parallel) | u8::from(in_stream) << 1
}

/// For each tag, inside and outside chunks, the shortest recorded message; and the two kinds not recorded.
fn message_seeds() -> BTreeMap<String, Vec<u8>> {
    let mut seeds = BTreeMap::<String, Vec<u8>>::new();
    for recording in capture::index() {
        let cap = recording.read();
        let mut decoder = recording.decoder();
        for payload in capture::payloads(&cap) {
            let in_stream = decoder.in_stream();
            let message = decoder.decode(payload).unwrap();
            let place = if in_stream { "-in-stream" } else { "" };
            let parallel = matches!(message, Message::StreamAbort(abort) if abort.abort.is_some());
            let extra = match message {
                Message::StreamAbort(_) if parallel => "-parallel",
                Message::Update(update) if update.old.is_some() => "-with-old-row",
                _ => "",
            };
            let name = format!("{}{extra}{place}", message.name().to_lowercase().replace(' ', "-"));
            let seed = [&[settings(parallel, in_stream)], payload].concat();
            let shortest = seeds.entry(name).or_insert_with(|| seed.clone());
            if (seed.len(), &seed) < (shortest.len(), shortest) {
                *shortest = seed;
            }
        }
    }
    let prepare = Prepare { prepare_lsn: 1, end_lsn: 2, prepare_time_us: 3, xid: 4, gid: "gid" };
    let outside = LogicalMessage { xid: None, transactional: false, lsn: 5, prefix: "p", content: b"\0\xff" };
    for (name, message) in
        [("stream-prepare", Message::StreamPrepare(prepare)), ("message", Message::LogicalMessage(outside))]
    {
        let mut seed = vec![0];
        message.encode(&mut seed).unwrap();
        seeds.insert(name.to_owned(), seed);
    }
    seeds
}

fn session_seeds() -> BTreeMap<String, Vec<u8>> {
    let seed = |base: &&str| {
        let recording = capture::open(base);
        let mut seed = vec![settings(recording.streaming_parallel, false)];
        for payload in capture::payloads(&recording.read()) {
            let length = u16::try_from(payload.len()).expect("a seed has short messages");
            if seed.len() + payload.len() > SESSION_BYTES_MAX {
                break;
            }
            seed.extend(length.to_be_bytes());
            seed.extend(payload);
        }
        ((*base).to_owned(), seed)
    };
    SESSIONS.iter().map(seed).collect()
}

#[test]
fn corpus_of_messages() {
    let seeds = message_seeds();
    replay::corpus("message", &seeds, fuzz::one_message);
    // Every kind is there.
    let tags: std::collections::BTreeSet<u8> = seeds.values().map(|seed| seed[1]).collect();
    assert_eq!(tags.len(), 19);
}

#[test]
fn corpus_of_sessions() {
    replay::corpus("session", &session_seeds(), fuzz::session);
}
