//! Tables as the catalogue knows them: keys in key order, replica identity, nullability.
//!
//! <https://www.postgresql.org/docs/18/catalog-pg-index.html>,
//! <https://www.postgresql.org/docs/18/sql-altertable.html#SQL-ALTERTABLE-REPLICA-IDENTITY>.

use std::collections::HashMap;

use crabka_connect::ConnectError;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::catalog::name::TableName;
use crate::relation::ReplicaIdentity;
use crate::sql::{SqlConnection, column};

/// What the catalogue says now of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnHint {
    /// Type oid.
    pub type_oid: u32,
    /// Type modifier; -1 when there is none.
    pub typmod: i32,
    /// Whether a valid NOT NULL holds for the column.
    pub not_null: bool,
    /// Whether it is generated (`s` stored, `v` virtual).
    pub generated: Option<char>,
}

/// What the catalogue says now of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationHints {
    /// Relation oid.
    pub oid: u32,
    /// Schema and name.
    pub name: TableName,
    /// `pg_class.relkind`: `r` table, `p` partitioned table, others are no tables.
    pub kind: char,
    /// `pg_class.relpersistence`: `p` permanent, `u` unlogged, `t` temporary.
    pub persistence: char,
    /// Whether it is a partition.
    pub is_partition: bool,
    /// Replica identity as set; whether it gives any column is told by [`identity`](Self::identity).
    pub replica_identity: ReplicaIdentity,
    /// Columns of the primary key, in key order; empty when there is none.
    pub primary_key: Vec<String>,
    /// Whether the primary key is deferrable: it is then no replica identity.
    pub primary_key_deferrable: bool,
    /// Key columns of the index that REPLICA IDENTITY USING INDEX names, in key order; empty when there is none.
    pub identity_index: Vec<String>,
    /// Key columns of the first unique index by name that is valid, immediate, complete, over plain columns that are
    /// all NOT NULL; empty when there is none.
    pub unique_index: Vec<String>,
    /// Columns by name.
    pub columns: HashMap<String, ColumnHint>,
}

impl RelationHints {
    /// The columns that identify a row of a key: the primary key, else the replica identity's index, else a unique
    /// index. Empty for a key-less table.
    pub fn key(&self) -> &[String] {
        [&self.primary_key, &self.identity_index, &self.unique_index]
            .into_iter()
            .find(|columns| !columns.is_empty())
            .map_or(&[], Vec::as_slice)
    }

    /// The columns whose old values the server logs for an update of them and for a delete, or `None` when there
    /// are none: it then rejects both in a publication that publishes them. Under FULL: all columns.
    pub fn identity(&self) -> Option<Vec<&str>> {
        let columns: &[String] = match self.replica_identity {
            ReplicaIdentity::Full => return Some(self.columns.keys().map(String::as_str).collect()),
            ReplicaIdentity::Nothing => &[],
            ReplicaIdentity::Default if self.primary_key_deferrable => &[],
            ReplicaIdentity::Default => &self.primary_key,
            ReplicaIdentity::Index => &self.identity_index,
        };
        (!columns.is_empty()).then(|| columns.iter().map(String::as_str).collect())
    }
}

const RELATIONS: &str = "SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, \
    c.relkind::text AS kind, c.relpersistence::text AS persistence, c.relispartition AS is_partition, \
    c.relreplident::text AS identity \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY($1)";

/// From 18 on a NOT NULL may be declared and not yet be valid.
const COLUMNS: &str = "SELECT a.attrelid AS relation, a.attname::text AS name, a.atttypid AS type_oid, \
    a.atttypmod AS typmod, a.attgenerated::text AS generated, \
    a.attnotnull AND NOT EXISTS (SELECT FROM pg_constraint n WHERE n.conrelid = a.attrelid \
        AND n.contype = 'n' AND NOT n.convalidated AND n.conkey = ARRAY[a.attnum]) AS not_null \
    FROM pg_attribute a WHERE a.attrelid = ANY($1) AND a.attnum > 0 AND NOT a.attisdropped";

const INDEXES: &str = "SELECT i.indrelid AS relation, i.indisprimary AS is_primary, \
    i.indisreplident AS is_identity, NOT i.indimmediate AS deferrable, \
    i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AS complete, \
    ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place) \
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum \
        WHERE k.place <= i.indnkeyatts ORDER BY k.place) AS columns \
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
    WHERE i.indrelid = ANY($1) AND i.indisunique AND i.indislive ORDER BY c.relname";

