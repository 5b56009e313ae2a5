//! The committed corpus of a fuzz target in the ordinary tests: every file runs through the target's body, as the
//! fuzzer would run it. Tests take this file in by its path.
//!
//! Seeds are made by the tests. After a change of a body's input format write them anew:
//!
//! ```sh
//! CRABKA_WRITE_CORPUS=1 cargo test -p CRATE corpus
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// The seeds are there as they are made, and the body takes them and whatever else is in the target's corpus.
pub(crate) fn corpus(target: &str, seeds: &BTreeMap<String, Vec<u8>>, body: fn(&[u8])) {
    let folder = folder(target);
    for (name, seed) in seeds {
        let path = folder.join(name);
        if std::env::var_os("CRABKA_WRITE_CORPUS").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, seed).unwrap();
        }
        let committed = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(committed == *seed, "the seed is not what the test makes: {}", path.display());
    }
    let mut files = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let input = fs::read(&path).unwrap();
        let outcome = std::panic::catch_unwind(|| body(&input));
        assert!(outcome.is_ok(), "{}", path.display());
        files += 1;
    }
    assert!(files >= seeds.len() && files > 0, "{target}: {files} files");
}
