//! Who may know whom: the direction of dependencies between the crates, and the crates that must stay free of others'.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// Each crate, and the crates of this workspace that it may depend on outside its tests.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("crabka-connect", &[]),
    ("crabka-pgoutput", &[]),
    ("crabka-pgrepl", &[]),
    ("crabka-connect-postgres", &["crabka-connect", "crabka-pgrepl", "crabka-pgoutput"]),
    ("crabka-connect-kafka", &["crabka-connect"]),
    (
        "crabka",
        &[
            "crabka-connect",
            "crabka-connect-kafka",
            "crabka-connect-postgres",
            "crabka-pgoutput",
            "crabka-pgrepl",
        ],
    ),
    ("xtask", &["crabka-testkit"]),
];

/// These may depend on anything; nothing that is shipped may depend on them.
const FOR_TESTS: &[&str] = &["crabka-testkit", "crabka-tests", "crabka-examples"];

const POSTGRES: &[&str] = &["tokio-postgres", "postgres-protocol", "postgres-types"];
const KAFKA: &[&str] = &["rdkafka", "rdkafka-sys"];
const RUNTIME: &[&str] = &["tokio", "async-trait", "futures-util", "futures", "tracing", "log", "rand"];

/// Each crate, and the outside crates that it must not depend on, with the reason.
const MUST_NOT_USE: &[(&str, &[&str], &str)] = &[
    ("crabka-connect", POSTGRES, "the runtime knows no database"),
    ("crabka-connect", KAFKA, "the runtime knows no broker"),
    ("crabka-pgoutput", RUNTIME, "the decoder is pure: no I/O, no clock, no log, no async"),
    ("crabka-pgoutput", POSTGRES, "the decoder is pure"),
    ("crabka-pgrepl", KAFKA, "a replication connection knows no broker"),
    ("crabka-connect-postgres", KAFKA, "a source knows no sink"),
    ("crabka-connect-kafka", POSTGRES, "a sink knows no database"),
];

fn metadata() -> Metadata {
    // Without the resolved graph: nothing has to be downloaded for it.
    MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata")
}

/// What a package is built from, its tests aside.
fn dependencies(package: &Package) -> BTreeSet<String> {
    let shipped =
        package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development);
    shipped.map(|dependency| dependency.name.clone()).collect()
}

fn graph() -> BTreeMap<String, BTreeSet<String>> {
    metadata()
        .workspace_packages()
        .into_iter()
        .map(|package| (package.name.to_string(), dependencies(package)))
        .collect()
}

/// What is wrong with such a graph, one sentence each.
fn faults(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, dependencies) in graph {
        if FOR_TESTS.contains(&name.as_str()) {
            continue;
        }
        let Some((_, allowed)) = MAY_KNOW.iter().find(|(known, _)| known == name) else {
            faults.push(format!("a crate without a place in the design: {name}"));
            continue;
        };
        for dependency in dependencies.iter().filter(|dependency| graph.contains_key(*dependency)) {
            if !allowed.contains(&dependency.as_str()) {
                faults.push(format!("{name} must not depend on {dependency}"));
            }
        }
        for (_, forbidden, reason) in MUST_NOT_USE.iter().filter(|(known, ..)| known == name) {
            for dependency in
                dependencies.iter().filter(|dependency| forbidden.contains(&dependency.as_str()))
            {
                faults.push(format!("{name} must not depend on {dependency}: {reason}"));
            }
        }
    }
    faults
}

#[test]
fn dependencies_go_one_way() {
    assert_eq!(faults(&graph()), Vec::<String>::new());
}

#[test]
fn every_crate_of_the_design_is_there() {
    let graph = graph();
    let all = MAY_KNOW.iter().map(|(name, _)| *name).chain(FOR_TESTS.iter().copied());
    let missing: Vec<&str> = all.filter(|name| !graph.contains_key(*name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn the_check_sees_each_forbidden_edge() {
    let forbidden = [
        ("crabka-connect", "crabka-connect-postgres"),
        ("crabka-connect", "rdkafka"),
        ("crabka-connect-kafka", "crabka-pgrepl"),
        ("crabka-connect-kafka", "tokio-postgres"),
        ("crabka-connect-postgres", "crabka-connect-kafka"),
        ("crabka-pgoutput", "crabka-connect"),
        ("crabka-pgoutput", "tokio"),
        ("crabka-pgrepl", "crabka-pgoutput"),
        ("crabka", "crabka-testkit"),
    ];
    for (from, to) in forbidden {
        let mut graph = graph();
        graph.get_mut(from).unwrap().insert(to.to_owned());
        assert!(
            faults(&graph).iter().any(|fault| fault.contains(from) && fault.contains(to)),
            "{from} -> {to}"
        );
    }
    let mut graph = graph();
    graph.insert("crabka-newcomer".into(), BTreeSet::new());
    assert_eq!(faults(&graph).len(), 1);
}

#[test]
fn nothing_shipped_is_published_by_accident() {
    for package in metadata().workspace_packages() {
        assert_eq!(package.publish.as_deref(), Some(&[][..]), "{}", package.name);
    }
}
