//! Lists of tables: those a pattern names, the leaves of partitioned ones.

use crabka_connect::ConnectError;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::catalog::name::{TableName, TablePattern};
use crate::sql::{Parameter, SqlConnection, column};

/// A relation with what decides whether and under which name its changes are published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRow {
    /// Relation oid.
    pub oid: u32,
    /// Schema and name.
    pub name: TableName,
    /// `pg_class.relkind`: `r` table, `p` partitioned table; others (`v` view, `m` materialised view, `f` foreign
    /// table …) are never published.
    pub kind: char,
    /// `pg_class.relpersistence`: `p` permanent; `u` unlogged and `t` temporary are never published.
    pub persistence: char,
    /// Whether it is a partition; its ancestors are then partitioned tables.
    pub is_partition: bool,
    /// The tables that it is a partition or an inheritance child of, nearest first.
    pub ancestors: Vec<TableName>,
}

/// Oids below this are those of initdb: the server refuses to publish what has one, `information_schema` included.
const FIRST_NORMAL_OID: u32 = 16_384;

impl TableRow {
    /// Whether a publication can hold it.
    pub fn is_publishable(&self) -> bool {
        matches!(self.kind, 'r' | 'p') && self.persistence == 'p' && !self.is_of_the_system()
    }

    /// Whether it belongs to the server itself.
    pub fn is_of_the_system(&self) -> bool {
        self.oid < FIRST_NORMAL_OID
    }

    /// Whether it is a partitioned table; published, it stands for its partitions.
    pub fn is_partitioned(&self) -> bool {
        self.kind == 'p'
    }

    /// Whether one of the patterns covers it, or a table that it is a partition or an inheritance child of. No patterns
    /// cover every table.
    pub fn is_covered_by(&self, patterns: &[TablePattern]) -> bool {
        let covers = |name: &TableName| patterns.iter().any(|p| p.matches(&name.schema, &name.table));
        patterns.is_empty() || covers(&self.name) || self.ancestors.iter().any(covers)
    }
}

/// Begins a query whose rows [`rows`] reads.
pub(super) const SELECT: &str = "SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind, \
    c.relpersistence::text AS persistence, c.relispartition AS is_partition, \
    coalesce(up.schemas, '{}') AS ancestor_schemas, coalesce(up.tables, '{}') AS ancestor_tables \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    LEFT JOIN LATERAL (WITH RECURSIVE parent(oid, level) AS ( \
            SELECT i.inhparent, 1 FROM pg_inherits i WHERE i.inhrelid = c.oid \
            UNION SELECT i.inhparent, parent.level + 1 FROM parent JOIN pg_inherits i ON i.inhrelid = parent.oid) \
        SELECT array_agg(an.nspname::text ORDER BY parent.level, parent.oid) AS schemas, \
            array_agg(ac.relname::text ORDER BY parent.level, parent.oid) AS tables \
        FROM parent JOIN pg_class ac ON ac.oid = parent.oid JOIN pg_namespace an ON an.oid = ac.relnamespace \
        ) up ON c.relkind IN ('r', 'p', 'f') ";

/// The relations that a pattern names, by name, whether they can be published or not. Patterns that cover a schema
/// or everything give tables only, those of the system left out. No patterns cover everything.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn tables_matching(
    sql: &SqlConnection,
    patterns: &[TablePattern],
) -> Result<Vec<TableRow>, ConnectError> {
    let mut all = patterns.is_empty();
    let (mut schemas, mut in_schemas, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for pattern in patterns {
        match pattern {
            TablePattern::All => all = true,
            TablePattern::Schema(schema) => schemas.push(schema.as_str()),
            TablePattern::Table(name) => {
                in_schemas.push(name.schema.as_str());
                names.push(name.table.as_str());
            }
        }
    }
    let query = format!(
        "{SELECT} WHERE (c.relkind IN ('r', 'p') AND (n.nspname = ANY($2) OR $1 AND n.nspname !~ '^pg_' \
         AND n.nspname <> 'information_schema')) OR c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND EXISTS \
         (SELECT FROM unnest($3::text[], $4::text[]) w(schema, name) \
         WHERE w.schema = n.nspname AND w.name = c.relname) ORDER BY 2, 3"
    );
    let parameters: [Parameter<'_>; 4] = [
        (&all, Type::BOOL),
        (&schemas, Type::TEXT_ARRAY),
        (&in_schemas, Type::TEXT_ARRAY),
        (&names, Type::TEXT_ARRAY),
    ];
    rows(sql, "reading the configured tables", &query, &parameters).await
}

/// The partitions without partitions of their own of these partitioned tables, by name.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn leaf_partitions(sql: &SqlConnection, oids: &[u32]) -> Result<Vec<TableRow>, ConnectError> {
    if oids.is_empty() {
        return Ok(Vec::new());
    }
    let query = format!(
        "{SELECT} WHERE c.oid IN (SELECT t.relid FROM unnest($1::oid[]) root(oid), \
         LATERAL pg_partition_tree(root.oid) t WHERE t.isleaf AND t.level > 0) ORDER BY 2, 3"
    );
    rows(sql, "reading partitions", &query, &[(&oids, Type::OID_ARRAY)]).await
}

pub(super) async fn rows(
    sql: &SqlConnection,
    doing: &str,
    query: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<TableRow>, ConnectError> {
    sql.query(doing, query, parameters).await?.iter().map(table_row).collect()
}

fn table_row(row: &Row) -> Result<TableRow, ConnectError> {
    let character = |name| Ok::<_, ConnectError>(column::<String>(row, name)?.chars().next().unwrap_or(' '));
    let schemas: Vec<String> = column(row, "ancestor_schemas")?;
    let tables: Vec<String> = column(row, "ancestor_tables")?;
    let ancestors = schemas.into_iter().zip(tables).map(|(schema, table)| TableName { schema, table });
    Ok(TableRow {
        oid: column(row, "oid")?,
        name: TableName { schema: column(row, "schema")?, table: column(row, "name")? },
        kind: character("kind")?,
        persistence: character("persistence")?,
        is_partition: column(row, "is_partition")?,
        ancestors: ancestors.collect(),
    })
}
