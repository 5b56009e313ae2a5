//! The tables of the stream, by oid: what the Relation messages said, joined with what the catalogue adds.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crabka_connect::ConnectError;
use crabka_pgrepl::Lsn;
use tokio::time::Instant;

use crate::catalog::{self, PublicationRow, RelationHints, TableName, TablePattern};
use crate::figures::{SourceFigures, TableFigures};
use crate::key::{KeyColumn, KeyHints, choose_key};
use crate::relation::{Column, Relation, ReplicaIdentity};
use crate::session::topics::TopicOwners;
use crate::sql::SqlConnection;
use crate::types::{ColumnType, Kind, TypeRegistry};

/// Versions are unique in the process, so that caches of prepared output may outlive a session.
static NEXT_VERSION: AtomicU64 = AtomicU64::new(1);

/// Oids below this belong to the system: their types are built in, or of `information_schema`.
const FIRST_USER_OID: u32 = 10_000;

/// A Relation message, copied: it crosses a question to the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WireRelation {
    oid: u32,
    name: TableName,
    identity: ReplicaIdentity,
    columns: Vec<WireColumn>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct WireColumn {
    name: String,
    type_oid: u32,
    typmod: i32,
    in_identity: bool,
}

impl From<&crabka_pgoutput::Relation<'_>> for WireRelation {
    fn from(relation: &crabka_pgoutput::Relation<'_>) -> Self {
        // An empty namespace means pg_catalog.
        let schema = if relation.namespace.is_empty() { "pg_catalog" } else { relation.namespace };
        Self {
            oid: relation.oid,
            name: TableName { schema: schema.to_owned(), table: relation.name.to_owned() },
            identity: relation.identity,
            columns: relation
                .columns
                .iter()
                .map(|column| WireColumn {
                    name: column.name.to_owned(),
                    type_oid: column.type_oid,
                    typmod: column.type_modifier,
                    in_identity: column.key,
                })
                .collect(),
        }
    }
}

/// What the session wants to know of a relation it has just learned.
#[derive(Debug)]
pub(crate) struct Learned {
    pub(crate) name: TableName,
    pub(crate) captured: bool,
    /// Whether every column decodes from binary to the same value as from text.
    pub(crate) binary_is_known: bool,
}

/// What outlives a session: the knowledge of types, and of keys by relation oid.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    types: TypeRegistry,
    keys: HashMap<u32, Vec<String>>,
}

#[derive(Debug)]
struct Entry {
    wire: WireRelation,
    relation: Arc<Relation>,
    /// Where its changes are counted; `None` when it is not captured.
    captured: Option<Arc<TableFigures>>,
}

#[derive(Debug)]
pub(crate) struct RelationCache {
    sql: Arc<SqlConnection>,
    figures: Arc<SourceFigures>,
    topics: TopicOwners,
    tables: Vec<TablePattern>,
    excluded: Vec<TableName>,
    /// Whether the publication names nothing but what is listed.
    only_listed_is_published: bool,
    knowledge: Knowledge,
    entries: HashMap<u32, Entry>,
}

impl RelationCache {
    /// `tables` empty captures all.
    pub(crate) fn new(
        sql: Arc<SqlConnection>,
        figures: Arc<SourceFigures>,
        topics: TopicOwners,
        tables: Vec<TablePattern>,
        excluded: Vec<TableName>,
    ) -> Self {
        let (knowledge, entries) = (Knowledge::default(), HashMap::new());
        Self { sql, figures, topics, tables, excluded, only_listed_is_published: false, knowledge, entries }
    }

    /// The connection that the catalogue is read over.
    pub(crate) fn sql(&self) -> &SqlConnection {
        &self.sql
    }

    /// Looks at what is published now. Refuses a publication of which two captured tables would share a topic; what
    /// joins it later is looked at when its Relation message comes.
    pub(crate) async fn claim_topics(&mut self, publication: &PublicationRow) -> Result<(), ConnectError> {
        let rivals = catalog::published_with_equal_topics(
            &self.sql,
            &publication.name,
            self.topics.prefix(),
            self.topics.reserved(),
        );
        for table in rivals.await? {
            if self.is_listed(&table) && !self.excluded.contains(&table) {
                self.topics.claim(&table)?;
            }
        }
        self.only_listed_is_published = !publication.all_tables
            && publication.schemas.is_empty()
            && publication.tables.iter().all(|table| self.is_listed(&table.name));
        Ok(())
    }

    /// Waits until the ordinary SQL connection has ended, and says since when it has.
    pub(crate) async fn sql_ended(&self) -> Instant {
        self.sql.ended().await
    }

    fn is_listed(&self, name: &TableName) -> bool {
        self.tables.is_empty() || self.tables.iter().any(|pattern| pattern.matches(&name.schema, &name.table))
    }

    /// The relation of that oid if it is captured, and where its changes are counted.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Bug`] when it was never announced: its rows cannot be read, and must not be passed over.
    pub(crate) fn captured(
        &self,
        oid: u32,
        at: Lsn,
        xid: Option<u32>,
    ) -> Result<Option<(&Arc<Relation>, &TableFigures)>, ConnectError> {
        match self.entries.get(&oid) {
            Some(entry) => Ok(entry.captured.as_deref().map(|figures| (&entry.relation, figures))),
            None => Err(ConnectError::bug(format!(
                "a change of a relation that was not announced, at {at} in transaction {}: {oid}",
                xid.unwrap_or_default()
            ))),
        }
    }

