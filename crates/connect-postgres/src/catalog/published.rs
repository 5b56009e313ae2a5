//! The tables that a publication sends now: all of them, or those of them that a start has to know. A database may have
//! tens of thousands, so what a start asks is answered by the server with the few that matter.
//!
//! <https://www.postgresql.org/docs/18/view-pg-publication-tables.html>.

use crabka_connect::ConnectError;
use tokio_postgres::types::Type;

use crate::catalog::name::TableName;
use crate::catalog::tables::{SELECT, TableRow, rows};
use crate::sql::{Parameter, SqlConnection, column};

/// The tables whose changes a publication sends now, by name: those it names, those of a schema it names, partitions.
/// Where it publishes via the root, the root stands for its partitions. Empty when the publication does not exist.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn published_tables(sql: &SqlConnection, publication: &str) -> Result<Vec<TableRow>, ConnectError> {
    let query = format!(
        "{SELECT} JOIN pg_publication_tables t ON t.schemaname = n.nspname AND t.tablename = c.relname \
         WHERE t.pubname = $1 ORDER BY 2, 3"
    );
    rows(sql, "reading the published tables", &query, &[(&publication, Type::TEXT)]).await
}

/// The published tables whose topic may be that of another one, or one of `reserved`, by name. More than really share
/// one: every run of characters that a topic cannot have counts as one underscore.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn published_with_equal_topics(
    sql: &SqlConnection,
    publication: &str,
    prefix: &str,
    reserved: &[String],
) -> Result<Vec<TableName>, ConnectError> {
    let query = "WITH named AS (SELECT t.schemaname::text AS schema, t.tablename::text AS name, \
            regexp_replace(($2 || '.' || t.schemaname || '.' || t.tablename) COLLATE \"C\", '[^a-zA-Z0-9.-]+', '_', 'g') \
            AS topic FROM pg_publication_tables t WHERE t.pubname = $1), \
        counted AS (SELECT *, count(*) OVER (PARTITION BY topic) AS sharing FROM named) \
        SELECT schema, name FROM counted WHERE sharing > 1 OR topic IN (\
            SELECT regexp_replace(r COLLATE \"C\", '[^a-zA-Z0-9.-]+', '_', 'g') FROM unnest($3::text[]) r) ORDER BY 1, 2";
    let parameters: [Parameter<'_>; 3] =
        [(&publication, Type::TEXT), (&prefix, Type::TEXT), (&reserved, Type::TEXT_ARRAY)];
    names(sql, "reading the published tables that share a topic", query, &parameters).await
}

/// Those of `tables` that the publication does not send: neither by that name, nor anything that is a partition or an
/// inheritance child of it.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn not_published(
    sql: &SqlConnection,
    publication: &str,
    tables: &[&TableName],
) -> Result<Vec<TableName>, ConnectError> {
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let schemas: Vec<&str> = tables.iter().map(|table| table.schema.as_str()).collect();
    let in_them: Vec<&str> = tables.iter().map(|table| table.table.as_str()).collect();
    let query = "WITH RECURSIVE published AS MATERIALIZED (SELECT c.oid FROM pg_publication_tables t \
            JOIN pg_namespace n ON n.nspname = t.schemaname \
            JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename WHERE t.pubname = $1), \
        wanted AS (SELECT w.schema, w.name, c.oid FROM unnest($2::text[], $3::text[]) w(schema, name) \
            LEFT JOIN pg_namespace n ON n.nspname = w.schema \
            LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name), \
        family(root, oid) AS (SELECT oid, oid FROM wanted WHERE oid IS NOT NULL \
            UNION SELECT f.root, i.inhrelid FROM family f JOIN pg_inherits i ON i.inhparent = f.oid) \
        SELECT w.schema, w.name FROM wanted w WHERE NOT EXISTS (\
            SELECT FROM family f JOIN published p ON p.oid = f.oid WHERE f.root = w.oid) ORDER BY 1, 2";
    let parameters: [Parameter<'_>; 3] =
        [(&publication, Type::TEXT), (&schemas, Type::TEXT_ARRAY), (&in_them, Type::TEXT_ARRAY)];
    names(sql, "looking for the configured tables in the publication", query, &parameters).await
}

/// The published tables under REPLICA IDENTITY USING INDEX whose index lacks a column of the primary key, by name.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn keys_outside_identities(
    sql: &SqlConnection,
    publication: &str,
) -> Result<Vec<TableRow>, ConnectError> {
    let query = format!(
        "{SELECT} JOIN pg_publication_tables t ON t.schemaname = n.nspname AND t.tablename = c.relname \
         JOIN pg_index k ON k.indrelid = c.oid AND k.indisprimary \
         JOIN pg_index i ON i.indrelid = c.oid AND i.indisreplident \
         WHERE t.pubname = $1 AND c.relreplident = 'i' \
         AND NOT (k.indkey::int2[])[0:k.indnkeyatts - 1] <@ (i.indkey::int2[])[0:i.indnkeyatts - 1] ORDER BY 2, 3"
    );
    rows(sql, "looking for keys outside of replica identities", &query, &[(&publication, Type::TEXT)]).await
}

async fn names(
    sql: &SqlConnection,
    doing: &str,
    query: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<TableName>, ConnectError> {
    let rows = sql.query(doing, query, parameters).await?;
    rows.iter()
        .map(|row| Ok(TableName { schema: column(row, "schema")?, table: column(row, "name")? }))
        .collect()
}
