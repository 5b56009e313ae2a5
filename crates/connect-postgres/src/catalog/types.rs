//! Types by oid, with everything they are made of.
//!
//! <https://www.postgresql.org/docs/18/catalog-pg-type.html>.

use crabka_connect::ConnectError;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::sql::{SqlConnection, column};
use crate::types::{TypeEntry, TypeKind};

/// An array is a type that its element names as its array: `point`, `int2vector` and others have an element too, but
/// another text form.
const TYPES: &str = "WITH RECURSIVE needed(oid) AS ( \
        SELECT unnest($1::oid[]) \
        UNION \
        SELECT part.oid FROM needed \
        JOIN pg_type t ON t.oid = needed.oid \
        LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid \
        LEFT JOIN pg_range r ON r.rngtypid = t.oid \
        LEFT JOIN pg_range m ON m.rngmultitypid = t.oid \
        CROSS JOIN LATERAL (VALUES (e.oid), (t.typbasetype), (r.rngsubtype), (m.rngtypid)) part(oid) \
        WHERE part.oid <> 0) \
    SELECT t.oid, n.nspname::text AS schema, t.typname::text AS name, t.typtype::text AS kind, \
        e.oid AS element, e.typdelim::text AS delimiter, t.typbasetype AS base, t.typtypmod AS typmod, r.rngsubtype AS subtype, \
        m.rngtypid AS range, x.extname::text AS extension, \
        ARRAY(SELECT l.enumlabel::text FROM pg_enum l WHERE l.enumtypid = t.oid ORDER BY l.enumsortorder) AS labels \
    FROM needed JOIN pg_type t ON t.oid = needed.oid JOIN pg_namespace n ON n.oid = t.typnamespace \
    LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid \
    LEFT JOIN pg_range r ON r.rngtypid = t.oid LEFT JOIN pg_range m ON m.rngmultitypid = t.oid \
    LEFT JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.objsubid = 0 \
        AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' \
    LEFT JOIN pg_extension x ON x.oid = d.refobjid \
    ORDER BY t.oid";

/// The entries of these types and, transitively, of their elements, base types, bounds and ranges. An oid that the
/// catalogue does not have (any more) gives no entry.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn types(sql: &SqlConnection, oids: &[u32]) -> Result<Vec<TypeEntry>, ConnectError> {
    let rows = sql.query("reading types", TYPES, &[(&oids, Type::OID_ARRAY)]).await?;
    rows.iter().map(type_entry).collect()
}

fn type_entry(row: &Row) -> Result<TypeEntry, ConnectError> {
    let kind: String = column(row, "kind")?;
    let element: Option<u32> = column(row, "element")?;
    let part = |name| column::<Option<u32>>(row, name).map(Option::unwrap_or_default);
    let kind = match (kind.as_str(), element) {
        ("b", Some(element)) => TypeKind::Array { element, delimiter: delimiter(row)? },
        ("b", None) => TypeKind::Base,
        ("d", _) => TypeKind::Domain { base: part("base")?, typmod: column(row, "typmod")? },
        ("e", _) => TypeKind::Enum { labels: column(row, "labels")? },
        ("c", _) => TypeKind::Composite,
        ("r", _) => TypeKind::Range { subtype: part("subtype")? },
        ("m", _) => TypeKind::Multirange { range: part("range")? },
        _ => TypeKind::Other,
    };
    Ok(TypeEntry {
        oid: column(row, "oid")?,
        schema: column(row, "schema")?,
        name: column(row, "name")?,
        kind,
        extension: column(row, "extension")?,
    })
}

/// `typdelim` of the element type: one byte, a comma for nearly every type.
fn delimiter(row: &Row) -> Result<u8, ConnectError> {
    let delimiter: Option<String> = column(row, "delimiter")?;
    Ok(delimiter.and_then(|text| text.bytes().next()).unwrap_or(b','))
}