    /// The announced tables that have such columns, by name.
    pub(crate) fn with_columns_longer_as_text(&self) -> Vec<String> {
        let longer = |column: &Column| {
            let element = column.column_type.element().unwrap_or(&column.column_type);
            matches!(element.kind(), Kind::Bytea | Kind::Bits)
        };
        let with_such = self.entries.values().filter(|entry| entry.relation.columns.iter().any(longer));
        let mut names: Vec<String> = with_such.map(|entry| entry.wire.name.to_string()).collect();
        names.sort_unstable();
        names
    }

    /// Takes a Relation message in. It may come again at any time; an equal one changes nothing.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed until the catalogue has answered.
    pub(crate) async fn learn(&mut self, wire: WireRelation) -> Result<Learned, ConnectError> {
        let captured = self.is_captured(&wire).await?;
        if captured {
            self.learn_types(&wire).await?;
        }
        let hints = if captured { catalog::relation_hints(&self.sql, wire.oid).await? } else { None };
        let topic = if captured { self.topics.claim(&wire.name)? } else { String::new() };
        let relation = self.build(&wire, hints.as_ref(), topic);
        let learned = Learned {
            name: wire.name.clone(),
            captured,
            binary_is_known: relation.columns.iter().all(|column| column.column_type.binary_is_known()),
        };
        match self.entries.get_mut(&wire.oid) {
            // Keep the old version where nothing changed: caches hang on it.
            Some(entry)
                if entry.wire == wire
                    && entry.captured.is_some() == captured
                    && same(&entry.relation, &relation) => {}
            _ => {
                self.knowledge.keys.insert(wire.oid, key_names(&relation));
                let captured = captured.then(|| self.figures.table(&wire.name));
                let entry = Entry { captured, relation: Arc::new(relation), wire };
                self.entries.insert(entry.wire.oid, entry);
            }
        }
        Ok(learned)
    }

    async fn is_captured(&self, wire: &WireRelation) -> Result<bool, ConnectError> {
        if self.excluded.contains(&wire.name) {
            return Ok(false);
        }
        if self.is_listed(&wire.name) {
            return Ok(true);
        }
        // Whatever else comes was a partition or child of a listed table when it was written, also where it has been
        // detached or dropped since and the catalogue no longer knows.
        if self.only_listed_is_published {
            return Ok(true);
        }
        if let Some(ancestors) = catalog::ancestors(&self.sql, wire.oid).await? {
            return Ok(ancestors.iter().any(|ancestor| self.is_listed(ancestor)));
        }
        tracing::warn!(
            table = %wire.name,
            "changes of a table that was dropped since are left out: it is not listed, and whether it was a partition of \
             a listed table cannot be known any more"
        );
        Ok(false)
    }

    async fn learn_types(&mut self, wire: &WireRelation) -> Result<(), ConnectError> {
        let mut unknown: Vec<u32> = wire
            .columns
            .iter()
            .map(|column| column.type_oid)
            .filter(|oid| *oid >= FIRST_USER_OID && self.knowledge.types.get(*oid).is_none())
            .collect();
        unknown.sort_unstable();
        unknown.dedup();
        if unknown.is_empty() {
            return Ok(());
        }
        for entry in catalog::types(&self.sql, &unknown).await? {
            self.knowledge.types.insert(entry);
        }
        Ok(())
    }

    fn build(&self, wire: &WireRelation, hints: Option<&RelationHints>, topic: String) -> Relation {
        let key_columns: Vec<KeyColumn<'_>> = wire
            .columns
            .iter()
            .map(|column| KeyColumn { name: &column.name, in_identity: column.in_identity })
            .collect();
        let key = choose_key(
            &key_columns,
            wire.identity,
            KeyHints {
                primary_key: hints.map_or(&[], |hints| &hints.primary_key),
                unique_index: hints.map_or(&[], |hints| {
                    if hints.identity_index.is_empty() { &hints.unique_index } else { &hints.identity_index }
                }),
                table_exists: hints.is_some(),
                last: self.knowledge.keys.get(&wire.oid).map_or(&[], Vec::as_slice),
            },
        );
        let columns = wire
            .columns
            .iter()
            .map(|column| Column {
                name: column.name.clone(),
                type_oid: column.type_oid,
                typmod: column.typmod,
                in_identity: column.in_identity,
                // The catalogue speaks of now: it counts only where it speaks of the same column.
                not_null: hints
                    .and_then(|hints| hints.columns.get(&column.name))
                    .filter(|hint| hint.type_oid == column.type_oid)
                    .map(|hint| hint.not_null),
                column_type: ColumnType::resolve(column.type_oid, column.typmod, &self.knowledge.types),
            })
            .collect();
        Relation {
            oid: wire.oid,
            schema: wire.name.schema.clone(),
            table: wire.name.table.clone(),
            identity: wire.identity,
            columns,
            key,
            topic: Arc::from(topic),
            version: NEXT_VERSION.fetch_add(1, Ordering::Relaxed),
        }
    }
}

fn key_names(relation: &Relation) -> Vec<String> {
    relation
        .key
        .iter()
        .filter_map(|&index| relation.columns.get(index))
        .map(|column| column.name.clone())
        .collect()
}

/// Whether two descriptions made from equal Relation messages say the same.
fn same(a: &Relation, b: &Relation) -> bool {
    a.key == b.key
        && a.columns
            .iter()
            .zip(&b.columns)
            .all(|(a, b)| a.not_null == b.not_null && a.column_type == b.column_type)
}
