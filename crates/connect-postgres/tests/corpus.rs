//! The corpora of the fuzz targets `value` and `offset`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crabka_connect_postgres::fuzz;

/// The longest recorded value that becomes a seed.
const VALUE_BYTES_MAX: usize = 80;

fn unhex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// Of each built-in type the longest value that a server sent and that is short enough, in both forms.
fn value_seeds() -> BTreeMap<String, Vec<u8>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pgoutput/tests/captures/types.pg18.tsv");
    let table = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let types = fuzz::types();
    let mut seeds = BTreeMap::<String, Vec<u8>>::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [_, oid, _, _, text, kind, binary] = fields[..] else { panic!("{line}") };
        let oid: u32 = oid.parse().unwrap();
        let Some(place) = types.iter().position(|known| *known == oid) else { continue };
        let text: String = serde_json::from_str(text).unwrap();
        let binary = (kind == "b").then(|| unhex(binary));
        for (form, cell) in [(0, Some(text.into_bytes())), (1, binary)] {
            let Some(cell) = cell.filter(|cell| cell.len() <= VALUE_BYTES_MAX) else { continue };
            let name = format!("{oid}-{}", if form == 0 { "text" } else { "binary" });
            let [high, low] = u16::try_from(place).unwrap().to_be_bytes();
            let seed = [&[high, low, form], cell.as_slice()].concat();
            let longest = seeds.entry(name).or_insert_with(|| seed.clone());
            if seed.len() > longest.len() {
                *longest = seed;
            }
        }
    }
    assert!(seeds.len() > 100, "only {} seeds", seeds.len());
    seeds
}

#[test]
fn corpus_of_values() {
    replay::corpus("value", &value_seeds(), fuzz::value);
}

#[test]
fn every_type_takes_values_of_every_other_without_a_panic() {
    let cells: BTreeSet<Vec<u8>> = value_seeds().into_values().map(|seed| seed[3..].to_vec()).collect();
    for place in 0..u16::try_from(fuzz::types().len()).unwrap() {
        let [high, low] = place.to_be_bytes();
        // A third of them for each type, another third for the next.
        for cell in cells.iter().skip(usize::from(place) % 3).step_by(3) {
            for settings in [0, 1] {
                fuzz::value(&[&[high, low, settings], cell.as_slice()].concat());
            }
        }
    }
}

#[test]
fn corpus_of_offsets() {
    let seeds = [
        (
            "inside-a-transaction",
            r#"{"partition":{"database":"shop","slot":"orders","system_id":"7"},"position":{"fingerprint":"08d5c907b5763fb0","last_commit_end_lsn":"0/10","lsn":"16/10","timeline":2,"transaction_changes_delivered":3,"transaction_commit_lsn":"16/100","version":1}}"#,
        ),
        (
            "between-transactions",
            r#"{"partition":{"database":"shop","slot":"orders","system_id":"7"},"position":{"fingerprint":"0","lsn":"16/10","version":1}}"#,
        ),
        (
            "scalars",
            r#"{"partition":{"a":null,"b":true,"c":-1},"position":{"d":18446744073709551615,"e":"\u00e9\ud83d\ude00"}}"#,
        ),
        ("not-an-offset", r#"{"partition":[],"position":1.5}"#),
    ];
    let seeds = seeds.map(|(name, json)| (name.to_owned(), json.as_bytes().to_vec())).into();
    replay::corpus("offset", &seeds, fuzz::offset);
}