/// What the catalogue says of one table; `None` when there is no relation of that oid any more.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn relation_hints(sql: &SqlConnection, oid: u32) -> Result<Option<RelationHints>, ConnectError> {
    Ok(relations(sql, &[oid]).await?.remove(&oid))
}

/// What the catalogue says of several tables, by oid. Three statements, however many tables.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn relations(
    sql: &SqlConnection,
    oids: &[u32],
) -> Result<HashMap<u32, RelationHints>, ConnectError> {
    let parameters = [(&oids as &(dyn tokio_postgres::types::ToSql + Sync), Type::OID_ARRAY)];
    let mut relations = HashMap::with_capacity(oids.len());
    for row in sql.query("reading tables", RELATIONS, &parameters).await? {
        let hints = relation(&row)?;
        relations.insert(hints.oid, hints);
    }
    for row in sql.query("reading columns", COLUMNS, &parameters).await? {
        if let Some(hints) = relations.get_mut(&column(&row, "relation")?) {
            hints.columns.insert(column(&row, "name")?, column_hint(&row)?);
        }
    }
    for row in sql.query("reading indexes", INDEXES, &parameters).await? {
        if let Some(hints) = relations.get_mut(&column(&row, "relation")?) {
            add_index(hints, &row)?;
        }
    }
    Ok(relations)
}

fn relation(row: &Row) -> Result<RelationHints, ConnectError> {
    let character = |name| Ok::<_, ConnectError>(column::<String>(row, name)?.chars().next().unwrap_or(' '));
    Ok(RelationHints {
        oid: column(row, "oid")?,
        name: TableName { schema: column(row, "schema")?, table: column(row, "name")? },
        kind: character("kind")?,
        persistence: character("persistence")?,
        is_partition: column(row, "is_partition")?,
        replica_identity: match character("identity")? {
            'f' => ReplicaIdentity::Full,
            'n' => ReplicaIdentity::Nothing,
            'i' => ReplicaIdentity::Index,
            _ => ReplicaIdentity::Default,
        },
        primary_key: Vec::new(),
        primary_key_deferrable: false,
        identity_index: Vec::new(),
        unique_index: Vec::new(),
        columns: HashMap::new(),
    })
}

fn column_hint(row: &Row) -> Result<ColumnHint, ConnectError> {
    Ok(ColumnHint {
        type_oid: column(row, "type_oid")?,
        typmod: column(row, "typmod")?,
        not_null: column(row, "not_null")?,
        generated: column::<String>(row, "generated")?.chars().next(),
    })
}

fn add_index(hints: &mut RelationHints, row: &Row) -> Result<(), ConnectError> {
    let columns: Vec<String> = column(row, "columns")?;
    if column(row, "is_identity")? && hints.replica_identity == ReplicaIdentity::Index {
        hints.identity_index.clone_from(&columns);
    }
    if column(row, "is_primary")? {
        hints.primary_key = columns;
        hints.primary_key_deferrable = column(row, "deferrable")?;
        return Ok(());
    }
    let not_null = columns.iter().all(|name| hints.columns.get(name).is_some_and(|column| column.not_null));
    if hints.unique_index.is_empty() && column(row, "complete")? && not_null {
        hints.unique_index = columns;
    }
    Ok(())
}

/// The tables that a table is a partition or an inheritance child of, on every level; `None` when there is no
/// relation of that oid any more.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn ancestors(sql: &SqlConnection, oid: u32) -> Result<Option<Vec<TableName>>, ConnectError> {
    let query = "WITH RECURSIVE up AS (\
        SELECT c.oid, 0 AS level FROM pg_class c WHERE c.oid = $1 \
        UNION SELECT i.inhparent, up.level + 1 FROM up JOIN pg_inherits i ON i.inhrelid = up.oid) \
        SELECT n.nspname::text AS schema, c.relname::text AS name, up.level \
        FROM up JOIN pg_class c ON c.oid = up.oid JOIN pg_namespace n ON n.oid = c.relnamespace";
    let rows = sql.query("reading the parents of a table", query, &[(&oid, Type::OID)]).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut parents = Vec::new();
    for row in &rows {
        if column::<i32>(row, "level")? > 0 {
            parents.push(TableName { schema: column(row, "schema")?, table: column(row, "name")? });
        }
    }
    Ok(Some(parents))
}
