//! The corpora of the fuzz targets `frames` and `url`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::collections::BTreeMap;

use crabka_pgrepl::fuzz;

/// A message of the server: type, body.
fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![tag];
    frame.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    frame.extend(body);
    frame
}

/// Each kind of message, as servers send them.
fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let wal = [b"w".as_slice(), &[0; 24], b"B\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x03"].concat();
    let keepalive = [b"k".as_slice(), &[0; 16], &[1]].concat();
    let row_description = b"\0\x01column\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";
    vec![
        ("authentication-ok", frame(b'R', &[0, 0, 0, 0])),
        ("authentication-md5", frame(b'R', &[0, 0, 0, 5, 1, 2, 3, 4])),
        ("authentication-sasl", frame(b'R', b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0")),
        ("authentication-continue", frame(b'R', b"\0\0\0\x0br=nonce,s=c2FsdA==,i=4096")),
        ("authentication-final", frame(b'R', b"\0\0\0\x0cv=c2lnbmF0dXJl")),
        ("backend-key", frame(b'K', &[0, 0, 0, 7, 1, 2, 3, 4])),
        ("parameter-status", frame(b'S', b"server_version\x0018.1\0")),
        ("ready", frame(b'Z', b"I")),
        ("error", frame(b'E', b"SERROR\0VERROR\0C42704\0Mno\0Dd\0Hh\0\0")),
        ("notice", frame(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mtext\0\0")),
        ("row-description", frame(b'T', row_description)),
        ("data-row", frame(b'D', b"\0\x02\0\0\0\x01x\xff\xff\xff\xff")),
        ("command-complete", frame(b'C', b"SELECT 1\0")),
        ("copy-both", frame(b'W', &[0, 0, 0])),
        ("wal-data", frame(b'd', &wal)),
        ("keepalive", frame(b'd', &keepalive)),
        ("copy-done", frame(b'c', b"")),
        ("larger-than-a-read", frame(b'd', &[wal, vec![7; 300]].concat())),
    ]
}

#[test]
fn corpus_of_frames() {
    let messages = messages();
    let seed = |size: u8, stream: &[u8]| [&[size], stream].concat();
    let mut seeds: BTreeMap<String, Vec<u8>> =
        messages.iter().map(|(name, frame)| ((*name).to_owned(), seed(255, frame))).collect();
    let all: Vec<u8> = messages.iter().flat_map(|(_, frame)| frame.clone()).collect();
    seeds.insert("all-byte-by-byte".into(), seed(0, &all));
    seeds.insert("all-in-large-reads".into(), seed(99, &all));
    seeds.insert("announced-and-never-sent".into(), seed(255, b"d\0\x0f\xff\xff and no more"));
    seeds.insert("over-the-limit".into(), seed(255, b"d\x7f\xff\xff\xff"));
    seeds.insert("impossible-length".into(), seed(255, b"d\0\0\0\x03"));
    replay::corpus("frames", &seeds, fuzz::frames);
}

/// Each message cut at every byte and with every byte altered, lengths and counts among them.
#[test]
fn damaged_frames_are_errors_and_never_more_memory_than_bytes() {
    for (_, frame) in messages() {
        for size in [0, 2, 255] {
            for end in 0..=frame.len() {
                fuzz::frames(&[&[size], &frame[..end]].concat());
            }
            for at in 0..frame.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff, frame[at].wrapping_add(1), frame[at].wrapping_sub(1)] {
                    let mut damaged = [&[size], frame.as_slice()].concat();
                    damaged[at + 1] = value;
                    // What follows a damaged message is read by its length, too.
                    damaged.extend(&frame);
                    fuzz::frames(&damaged);
                }
            }
        }
    }
}

#[test]
fn corpus_of_urls() {
    let seeds = [
        (
            "url",
            "postgres://app:p%40ss@db1.example.com,db2:5433/shop?sslmode=verify-full&sslrootcert=/ca.pem",
        ),
        ("ipv6", "postgresql://[::1]:5433,[2001:db8::1]/x"),
        ("keywords", r"host=localhost port=5432 user='us\'er' password=x dbname=shop"),
        ("socket", "postgres:///shop?host=/var/run/postgresql&user=app"),
        (
            "every-parameter",
            "?application_name=a&channel_binding=require&connect_timeout=3&keepalives=1&keepalives_idle=2&keepalives_count=3&keepalives_interval=4&tcp_user_timeout=5&sslnegotiation=direct&sslsni=0&ssl_min_protocol_version=TLSv1.3&target_session_attrs=read-write&options=-c%20geqo%3Doff&hostaddr=10.0.0.1&passfile=/p&sslcert=/c&sslkey=/k",
        ),
        ("behind-a-password", "/ss?wo@rd#x%41@localhost:5432/shop?sslmode=require"),
        ("unknown-parameter", "postgres://h?sslmod=require"),
        ("not-utf-8-after-decoding", "postgres://%ff@h"),
    ];
    let seeds = seeds.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into();
    replay::corpus("url", &seeds, fuzz::url);
}
