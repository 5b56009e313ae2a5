//! What several probes need, read once. A fact that could not be read fails every probe that needs it.

use std::collections::HashMap;

use crabka_connect::ConnectError;

use super::{Bounded, CheckRequest};
use crate::catalog::{self, PublicationRow, RelationHints, ServerInfo, SlotRow, TableName, TableRow};
use crate::sql::SqlConnection;

/// A fact, or what kept us from reading it.
type Fact<T> = Result<T, ConnectError>;

/// The tables a stream is going to deliver.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    /// Those whose changes come under their own name.
    pub(crate) tables: Vec<TableRow>,
    /// Leaf partitions of those: their own replica identity decides whether the server accepts an update.
    pub(crate) leaves: Vec<TableRow>,
    /// What the catalogue says of both, by oid.
    pub(crate) hints: HashMap<u32, RelationHints>,
}

impl Captured {
    /// The captured tables with what the catalogue says of them.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&TableRow, &RelationHints)> {
        self.tables.iter().filter_map(|table| Some((table, self.hints.get(&table.oid)?)))
    }

    /// The tables that rows are written to: captured ones that are not partitioned, and leaves.
    pub(crate) fn written(&self) -> impl Iterator<Item = &RelationHints> {
        let tables = self.tables.iter().filter(|table| !table.is_partitioned());
        tables.chain(&self.leaves).filter_map(|table| self.hints.get(&table.oid))
    }
}

/// Everything read before the probes.
#[derive(Debug)]
pub(crate) struct Facts {
    server: Fact<ServerInfo>,
    slot: Fact<Option<SlotRow>>,
    publication: Fact<Option<PublicationRow>>,
    published: Fact<Vec<TableRow>>,
    configured: Fact<Vec<TableRow>>,
    captured: Fact<Captured>,
}

/// The same failure once more, for another finding.
fn again(error: &ConnectError) -> ConnectError {
    let copy = ConnectError::transient(error.message());
    match error.fix() {
        Some(fix) => copy.with_fix(fix),
        None => copy,
    }
}

impl Facts {
    pub(super) async fn gather(sql: &SqlConnection, request: &CheckRequest<'_>, bounded: &Bounded) -> Self {
        let server = bounded.run(catalog::server_info(sql)).await;
        let slot = match &request.slot {
            Some(slot) => bounded.run(catalog::slot(sql, slot)).await,
            None => Ok(None),
        };
        let publication = bounded.run(catalog::publication(sql, &request.publication)).await;
        let published = bounded.run(catalog::published_tables(sql, &request.publication)).await;
        let configured = match (&publication, &published) {
            // Nothing configured means what the publication has, and every table only for one that is to be created.
            (Ok(Some(_)), Ok(published)) if request.tables.is_empty() => Ok(published.clone()),
            _ => bounded.run(catalog::tables_matching(sql, &request.tables)).await,
        };
        let captured = match (&publication, &published, &configured) {
            (Ok(publication), Ok(published), Ok(configured)) => {
                let tables = match publication {
                    Some(_) => captured_of(published, request),
                    None => configured.clone(),
                };
                let via_root = publication.as_ref().map_or(request.via_root, |row| row.via_root);
                bounded.run(capture(sql, tables, via_root)).await
            }
            (Err(error), _, _) | (_, Err(error), _) | (_, _, Err(error)) => Err(again(error)),
        };
        Self { server, slot, publication, published, configured, captured }
    }

    /// The same facts for a set-up, which stops at the first that cannot be read.
    pub(crate) async fn read(sql: &SqlConnection, request: &CheckRequest<'_>) -> Result<Self, ConnectError> {
        let unbounded = Bounded {
            probe_limit: request.total_limit,
            end: tokio::time::Instant::now() + request.total_limit,
        };
        let facts = Self::gather(sql, request, &unbounded).await;
        facts.server()?;
        facts.slot()?;
        facts.publication()?;
        facts.published()?;
        facts.configured()?;
        facts.captured()?;
        Ok(facts)
    }

    pub(crate) fn server(&self) -> Fact<&ServerInfo> {
        self.server.as_ref().map_err(again)
    }

    pub(crate) fn slot(&self) -> Fact<Option<&SlotRow>> {
        self.slot.as_ref().map(Option::as_ref).map_err(again)
    }

    pub(crate) fn publication(&self) -> Fact<Option<&PublicationRow>> {
        self.publication.as_ref().map(Option::as_ref).map_err(again)
    }

    pub(crate) fn published(&self) -> Fact<&[TableRow]> {
        self.published.as_ref().map(Vec::as_slice).map_err(again)
    }

    pub(crate) fn configured(&self) -> Fact<&[TableRow]> {
        self.configured.as_ref().map(Vec::as_slice).map_err(again)
    }

    pub(crate) fn captured(&self) -> Fact<&Captured> {
        self.captured.as_ref().map_err(again)
    }

    /// Whether a publication sends this table: itself, its root, or all it consists of.
    pub(crate) fn is_published(&self, table: &TableRow) -> Fact<bool> {
        let published = self.published()?;
        let sends = |name: &TableName| published.iter().any(|other| other.name == *name);
        let parts = |root: &TableName| published.iter().any(|other| other.ancestors.contains(root));
        Ok(sends(&table.name)
            || table.is_partition && table.ancestors.iter().any(sends)
            || table.is_partitioned() && parts(&table.name))
    }
}

fn captured_of(published: &[TableRow], request: &CheckRequest<'_>) -> Vec<TableRow> {
    published.iter().filter(|table| table.is_covered_by(&request.tables)).cloned().collect()
}

/// Replaces partitioned tables by their leaves or partitions by their roots, as the publication does, and reads what
/// the catalogue says of all of them.
async fn capture(
    sql: &SqlConnection,
    tables: Vec<TableRow>,
    via_root: bool,
) -> Result<Captured, ConnectError> {
    let tables: Vec<TableRow> = tables.into_iter().filter(TableRow::is_publishable).collect();
    let roots: Vec<u32> =
        tables.iter().filter(|table| table.is_partitioned()).map(|table| table.oid).collect();
    let mut leaves = catalog::leaf_partitions(sql, &roots).await?;
    leaves.retain(TableRow::is_publishable);
    let mut captured = Captured::default();
    if via_root {
        let names: Vec<TableName> = tables.iter().map(|table| table.name.clone()).collect();
        let stands_alone = |table: &TableRow| {
            !(table.is_partition && table.ancestors.iter().any(|root| names.contains(root)))
        };
        captured.tables = tables.into_iter().filter(stands_alone).collect();
        captured.leaves = leaves;
    } else {
        captured.tables = tables.into_iter().filter(|table| !table.is_partitioned()).collect();
        captured.tables.extend(leaves);
        captured.tables.sort_by(|one, other| one.name.cmp(&other.name));
        captured.tables.dedup_by_key(|table| table.oid);
    }
    let oids: Vec<u32> = captured.tables.iter().chain(&captured.leaves).map(|table| table.oid).collect();
    captured.hints = catalog::relations(sql, &oids).await?;
    Ok(captured)
}
