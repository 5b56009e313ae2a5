//! What the project is built from keeps to `deny.toml`: licences, sources, one version of each crate. The parts of
//! cargo-deny that need no network; advisories are cargo-deny's own.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{MetadataCommand, Package};
use spdx::{Expression, Licensee, ParseMode};
use toml::Table;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &str) -> Table {
    let path = root().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rules of `deny.toml` that are checked here.
struct Rules {
    licences: Vec<Licensee>,
    registries: Vec<String>,
    /// Crates, as `name@1` or `name@0.2`, that may be there beside another version.
    doubles: BTreeSet<String>,
}

impl Rules {
    fn read() -> Self {
        let deny = read("deny.toml");
        let texts = |section: &str, list: &str| -> Vec<String> {
            let list = deny[section][list].as_array().unwrap();
            list.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        for (section, rule) in
            [("bans", "multiple-versions"), ("sources", "unknown-registry"), ("sources", "unknown-git")]
        {
            assert_eq!(deny[section][rule].as_str(), Some("deny"), "{section}.{rule}");
        }
        let skipped = deny["bans"]["skip"].as_array().unwrap().iter();
        let doubles = skipped.map(|skip| {
            assert!(skip["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{skip}");
            skip["crate"].as_str().unwrap().to_owned()
        });
        Self {
            licences: texts("licenses", "allow").iter().map(|text| Licensee::parse(text).unwrap()).collect(),
            registries: texts("sources", "allow-registry"),
            doubles: doubles.collect(),
        }
    }

    /// Whether a licence expression can be fulfilled with what is allowed.
    fn permit(&self, expression: &str) -> bool {
        let expression = Expression::parse_mode(expression, ParseMode::LAX).unwrap();
        expression.evaluate(|wanted| self.licences.iter().any(|allowed| allowed.satisfies(wanted)))
    }

    fn knows(&self, source: &str) -> bool {
        source.strip_prefix("registry+").is_some_and(|url| self.registries.iter().any(|known| known == url))
    }
}

/// The lock files: the workspace's, and that of the fuzz targets.
const LOCKS: [&str; 2] = ["Cargo.lock", "fuzz/Cargo.lock"];

/// Name and source of every package of a lock file, those for other platforms included.
fn sources(file: &str) -> Vec<(String, Option<String>)> {
    let lock = read(file);
    let text = |package: &toml::Value, field: &str| Some(package.get(field)?.as_str()?.to_owned());
    let packages = lock["package"].as_array().unwrap().iter();
    packages.map(|package| (text(package, "name").unwrap(), text(package, "source"))).collect()
}

/// Every package that is built on this platform, for tests included.
fn packages() -> Vec<Package> {
    let rustc = Command::new("rustc").args(["--version", "--verbose"]).output().expect("rustc runs");
    let about = String::from_utf8(rustc.stdout).unwrap();
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(["--locked", "--filter-platform", host].map(str::to_owned))
        .exec()
        .expect("cargo metadata");
    metadata.packages
}

#[test]
fn every_licence_is_allowed() {
    let rules = Rules::read();
    let packages = packages();
    assert!(packages.len() > 100, "only {} packages", packages.len());
    let permitted = |package: &Package| package.license.as_ref().is_some_and(|licence| rules.permit(licence));
    let refused: Vec<_> = packages
        .iter()
        .filter(|package| !permitted(package))
        .map(|package| format!("{}: {:?}", package.name, package.license))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn every_source_is_allowed() {
    let rules = Rules::read();
    for file in LOCKS {
        for (name, source) in sources(file) {
            // What has no source is ours.
            let ours = name.starts_with("crabka") || name == "xtask";
            let allowed = source.as_ref().map_or(ours, |source| rules.knows(source));
            assert!(allowed, "{file}: {name} comes from {source:?}");
        }
    }
}

/// Crates of which there is more than one version that is not listed, and listed ones that are not doubled any more.
fn doubles(packages: &[(&str, &str)], listed: &BTreeSet<String>) -> Vec<String> {
    let mut versions = BTreeMap::<&str, Vec<&str>>::new();
    for (name, version) in packages {
        versions.entry(name).or_default().push(version);
    }
    let mut faults = Vec::new();
    let mut used = BTreeSet::new();
    for (name, versions) in versions {
        let (skipped, counted): (Vec<_>, Vec<_>) = versions
            .iter()
            .map(|version| listed.iter().find(|rule| covers(rule, name, version)))
            .partition(Option::is_some);
        if counted.len() != 1 {
            faults.push(format!("versions of {name} beside each other, or none unlisted: {versions:?}"));
        }
        used.extend(skipped.into_iter().flatten().cloned());
    }
    faults.extend(listed.difference(&used).map(|name| format!("listed and not there: {name}")));
    faults
}

/// Whether `name@1` or `name@0.2` means this version.
fn covers(rule: &str, name: &str, version: &str) -> bool {
    let Some((known, start)) = rule.split_once('@') else { return false };
    let rest = version.strip_prefix(start);
    known == name && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[test]
fn no_crate_is_there_twice() {
    let packages = packages();
    let versions: Vec<_> =
        packages.iter().map(|package| (package.name.to_string(), package.version.to_string())).collect();
    let versions: Vec<_> = versions.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
    assert_eq!(doubles(&versions, &Rules::read().doubles), Vec::<String>::new());
}

#[test]
fn the_rules_refuse_what_they_must() {
    let rules = Rules::read();
    for licence in ["GPL-3.0-only", "MIT AND GPL-2.0-only", "AGPL-3.0-or-later", "MPL-2.0"] {
        assert!(!rules.permit(licence), "{licence}");
    }
    for licence in ["MIT OR GPL-3.0-only", "MIT/Apache-2.0", "Apache-2.0 WITH LLVM-exception"] {
        assert!(rules.permit(licence), "{licence}");
    }
    assert!(!rules.knows("git+https://github.com/rust-lang/crates.io-index"));
    assert!(!rules.knows("registry+https://example.com/index"));
    let two = |versions: [&'static str; 2]| versions.map(|version| ("syn", version));
    assert_eq!(doubles(&two(["1.0.0", "2.0.0"]), &BTreeSet::new()).len(), 1);
    let listed = BTreeSet::from(["syn@1".to_owned()]);
    assert_eq!(doubles(&two(["1.0.0", "2.0.0"]), &listed), Vec::<String>::new());
    assert_eq!(doubles(&two(["2.0.0", "10.0.0"]), &listed).len(), 2);
}
