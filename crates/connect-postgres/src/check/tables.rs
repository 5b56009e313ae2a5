//! Findings about the captured tables: replica identity, keys, topics.

use std::collections::BTreeMap;

use crabka_connect::ConnectError;

use super::facts::Captured;
use super::{CheckRequest, Facts, Finding, id};
use crate::catalog::{PublicationRow, RelationHints, TableName, quote_identifier, some_of};
use crate::relation::ReplicaIdentity;

type Findings = Result<Vec<Finding>, ConnectError>;

pub(super) const IDS: &[&str] = &[
    id::REPLICA_IDENTITY,
    id::BEFORE_IMAGE,
    id::PUBLICATION_COLUMN_LIST,
    id::KEYLESS_TABLE,
    id::KEY_NOT_IN_IDENTITY,
];

pub(super) fn findings(facts: &Facts) -> Findings {
    let captured = facts.captured()?;
    let publication = facts.publication()?;
    let mut findings = identity_findings(captured, publication);
    if let Some(publication) = publication {
        findings.extend(column_lists(captured, publication));
    }
    findings.extend(keys(captured));
    findings.extend(before_images(captured));
    let count = captured.tables.len();
    for id in IDS {
        if findings.iter().all(|finding| finding.id != *id) {
            findings.push(Finding::ok(*id, format!("nothing wrong with the captured tables: {count}")));
        }
    }
    Ok(findings)
}

/// Tables that a publication makes, or would make, refuse updates and deletes.
pub(crate) fn identity_findings(captured: &Captured, publication: Option<&PublicationRow>) -> Vec<Finding> {
    let (update, delete) = publication.map_or((true, true), |row| (row.update, row.delete));
    let operations = match (update, delete) {
        (true, true) => "UPDATE and DELETE",
        (true, false) => "UPDATE",
        (false, true) => "DELETE",
        (false, false) => return Vec::new(),
    };
    let makes = if publication.is_some() { "makes" } else { "will make" };
    let mut findings = Vec::new();
    for table in captured.written().filter(|table| table.identity().is_none()) {
        let why = match table.replica_identity {
            ReplicaIdentity::Default if table.primary_key_deferrable => "its primary key is deferrable",
            ReplicaIdentity::Default => "it has no primary key",
            ReplicaIdentity::Index => "the index of its replica identity is gone",
            ReplicaIdentity::Nothing | ReplicaIdentity::Full => "it is set to NOTHING",
        };
        findings.push(
            Finding::warning(
                id::REPLICA_IDENTITY,
                format!(
                    "table has no replica identity ({why}): publishing it {makes} the application's {operations} fail"
                ),
            )
            .about(&table.name)
            .mended_by(identity_fix(table)),
        );
    }
    findings
}

/// What an old row will tell, by replica identity: nothing is wrong with any of them, but consumers differ in what
/// they need.
fn before_images(captured: &Captured) -> Vec<Finding> {
    let mut by_identity: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for table in captured.written() {
        let (holds, columns) = match (table.identity(), table.replica_identity) {
            (None, _) => {
                ("no before, the server refuses UPDATE and DELETE (no replica identity)", Vec::new())
            }
            (Some(_), ReplicaIdentity::Full) => {
                ("before is the whole old row of every UPDATE and DELETE (replica identity FULL)", Vec::new())
            }
            (Some(columns), ReplicaIdentity::Index) => {
                ("before has the columns of an index, where one of them changed, and of DELETE", columns)
            }
            (Some(columns), _) => ("before has the primary key, where it changed, and of DELETE", columns),
        };
        let name = match columns.is_empty() {
            true => table.name.to_string(),
            false => format!("{} ({})", table.name, columns.join(", ")),
        };
        by_identity.entry(holds).or_default().push(name);
    }
    let finding = |(holds, mut tables): (&str, Vec<String>)| {
        tables.sort_unstable();
        Finding::ok(id::BEFORE_IMAGE, format!("{holds}: {}", some_of(tables)))
    };
    by_identity.into_iter().map(finding).collect()
}

fn identity_fix(table: &RelationHints) -> String {
    let name = table.name.quoted();
    if table.replica_identity == ReplicaIdentity::Default || table.primary_key.is_empty() {
        format!("ALTER TABLE {name} ADD PRIMARY KEY (…), or ALTER TABLE {name} REPLICA IDENTITY FULL")
    } else {
        format!("ALTER TABLE {name} REPLICA IDENTITY DEFAULT")
    }
}

