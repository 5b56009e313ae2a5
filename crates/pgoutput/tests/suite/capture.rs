//! Reads the recordings in `tests/captures`; their README tells the format.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crabka_pgoutput::Decoder;
use serde_json::Value;

/// One entry of `index.json`.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    /// `<scenario>.pg<major>[.<variant>]`, the name of the files beside the `.cap`.
    pub(crate) base: String,
    pub(crate) file: String,
    pub(crate) scenario: String,
    pub(crate) bytes: usize,
    pub(crate) records: usize,
    /// How many messages by tag; key `keepalive` for those.
    pub(crate) messages: BTreeMap<String, u64>,
    pub(crate) streaming_parallel: bool,
}

/// One CopyData payload as the server sent it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Record<'a> {
    Wal { start: u64, payload: &'a [u8] },
    KeepAlive,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

/// Every recording that `index.json` names.
pub(crate) fn index() -> Vec<Recording> {
    let text = fs::read_to_string(folder().join("index.json")).expect("index.json is readable");
    let entries: Vec<Value> = serde_json::from_str(&text).expect("index.json is a JSON array");
    entries.iter().map(Recording::from_index).collect()
}

/// The recording with this base name.
pub(crate) fn open(base: &str) -> Recording {
    index().into_iter().find(|recording| recording.base == base).expect("the index names the recording")
}

impl Recording {
    fn from_index(entry: &Value) -> Self {
        let text = |name: &str| entry[name].as_str().expect("a text").to_owned();
        let number = |name: &str| usize::try_from(entry[name].as_u64().expect("a number")).unwrap();
        let messages = entry["messages"].as_object().expect("counts by tag");
        Self {
            base: text("base"),
            file: text("cap"),
            scenario: text("scenario"),
            bytes: number("bytes"),
            records: number("records"),
            messages: messages.iter().map(|(tag, n)| (tag.clone(), n.as_u64().expect("a count"))).collect(),
            streaming_parallel: entry["options"]["streaming"] == "parallel",
        }
    }

    /// A decoder with the settings of the recorded session.
    pub(crate) fn decoder(&self) -> Decoder {
        Decoder::new().streaming_parallel(self.streaming_parallel)
    }

    /// The uncompressed `.cap`.
    pub(crate) fn read(&self) -> Vec<u8> {
        let raw = fs::read(folder().join(&self.file)).expect("the recording is readable");
        if !self.file.ends_with(".gz") {
            return raw;
        }
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(raw.as_slice()).read_to_end(&mut plain).expect("the recording is gzip");
        plain
    }

    /// What the independent decoder made of it, where there is one.
    pub(crate) fn text(&self) -> Option<String> {
        let path = folder().join(format!("{}.txt", self.base));
        path.exists().then(|| fs::read_to_string(path).expect("the text is readable"))
    }
}

/// The records of an uncompressed `.cap`.
pub(crate) fn records(cap: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut rest = cap.strip_prefix(b"PGCAP1\n").expect("the file begins with its magic bytes");
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (length, tail) = rest.split_first_chunk::<4>().expect("a length");
        let (record, tail) = tail.split_at(usize::try_from(u32::from_be_bytes(*length)).unwrap());
        rest = tail;
        Some(match record.split_first().expect("a kind") {
            (b'w', wal) => {
                let (start, wal) = wal.split_first_chunk::<8>().expect("a start LSN");
                Record::Wal { start: u64::from_be_bytes(*start), payload: &wal[16..] }
            }
            (b'k', fields) => {
                assert_eq!(fields.len(), 17, "a keepalive is 17 bytes behind its kind");
                Record::KeepAlive
            }
            (kind, _) => panic!("unknown record kind {kind}"),
        })
    })
}

/// The pgoutput messages of an uncompressed `.cap`.
pub(crate) fn payloads(cap: &[u8]) -> impl Iterator<Item = &[u8]> {
    records(cap).filter_map(|record| match record {
        Record::Wal { payload, .. } => Some(payload),
        Record::KeepAlive => None,
    })
}
