//! Findings about the publication: it exists, sends every operation and every configured table.

use crabka_connect::ConnectError;

use super::{CheckRequest, Facts, Finding, id};
use crate::catalog::{PublicationRow, TablePattern, TableRow, quote_identifier};

type Findings = Result<Vec<Finding>, ConnectError>;

pub(super) const TABLE_IDS: &[&str] = &[
    id::TABLE_MISSING,
    id::PUBLICATION_TABLE_MISSING,
    id::PUBLICATION_TABLE_EXTRA,
    id::PUBLICATION_VIA_ROOT,
];

/// Whether there is a publication, or will be one in time: it has to exist before the slot.
pub(crate) fn existence(request: &CheckRequest<'_>, facts: &Facts) -> Findings {
    let id = id::PUBLICATION_MISSING;
    let name = &request.publication;
    if facts.publication()?.is_some() {
        return Ok(vec![Finding::ok(id, format!("publication exists: {name}"))]);
    }
    let create = crate::setup::create_publication_sql(name, &request.tables, request.via_root);
    Ok(vec![match facts.slot()? {
        // The slot's next change would be decoded with a catalogue that has no such publication: an error for ever on
        // 17 and older, changes left out in silence on 18.
        Some(slot) if slot.confirmed_flush_lsn.is_some() => {
            let slot = crate::catalog::quote_literal(&slot.name);
            // The offset lies before where the slot then is, which no start accepts.
            let forget = match &request.forget_offset {
                Some(command) => format!("remove the stored offset, or the next start stops: {command}"),
                None => "remove the stored offset, if there is one, or the next start stops".to_owned(),
            };
            Finding::error(id, format!("publication does not exist, but the slot does already: {name}")).mended_by(format!(
                "{create}; then move the slot behind it, giving up the changes before: \
                 SELECT pg_replication_slot_advance({slot}, pg_current_wal_lsn()), or drop it and run `crabka init`; \
                 in both cases {forget}"
            ))
        }
        _ if request.creates_publication => {
            Finding::ok(id, format!("publication will be created before the slot: {name}"))
        }
        _ => Finding::error(id, format!("publication does not exist: {name}")).mended_by(create),
    }])
}

/// Whether inserts, updates, deletes and truncates are all sent.
pub(crate) fn operations(facts: &Facts) -> Findings {
    let id = id::PUBLICATION_OPERATIONS;
    let Some(publication) = facts.publication()? else {
        return Ok(vec![Finding::ok(id, "there is no publication yet")]);
    };
    let missing: Vec<&str> = [
        ("insert", publication.insert),
        ("update", publication.update),
        ("delete", publication.delete),
        ("truncate", publication.truncate),
    ]
    .into_iter()
    .filter_map(|(name, published)| (!published).then_some(name))
    .collect();
    Ok(vec![if missing.is_empty() {
        Finding::ok(id, "every operation is published")
    } else {
        Finding::warning(id, format!("publication leaves out: {}", missing.join(", "))).mended_by(format!(
            "ALTER PUBLICATION {} SET (publish = 'insert, update, delete, truncate')",
            quote_identifier(&publication.name)
        ))
    }])
}

/// Whether the publication and the configuration speak of the same tables.
pub(crate) fn tables(request: &CheckRequest<'_>, facts: &Facts) -> Findings {
    let mut findings = missing_tables(request, facts.configured()?);
    if let Some(publication) = facts.publication()? {
        let add = AddTo(publication);
        // Without a list, the tables are those of the publication.
        if !request.tables.is_empty() {
            findings.extend(unpublished(facts, &add)?);
        }
        findings.extend(extra(request, facts, publication)?);
        findings.extend(via_root(facts, publication)?);
    }
    for id in TABLE_IDS {
        if findings.iter().all(|finding| finding.id != *id) {
            findings.push(Finding::ok(
                *id,
                match *id {
                    id::TABLE_MISSING => "every configured table exists",
                    id::PUBLICATION_TABLE_MISSING => "no configured table is missing from the publication",
                    id::PUBLICATION_TABLE_EXTRA => "no other table is in the publication",
                    _ => "changes come under the names of the configured tables",
                },
            ));
        }
    }
    Ok(findings)
}