/// Column lists that lack a column of the replica identity: the server refuses updates and deletes.
fn column_lists(captured: &Captured, publication: &PublicationRow) -> Vec<Finding> {
    if !(publication.update || publication.delete) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for listed in &publication.tables {
        let Some(columns) = &listed.columns else { continue };
        let Some(identity) = captured.hints.get(&listed.oid).and_then(RelationHints::identity) else {
            continue;
        };
        let mut missing: Vec<&str> =
            identity.into_iter().filter(|name| !columns.iter().any(|column| column == name)).collect();
        missing.sort_unstable();
        if !missing.is_empty() {
            findings.push(
                Finding::warning(
                    id::PUBLICATION_COLUMN_LIST,
                    format!(
                        "column list lacks columns of the replica identity, which makes the application's UPDATE and \
                         DELETE fail: {}",
                        missing.join(", ")
                    ),
                )
                .about(&listed.name)
                .mended_by(format!(
                    "ALTER PUBLICATION {} SET TABLE … with these columns in the list of {}",
                    quote_identifier(&publication.name),
                    listed.name
                )),
            );
        }
    }
    findings
}

fn keys(captured: &Captured) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (row, table) in captured.tables() {
        let key = table.key();
        if key.is_empty() {
            findings.push(
                Finding::warning(
                    id::KEYLESS_TABLE,
                    "table has no primary key and no unique index over NOT NULL columns: its records have no key",
                )
                .about(&table.name)
                .mended_by(format!("ALTER TABLE {} ADD PRIMARY KEY (…)", table.name.quoted())),
            );
            continue;
        }
        // Without an identity the server lets no update or delete through: that is the other finding.
        let Some(identity) = table.identity() else { continue };
        let missing: Vec<&str> =
            key.iter().map(String::as_str).filter(|name| !identity.contains(name)).collect();
        if !missing.is_empty() {
            let fix = if table.primary_key_deferrable { "FULL" } else { "DEFAULT" };
            findings.push(
                Finding::error(
                    id::KEY_NOT_IN_IDENTITY,
                    format!(
                        "key columns are not in the replica identity: deletes would carry null keys and key changes go \
                         unseen: {}",
                        missing.join(", ")
                    ),
                )
                .about(&row.name)
                .mended_by(format!("ALTER TABLE {} REPLICA IDENTITY {fix}", table.name.quoted())),
            );
        }
    }
    findings
}

/// KAF-08: tables that end in one topic, or in a topic of another kind.
pub(super) fn topics(request: &CheckRequest<'_>, facts: &Facts) -> Findings {
    let Some(topic) = request.topic else {
        return Ok(vec![Finding::ok(id::TOPIC_COLLISION, "topics are not named by table")]);
    };
    let names = facts.captured()?.tables.iter().map(|table| &table.name);
    let mut findings = collisions(names, topic, &request.reserved_topics, request.shares_topics);
    if findings.is_empty() {
        findings.push(Finding::ok(id::TOPIC_COLLISION, "every table has a topic of its own"));
    }
    Ok(findings)
}

fn collisions<'t>(
    tables: impl Iterator<Item = &'t TableName>,
    topic: super::TopicOf<'_>,
    reserved: &[String],
    shares: bool,
) -> Vec<Finding> {
    let mut by_topic: BTreeMap<String, Vec<&TableName>> = BTreeMap::new();
    for table in tables {
        by_topic.entry(topic(table)).or_default().push(table);
    }
    let mut findings = Vec::new();
    for (topic, tables) in by_topic {
        let names = tables.iter().map(|table| table.to_string()).collect::<Vec<_>>().join(", ");
        let way_out = "rename one, leave one out of the tables, or merge them on purpose";
        if reserved.contains(&topic) {
            findings.push(
                Finding::error(
                    id::TOPIC_COLLISION,
                    format!(
                        "topic of messages, transactions or heartbeats would also be the topic of: {names}"
                    ),
                )
                .about(&topic)
                .mended_by("choose another topic prefix, or leave the table out"),
            );
        } else if tables.len() > 1 && !shares {
            findings.push(
                Finding::error(id::TOPIC_COLLISION, format!("tables would share one topic: {names}"))
                    .about(&topic)
                    .mended_by(way_out),
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(schema: &str, table: &str) -> TableName {
        TableName { schema: schema.into(), table: table.into() }
    }

    fn sanitised(table: &TableName) -> String {
        let joined = format!("shop.{}.{}", table.schema, table.table);
        joined.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
    }

    #[test]
    fn kaf_08_two_tables_one_topic() {
        let tables = [
            name("public", "a b"),
            name("public", "a_b"),
            name("x.y", "z"),
            name("x", "y.z"),
            name("public", "alone"),
        ];
        let found = collisions(tables.iter(), &sanitised, &[], false);
        let subjects: Vec<_> = found.iter().filter_map(|finding| finding.subject.as_deref()).collect();
        assert_eq!(subjects, ["shop.public.a_b", "shop.x.y.z"]);
        assert_eq!(found[0].message, "tables would share one topic: public.\"a b\", public.a_b");
        assert!(found[1].message.contains("\"x.y\".z") && found[1].message.contains("x.\"y.z\""));
        assert_eq!(collisions(tables.iter(), &sanitised, &[], true), []);
    }

    #[test]
    fn kaf_08_a_table_on_a_topic_of_another_kind() {
        let tables = [name("public", "t")];
        let found = collisions(tables.iter(), &sanitised, &["shop.public.t".to_owned()], true);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.ends_with(": public.t"));
    }
}
