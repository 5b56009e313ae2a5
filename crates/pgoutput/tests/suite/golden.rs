//! Every recording decodes to its last byte, to what an independent decoder saw.

use std::collections::{BTreeMap, BTreeSet};

use crabka_pgoutput::Message;

use crate::capture::{self, Record, records};
use crate::render::Transcript;

#[test]
fn the_recordings_cover_the_supported_servers_and_all_messages_but_one() {
    let index = capture::index();
    assert_eq!(index.len(), 248);
    for major in 14..=18 {
        assert!(index.iter().any(|recording| recording.base.contains(&format!(".pg{major}"))), "{major}");
    }
    let tags: BTreeSet<_> = index.iter().flat_map(|recording| recording.messages.keys()).collect();
    let tags: String = tags.into_iter().filter(|tag| tag.len() == 1).map(String::as_str).collect();
    // `p`, Stream Prepare, is the one: the round trips build it.
    assert_eq!(tags, "ABCDEIKMOPRSTUYbcr");
}

#[test]
fn every_record_decodes_and_the_counts_are_those_of_the_index() {
    for recording in capture::index() {
        let cap = recording.read();
        assert_eq!(cap.len(), recording.bytes, "{}", recording.base);
        let mut decoder = recording.decoder();
        let mut counts = BTreeMap::<String, u64>::new();
        let mut total = 0;
        for record in records(&cap) {
            total += 1;
            let tag = match record {
                Record::KeepAlive => "keepalive".to_owned(),
                Record::Wal { payload, .. } => match decoder.decode(payload) {
                    Ok(message) => char::from(message.tag()).to_string(),
                    Err(error) => panic!("{} record {total}: {error}", recording.base),
                },
            };
            *counts.entry(tag).or_default() += 1;
        }
        assert_eq!(total, recording.records, "{}", recording.base);
        assert_eq!(counts, recording.messages, "{}", recording.base);
        assert!(!decoder.in_stream(), "{}: ends inside a chunk", recording.base);
    }
}

#[test]
fn rendered_it_is_what_the_independent_decoder_wrote() {
    let mut compared = 0;
    for recording in capture::index() {
        let Some(expected) = recording.text() else {
            assert!(recording.scenario.starts_with("bulk_"), "{} has no text", recording.base);
            continue;
        };
        let expected = expected.lines().filter(|line| !line.trim_start().starts_with("--"));
        let cap = recording.read();
        let mut decoder = recording.decoder();
        let mut transcript = Transcript::new(recording.scenario.starts_with("stream_"));
        for record in records(&cap) {
            if let Record::Wal { start, payload } = record {
                transcript.push(start, &decoder.decode(payload).unwrap());
            }
        }
        let lines = transcript.finish();
        for (number, (line, expected)) in lines.iter().zip(expected.clone()).enumerate() {
            assert_eq!(line, expected, "{} line {}", recording.base, number + 1);
            compared += 1;
        }
        assert_eq!(lines.len(), expected.count(), "{}", recording.base);
    }
    assert!(compared > 10_000, "only {compared} lines were compared");
}

#[test]
fn encoded_again_it_is_what_the_server_sent() {
    let mut encoded = Vec::new();
    for recording in capture::index() {
        let cap = recording.read();
        let mut decoder = recording.decoder();
        for payload in capture::payloads(&cap) {
            encoded.clear();
            let message = decoder.decode(payload).unwrap();
            message.encode(&mut encoded).unwrap();
            assert!(encoded == payload, "{}: {message:?}", recording.base);
        }
    }
}

/// What the rules of the stream say about positions holds in the recordings.
#[test]
fn begin_and_commit_name_the_same_commit_record() {
    let mut transactions = 0;
    for recording in capture::index() {
        let cap = recording.read();
        let mut decoder = recording.decoder();
        let mut begun = None;
        for payload in capture::payloads(&cap) {
            match decoder.decode(payload).unwrap() {
                Message::Begin(begin) => begun = Some(begin),
                Message::Commit(commit) => {
                    let begin = begun.take().expect("a Begin came before");
                    assert_eq!(begin.final_lsn, commit.commit_lsn, "{}", recording.base);
                    assert_eq!(begin.commit_time_us, commit.commit_time_us, "{}", recording.base);
                    assert!(commit.commit_lsn < commit.end_lsn, "{}", recording.base);
                    transactions += 1;
                }
                _ => {}
            }
        }
    }
    assert_eq!(transactions, 3052);
}
