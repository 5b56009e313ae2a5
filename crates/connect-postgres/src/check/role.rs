//! Findings about the role: replication, reading tables, creating a publication.

use crabka_connect::ConnectError;
use tokio_postgres::types::Type;

use super::{CheckRequest, Facts, Finding, id};
use crate::catalog::{TableName, quote_identifier};
use crate::setup::expansion;
use crate::sql::{SqlConnection, column};

type Findings = Result<Vec<Finding>, ConnectError>;

pub(super) const IDS: &[&str] = &[id::ROLE_REPLICATION, id::ROLE_LIMITS];
pub(super) const TABLE_IDS: &[&str] = &[id::TABLE_SELECT, id::ROW_SECURITY];

/// Amazon's hosted servers give the right by membership instead of by the attribute.
const ATTRIBUTES: &str = "SELECT session_user::text AS role, r.rolsuper OR r.rolreplication \
        OR EXISTS (SELECT FROM pg_roles h WHERE h.rolname = 'rds_replication' \
            AND pg_has_role(r.oid, h.oid, 'MEMBER')) AS replication, \
    r.rolconnlimit AS connections_max, r.rolvaliduntil < now() + interval '7 days' AS expires, \
    r.rolvaliduntil::text AS valid_until \
    FROM pg_roles r WHERE r.rolname = session_user";

pub(super) async fn attributes(sql: &SqlConnection) -> Findings {
    let row = sql.query_one("reading the role", ATTRIBUTES, &[]).await?;
    let role: String = column(&row, "role")?;
    let quoted = quote_identifier(&role);
    let replication = if column(&row, "replication")? {
        Finding::ok(id::ROLE_REPLICATION, format!("role may open replication connections: {role}"))
    } else {
        Finding::error(id::ROLE_REPLICATION, format!("role may not open replication connections: {role}"))
            .mended_by(format!("ALTER ROLE {quoted} REPLICATION"))
    };
    let mut findings = vec![replication];
    let connections_max: i32 = column(&row, "connections_max")?;
    if (0..4).contains(&connections_max) {
        findings.push(
            Finding::warning(
                id::ROLE_LIMITS,
                format!(
                    "role may have fewer connections than stream, look-ups and check need: {connections_max}"
                ),
            )
            .about(&role)
            .mended_by(format!("ALTER ROLE {quoted} CONNECTION LIMIT 10")),
        );
    }
    if column::<Option<bool>>(&row, "expires")? == Some(true) {
        let until: String = column(&row, "valid_until")?;
        findings.push(
            Finding::warning(id::ROLE_LIMITS, format!("password of the role is valid only until {until}"))
                .about(&role)
                .mended_by(format!("ALTER ROLE {quoted} VALID UNTIL 'infinity'")),
        );
    }
    if findings.len() == 1 {
        findings.push(Finding::ok(id::ROLE_LIMITS, "no limit of the role cuts a long-lived session"));
    }
    Ok(findings)
}

/// SELECT on the table or on each of its columns, and USAGE on its schema.
const READS: &str = "SELECT n.nspname::text AS schema, c.relname::text AS name, \
    has_schema_privilege(n.oid, 'USAGE') AS usage, \
    has_table_privilege(c.oid, 'SELECT') OR NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid \
        AND a.attnum > 0 AND NOT a.attisdropped AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT')) AS reads, \
    row_security_active(c.oid) AS hidden \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY($1) ORDER BY 1, 2";

