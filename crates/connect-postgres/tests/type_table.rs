//! Every value that real servers sent (13 to 18), in text and in binary: both forms give the same output in each
//! envelope, the binary form gives the server's text wherever it is said to be known, and the output is the one of
//! `golden/types.tsv`.
//!
//! `CRABKA_BLESS=1` writes the golden file anew; read its difference before you commit it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod rows;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crabka_connect_postgres::types::{ColumnType, Form, TypeEntry, TypeKind, TypeRegistry};
use rows::{Written, b, t, written};

/// The longest text whose output is in the golden file.
const GOLDEN_TEXT_LEN_MAX: usize = 200;

/// One line of a capture's table.
struct Recorded {
    sql_type: String,
    type_oid: u32,
    typmod: i32,
    text: String,
    /// `None`: no binary form was recorded.
    binary: Option<Vec<u8>>,
}

fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pgoutput/tests/captures");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with("types.pg") && name.ends_with(".tsv")
        })
        .collect();
    files.sort();
    assert_eq!(files.len(), 5, "tables of the captured majors");
    files
}

fn read(file: &Path) -> Vec<Recorded> {
    let table = std::fs::read_to_string(file).unwrap();
    table
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [sql_type, type_oid, typmod, _literal, text, kind, binary] = fields[..] else {
                panic!("{line}")
            };
            Recorded {
                sql_type: sql_type.to_owned(),
                type_oid: type_oid.parse().unwrap(),
                typmod: typmod.parse().unwrap(),
                text: serde_json::from_str(text).unwrap(),
                binary: (kind == "b").then(|| unhex(binary)),
            }
        })
        .collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// The types that the capture's database had of its own; their oids differ from file to file.
fn registry(recorded: &[Recorded]) -> TypeRegistry {
    let oid = |name: &str| recorded.iter().find(|row| row.sql_type == name).unwrap().type_oid;
    let kinds = [
        ("posint", TypeKind::Domain { base: 23, typmod: -1 }, None),
        ("dtext", TypeKind::Domain { base: 25, typmod: -1 }, None),
        ("mood", TypeKind::Enum { labels: ["sad", "ok", "it's ok"].map(str::to_owned).to_vec() }, None),
        ("comp", TypeKind::Composite, None),
        ("mood[]", TypeKind::Array { element: oid("mood"), delimiter: b',' }, None),
        ("comp[]", TypeKind::Array { element: oid("comp"), delimiter: b',' }, None),
        ("posint[]", TypeKind::Array { element: oid("posint"), delimiter: b',' }, None),
        ("floatrange", TypeKind::Range { subtype: 701 }, None),
        ("hstore", TypeKind::Base, Some("hstore")),
        ("citext", TypeKind::Base, Some("citext")),
        ("ltree", TypeKind::Base, Some("ltree")),
    ];
    let mut registry = TypeRegistry::default();
    for (name, kind, extension) in kinds {
        registry.insert(TypeEntry {
            oid: oid(name),
            schema: "public".to_owned(),
            name: name.to_owned(),
            kind,
            extension: extension.map(str::to_owned),
        });
    }
    registry
}

/// Types whose binary form tells less than their text, so that they are streamed as text.
const TEXT_ONLY: [&str; 10] = [
    "regclass",
    "regtype",
    "regproc",
    "regrole",
    "regnamespace",
    "regprocedure",
    "regcollation",
    "aclitem",
    "comp",
    "comp[]",
];

fn check(file: &str, row: &Recorded, registry: &TypeRegistry) -> Written {
    let what = format!("{file}: {} {}", row.sql_type, row.text.get(..60).unwrap_or(&row.text));
    let column_type = ColumnType::resolve(row.type_oid, row.typmod, registry);
    assert_eq!(column_type.server_text(Form::Text, row.text.as_bytes()).unwrap(), row.text, "{what}");
    let from_text = written(row.type_oid, row.typmod, registry, t(&row.text)).unwrap();
    assert_eq!(column_type.binary_is_known(), !TEXT_ONLY.contains(&row.sql_type.as_str()), "{what}");
    if let Some(binary) = row.binary.as_ref().filter(|_| column_type.binary_is_known()) {
        assert_eq!(column_type.server_text(Form::Binary, binary).unwrap(), row.text, "{what}");
        let from_binary = written(row.type_oid, row.typmod, registry, b(binary)).unwrap();
        assert_eq!(from_binary, from_text, "{what}");
    }
    from_text
}

fn golden_line(row: &Recorded, written: &Written) -> String {
    let header = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let text = serde_json::to_string(&row.text).unwrap();
    [
        row.sql_type.clone(),
        text,
        written.debezium.clone(),
        header(&written.debezium_text),
        written.flat.clone(),
        header(&written.flat_text),
    ]
    .join("\t")
}

#[test]
fn every_recorded_value_in_both_forms() {
    let golden_file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/types.tsv");
    let mut lines = BTreeMap::new();
    let mut order = Vec::new();
    for path in captures() {
        let file = path.file_name().unwrap().to_str().unwrap();
        let recorded = read(&path);
        assert!(recorded.len() > 200, "{file}");
        let registry = registry(&recorded);
        for row in &recorded {
            // "char" of PostgreSQL 14 and older does not know octal input: the recorded value is another one.
            let written = check(file, row, &registry);
            if row.text.len() > GOLDEN_TEXT_LEN_MAX {
                continue;
            }
            let line = golden_line(row, &written);
            let input = (row.sql_type.clone(), row.text.clone());
            match lines.insert(input.clone(), line.clone()) {
                Some(other) => assert_eq!(other, line, "{file}: output differs between majors"),
                None => order.push(input),
            }
        }
    }
    let heading = "type\ttext\tdebezium\tdebezium __source_text\tflat\tflat __source_text";
    let body: Vec<&str> = order.iter().map(|input| lines[input].as_str()).collect();
    let table = format!("{heading}\n{}\n", body.join("\n"));
    if std::env::var_os("CRABKA_BLESS").is_some() {
        std::fs::write(&golden_file, &table).unwrap();
    }
    let golden = std::fs::read_to_string(&golden_file).unwrap();
    for (line, expected) in table.lines().zip(golden.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(table.lines().count(), golden.lines().count());
}
