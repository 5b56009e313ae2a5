//! Publications: what they publish, and of which tables.
//!
//! <https://www.postgresql.org/docs/18/sql-createpublication.html>.

use crabka_connect::ConnectError;
use tokio_postgres::types::Type;

use crate::catalog::name::TableName;
use crate::sql::{SqlConnection, column};

/// A table that a publication names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationTable {
    /// Relation oid.
    pub oid: u32,
    /// The table.
    pub name: TableName,
    /// The column list, if there is one (15 and later).
    pub columns: Option<Vec<String>>,
    /// The row filter, if there is one (15 and later).
    pub row_filter: Option<String>,
}

/// A publication as it was declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationRow {
    /// Name.
    pub name: String,
    /// Owner.
    pub owner: String,
    /// FOR ALL TABLES.
    pub all_tables: bool,
    /// Publishes INSERT.
    pub insert: bool,
    /// Publishes UPDATE.
    pub update: bool,
    /// Publishes DELETE.
    pub delete: bool,
    /// Publishes TRUNCATE.
    pub truncate: bool,
    /// Changes of partitions come under the root's name.
    pub via_root: bool,
    /// Whether stored generated columns are published (18 and later).
    pub generated_columns: bool,
    /// The tables that it names itself, by name.
    pub tables: Vec<PublicationTable>,
    /// The schemas it names (15 and later), by name.
    pub schemas: Vec<String>,
}

const PUBLICATION: &str = "SELECT p.oid, p.pubname::text AS name, pg_get_userbyid(p.pubowner)::text AS owner, \
    p.puballtables, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot, \
    coalesce(to_jsonb(p) ->> 'pubgencols' = 's', false) AS generated_columns \
    FROM pg_publication p WHERE p.pubname = $1";

const TABLES_14: &str = "SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, \
    NULL::text[] AS columns, NULL::text AS row_filter";

const TABLES_15: &str = "SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, \
    CASE WHEN r.prattrs IS NOT NULL THEN ARRAY(SELECT a.attname::text FROM unnest(r.prattrs::int2[]) k(attnum) \
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum ORDER BY a.attnum) END AS columns, \
    pg_get_expr(r.prqual, r.prrelid) AS row_filter";

const FROM_TABLES: &str = " FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid \
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE r.prpubid = $1 ORDER BY 2, 3";

const SCHEMAS: &str = "SELECT n.nspname::text AS schema FROM pg_publication_namespace p \
    JOIN pg_namespace n ON n.oid = p.pnnspid WHERE p.pnpubid = $1 ORDER BY 1";

/// The publication of that name; `None` when there is none.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn publication(sql: &SqlConnection, name: &str) -> Result<Option<PublicationRow>, ConnectError> {
    let doing = "reading the publication";
    let rows = sql.query(doing, PUBLICATION, &[(&name, Type::TEXT)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let oid: u32 = column(row, "oid")?;

    let select = if sql.is_at_least(15) { TABLES_15 } else { TABLES_14 };
    let mut tables = Vec::new();
    for row in sql.query(doing, &format!("{select}{FROM_TABLES}"), &[(&oid, Type::OID)]).await? {
        tables.push(PublicationTable {
            oid: column(&row, "oid")?,
            name: TableName { schema: column(&row, "schema")?, table: column(&row, "name")? },
            columns: column(&row, "columns")?,
            row_filter: column(&row, "row_filter")?,
        });
    }
    let mut schemas = Vec::new();
    if sql.is_at_least(15) {
        for row in sql.query(doing, SCHEMAS, &[(&oid, Type::OID)]).await? {
            schemas.push(column(&row, "schema")?);
        }
    }
    Ok(Some(PublicationRow {
        name: column(row, "name")?,
        owner: column(row, "owner")?,
        all_tables: column(row, "puballtables")?,
        insert: column(row, "pubinsert")?,
        update: column(row, "pubupdate")?,
        delete: column(row, "pubdelete")?,
        truncate: column(row, "pubtruncate")?,
        via_root: column(row, "pubviaroot")?,
        generated_columns: column(row, "generated_columns")?,
        tables,
        schemas,
    }))
}