/// Whether the captured tables may be read by SQL. The stream itself needs no such right.
pub(super) async fn tables(sql: &SqlConnection, request: &CheckRequest<'_>, facts: &Facts) -> Findings {
    let role = quote_identifier(&facts.server()?.role);
    let captured = facts.captured()?;
    let oids: Vec<u32> = captured.tables.iter().map(|table| table.oid).collect();
    let (mut select, mut hidden) = (Vec::new(), Vec::new());
    for row in sql.query("reading rights on tables", READS, &[(&oids, Type::OID_ARRAY)]).await? {
        let table = TableName { schema: column(&row, "schema")?, table: column(&row, "name")? };
        let (usage, reads): (bool, bool) = (column(&row, "usage")?, column(&row, "reads")?);
        if !(usage && reads) {
            select.push(unreadable(request, &role, &table, usage, reads));
        } else if column(&row, "hidden")? {
            let message = "row-level security hides rows from this role: a snapshot would lack rows that the stream has";
            hidden.push(
                Finding::warning(id::ROW_SECURITY, message)
                    .about(&table)
                    .mended_by(format!("ALTER ROLE {role} BYPASSRLS, or a policy that shows it every row")),
            );
        }
    }
    if select.is_empty() {
        select.push(Finding::ok(id::TABLE_SELECT, format!("role may read the tables: {}", oids.len())));
    }
    if hidden.is_empty() {
        hidden.push(Finding::ok(id::ROW_SECURITY, "no row is hidden from the role"));
    }
    select.append(&mut hidden);
    Ok(select)
}

fn unreadable(
    request: &CheckRequest<'_>,
    role: &str,
    table: &TableName,
    usage: bool,
    reads: bool,
) -> Finding {
    let mut grants = Vec::new();
    if !usage {
        grants.push(format!("GRANT USAGE ON SCHEMA {} TO {role}", quote_identifier(&table.schema)));
    }
    if !reads {
        grants.push(format!("GRANT SELECT ON TABLE {} TO {role}", table.quoted()));
    }
    let finding = if request.reads_tables {
        Finding::error(id::TABLE_SELECT, "role may not read the table, which its snapshot needs")
    } else {
        Finding::warning(
            id::TABLE_SELECT,
            "role may not read the table: streaming works, a snapshot would not",
        )
    };
    finding.about(table).mended_by(grants.join("; "))
}

const OWNERSHIP: &str = "SELECT has_database_privilege(current_database(), 'CREATE') AS creates, \
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS super, \
    ARRAY(SELECT c.oid FROM pg_class c WHERE c.oid = ANY($1) \
        AND NOT pg_has_role(c.relowner, 'USAGE') ORDER BY 1) AS foreign_tables";

/// Whether a publication that is to be created can be.
pub(crate) async fn publication_rights(
    sql: &SqlConnection,
    request: &CheckRequest<'_>,
    facts: &Facts,
) -> Findings {
    let id = id::PUBLICATION_RIGHTS;
    if facts.publication()?.is_some() || !request.creates_publication {
        return Ok(vec![Finding::ok(id, "no publication is to be created")]);
    }
    let configured = facts.configured()?;
    let oids: Vec<u32> = configured.iter().map(|table| table.oid).collect();
    let row = sql.query_one("reading rights", OWNERSHIP, &[(&oids, Type::OID_ARRAY)]).await?;
    let superuser: bool = column(&row, "super")?;
    let mut findings = Vec::new();
    if let Some((_, fixed)) = expansion(&request.tables, configured, sql.version_num() / 10_000, superuser) {
        findings.push(fixed);
    }
    if superuser {
        findings.push(Finding::ok(id, "role may create the publication"));
        return Ok(findings);
    }
    let server = facts.server()?;
    let role = quote_identifier(&server.role);
    if !column::<bool>(&row, "creates")? {
        findings.push(
            Finding::error(
                id,
                format!("role may not create a publication in the database: {}", server.database),
            )
            .mended_by(format!("GRANT CREATE ON DATABASE {} TO {role}", quote_identifier(&server.database))),
        );
    }
    let foreign: Vec<u32> = column(&row, "foreign_tables")?;
    for table in configured.iter().filter(|table| foreign.contains(&table.oid)) {
        findings.push(
            Finding::error(id, "only the owner of a table may add it to a publication")
                .about(&table.name)
                .mended_by(format!("let its owner or a superuser create the publication, or make {role} a member of the owner")),
        );
    }
    if findings.iter().all(|finding| finding.id != id) {
        findings.push(Finding::ok(id, "role may create the publication"));
    }
    Ok(findings)
}