/// Configured tables that do not exist, or can be in no publication.
pub(crate) fn missing_tables(request: &CheckRequest<'_>, configured: &[TableRow]) -> Vec<Finding> {
    let id = id::TABLE_MISSING;
    let mut findings = Vec::new();
    for pattern in &request.tables {
        let found = configured.iter().any(|table| pattern.matches(&table.name.schema, &table.name.table));
        if found {
            continue;
        }
        findings.push(match pattern {
            TablePattern::Table(table) => {
                Finding::error(id, "configured table does not exist").about(table).mended_by(
                    "create it, or correct the name: it is read as in SQL, so upper case needs double quotes",
                )
            }
            TablePattern::Schema(_) | TablePattern::All => Finding::warning(id, "no table matches")
                .about(pattern)
                .mended_by("correct the name, or create a table"),
        });
    }
    for table in configured.iter().filter(|table| !table.is_publishable()) {
        let what = match (table.kind, table.persistence) {
            _ if table.is_of_the_system() => "a table of the system",
            ('v', _) => "a view",
            ('m', _) => "a materialised view",
            ('f', _) => "a foreign table",
            ('S', _) => "a sequence",
            (_, 'u') => "an unlogged table",
            (_, 't') => "a temporary table",
            _ => "no table",
        };
        let message = if table.is_of_the_system() {
            format!("this relation cannot be published: it is {what}")
        } else {
            format!("changes of this relation are not in the WAL: it is {what}")
        };
        let named =
            |pattern: &TablePattern| matches!(pattern, TablePattern::Table(name) if *name == table.name);
        // One that was asked for by name must not be missed in silence; others only share a schema or the database.
        let finding = if request.tables.iter().any(named) {
            Finding::error(id, message)
        } else {
            Finding::warning(id, message)
        };
        findings.push(finding.about(&table.name).mended_by(if table.is_of_the_system() {
            "remove it from the configured tables".to_owned()
        } else if table.persistence == 'u' {
            format!("ALTER TABLE {} SET LOGGED", table.name.quoted())
        } else {
            "configure the tables it is made of".to_owned()
        }));
    }
    findings
}

/// The statement that puts a table into a publication.
struct AddTo<'a>(&'a PublicationRow);

impl AddTo<'_> {
    fn table(&self, table: &TableRow) -> String {
        format!("ALTER PUBLICATION {} ADD TABLE {}", quote_identifier(&self.0.name), table.name.quoted())
    }
}

fn unpublished(facts: &Facts, add: &AddTo<'_>) -> Findings {
    let mut findings = Vec::new();
    for table in facts.configured()?.iter().filter(|table| table.is_publishable()) {
        if facts.is_published(table)? {
            continue;
        }
        findings.push(
            Finding::error(id::PUBLICATION_TABLE_MISSING, "configured table is not in the publication")
                .about(&table.name)
                .mended_by(add.table(table)),
        );
    }
    Ok(findings)
}

fn extra(request: &CheckRequest<'_>, facts: &Facts, publication: &PublicationRow) -> Findings {
    let others: Vec<String> = facts
        .published()?
        .iter()
        .filter(|table| !table.is_covered_by(&request.tables))
        .map(|table| table.name.to_string())
        .collect();
    if others.is_empty() {
        return Ok(Vec::new());
    }
    let shown = others.iter().take(10).cloned().collect::<Vec<_>>().join(", ");
    let more = if others.len() > 10 { format!(" and {} more", others.len() - 10) } else { String::new() };
    let message =
        format!("publication sends tables that are not configured and will be left out: {shown}{more}");
    Ok(vec![Finding::warning(id::PUBLICATION_TABLE_EXTRA, message).mended_by(format!(
        "configure them, or use a publication of its own in place of {}",
        quote_identifier(&publication.name)
    ))])
}

/// Configured tables whose changes come under another name.
fn via_root(facts: &Facts, publication: &PublicationRow) -> Findings {
    let published = facts.published()?;
    let name = quote_identifier(&publication.name);
    let mut findings = Vec::new();
    for table in facts.configured()? {
        let sends = |name| published.iter().any(|other| other.name == name);
        if table.is_partitioned() && !publication.via_root && facts.is_published(table)? {
            findings.push(
                Finding::warning(
                    id::PUBLICATION_VIA_ROOT,
                    "changes of this partitioned table come under the names of its partitions",
                )
                .about(&table.name)
                .mended_by(format!("ALTER PUBLICATION {name} SET (publish_via_partition_root = true)")),
            );
        } else if let Some(root) =
            table.ancestors.iter().find(|root| table.is_partition && sends((*root).clone()))
        {
            findings.push(
                Finding::warning(
                    id::PUBLICATION_VIA_ROOT,
                    format!("changes of this partition come under the name of its root: {root}"),
                )
                .about(&table.name)
                .mended_by(format!("ALTER PUBLICATION {name} SET (publish_via_partition_root = false)")),
            );
        }
    }
    Ok(findings)
}
