//! The publication: planned from what is configured, created under a lock time-out that names who holds the lock.
//!
//! <https://www.postgresql.org/docs/18/sql-createpublication.html>.

use crabka_connect::ConnectError;
use tokio_postgres::types::Type;

use super::{Plan, SetupRequest, Statement, Step};
use crate::catalog::{TablePattern, TableRow, quote_identifier};
use crate::check::{self, Facts, Finding, Severity, id};
use crate::sql::{SqlConnection, column};

/// The statement that creates a publication of these tables; none means every table.
pub(crate) fn create_publication_sql(name: &str, tables: &[TablePattern], via_root: bool) -> String {
    let via_root = if via_root { ", publish_via_partition_root = true" } else { "" };
    format!(
        "CREATE PUBLICATION {} FOR {} WITH (publish = 'insert, update, delete, truncate'{via_root})",
        quote_identifier(name),
        objects(tables)
    )
}

fn objects(tables: &[TablePattern]) -> String {
    if tables.is_empty() || tables.contains(&TablePattern::All) {
        return "ALL TABLES".to_owned();
    }
    let mut named: Vec<String> = Vec::new();
    let mut schemas: Vec<String> = Vec::new();
    for pattern in tables {
        let (list, name) = match pattern {
            TablePattern::Table(name) => (&mut named, name.quoted()),
            TablePattern::Schema(schema) => (&mut schemas, quote_identifier(schema)),
            TablePattern::All => continue,
        };
        if !list.contains(&name) {
            list.push(name);
        }
    }
    let named = (!named.is_empty()).then(|| format!("TABLE {}", named.join(", ")));
    let schemas = (!schemas.is_empty()).then(|| format!("TABLES IN SCHEMA {}", schemas.join(", ")));
    [named, schemas].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The tables a new publication has to name one by one because the role or the server cannot say "all of them", and
/// the finding about it; `None` when the patterns can be used as they are.
pub(crate) fn expansion(
    patterns: &[TablePattern],
    configured: &[TableRow],
    major: u32,
    superuser: bool,
) -> Option<(Vec<TablePattern>, Finding)> {
    let all = patterns.is_empty() || patterns.contains(&TablePattern::All);
    let schemas = patterns.iter().any(|pattern| matches!(pattern, TablePattern::Schema(_)));
    let why = match (all, schemas) {
        (true, _) if !superuser => "only a superuser may publish all tables",
        (false, true) if major < 15 => "PostgreSQL 14 cannot publish a schema",
        (false, true) if !superuser => "only a superuser may publish a schema",
        _ => return None,
    };
    let publishable: Vec<&TableRow> = configured.iter().filter(|table| table.is_publishable()).collect();
    // A table brings its partitions and its inheritance children.
    let stands_alone = |table: &TableRow| {
        !table.ancestors.iter().any(|root| publishable.iter().any(|other| other.name == *root))
    };
    let named = publishable
        .iter()
        .filter(|table| stands_alone(table))
        .map(|table| TablePattern::Table(table.name.clone()))
        .collect();
    let message =
        format!("publication will name the present tables, later ones do not join by themselves: {why}");
    let finding = Finding::warning(id::PUBLICATION_FIXED_TABLES, message).mended_by(
        "let a superuser create the publication, or ALTER PUBLICATION … ADD TABLE for each new table",
    );
    Some((named, finding))
}

/// Adds what is missing, or how what exists differs.
pub(super) async fn plan(
    sql: &SqlConnection,
    request: &SetupRequest,
    facts: &Facts,
    plan: &mut Plan,
) -> Result<(), ConnectError> {
    let as_check = request.as_check();
    plan.findings.extend(check::publication_tables(&as_check, facts)?);
    plan.findings.extend(check::publication_existence(&as_check, facts)?);
    let refused = check::identity_findings(facts.captured()?, facts.publication()?);
    let keeps_us = facts.publication()?.is_none() && !request.allow_refused_updates;
    plan.findings
        .extend(refused.into_iter().map(|finding| if keeps_us { refusal(finding) } else { finding }));
    if facts.publication()?.is_some() {
        plan.findings.extend(check::publication_operations(facts)?);
        return Ok(());
    }
    // Tells of the expansion below too.
    plan.findings.extend(check::publication_rights(sql, &as_check, facts).await?);
    let row = sql
        .query_one(
            "reading the role",
            "SELECT rolsuper AS super FROM pg_roles WHERE rolname = current_user",
            &[],
        )
        .await?;
    let configured = facts.configured()?;
    let expanded = expansion(&request.tables, configured, sql.version_num() / 10_000, column(&row, "super")?);
    let tables = expanded.as_ref().map_or(&request.tables, |(tables, _)| tables);
    if tables.is_empty() && expanded.is_some() {
        plan.findings.push(
            Finding::error(id::TABLE_MISSING, "there is no table to publish")
                .mended_by("create a table first"),
        );
        return Ok(());
    }
    plan.steps.push(Step {
        description: format!("create the publication {}", request.publication),
        statement: Statement::Sql(create_publication_sql(&request.publication, tables, request.via_root)),
    });
    plan.tables = configured.iter().map(|table| table.oid).collect();
    Ok(())
}

/// A publication that makes the application's statements fail is not made unasked.
fn refusal(finding: Finding) -> Finding {
    let asked = "set source.allow_refused_updates = true for tables that are only inserted into";
    let fix = match &finding.fix {
        Some(fix) => format!("{fix}; or {asked}"),
        None => asked.to_owned(),
    };
    Finding { severity: Severity::Error, ..finding.mended_by(fix) }
}

/// Creates the publication; `false` when somebody else was faster.
pub(super) async fn create(
    sql: &SqlConnection,
    name: &str,
    statement: &str,
    tables: &[u32],
) -> Result<bool, ConnectError> {
    let doing = format!("creating the publication {name}");
    match sql.simple(&doing, statement).await {
        Ok(_) => {
            tracing::info!(publication = name, "publication created");
            Ok(true)
        }
        Err(error) if error.sqlstate() == Some("42710") => {
            tracing::info!(publication = name, "publication was created meanwhile, used as it is");
            Ok(false)
        }
        Err(error) if error.sqlstate() == Some("55P03") => {
            let holders = lock_holders(sql, tables).await?;
            Err(error
                .context(format!("waited for a table lock held by {holders}"))
                .with_fix("run it again when those have ended, or end them with pg_terminate_backend(pid)"))
        }
        Err(error) => Err(error),
    }
}

/// The locks that conflict with the one of adding a table to a publication (SHARE UPDATE EXCLUSIVE).
const LOCK_HOLDERS: &str = "SELECT string_agg(format('[pid %s, user %s, %s on %s]', l.pid, \
        coalesce(a.usename::text, 'unknown'), l.mode, l.relation::regclass), ' ') AS holders \
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
    WHERE l.locktype = 'relation' AND l.relation = ANY($1) AND l.granted AND l.pid <> pg_backend_pid() \
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
    AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', \
        'AccessExclusiveLock')";

async fn lock_holders(sql: &SqlConnection, tables: &[u32]) -> Result<String, ConnectError> {
    let row = sql.query_one("reading table locks", LOCK_HOLDERS, &[(&tables, Type::OID_ARRAY)]).await?;
    let holders: Option<String> = column(&row, "holders")?;
    Ok(holders.unwrap_or_else(|| "a session that has ended meanwhile".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::TableName;

    fn patterns(texts: &[&str]) -> Vec<TablePattern> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn any_name_survives_in_the_statement() {
        let tables = patterns(&[r#""We""ird.Näme"."a'b;--""#, "public.orders", "public.orders"]);
        assert_eq!(
            create_publication_sql(r#"We"ird.Näme"#, &tables, false),
            r#"CREATE PUBLICATION "We""ird.Näme" FOR TABLE "We""ird.Näme"."a'b;--", "public"."orders" WITH (publish = 'insert, update, delete, truncate')"#
        );
    }

    #[test]
    fn schemas_and_everything_have_their_own_forms() {
        let sql = |texts: &[&str]| create_publication_sql("p", &patterns(texts), true);
        let options =
            "WITH (publish = 'insert, update, delete, truncate', publish_via_partition_root = true)";
        assert_eq!(sql(&[]), format!("CREATE PUBLICATION \"p\" FOR ALL TABLES {options}"));
        assert_eq!(sql(&["a.b", "*.*"]), format!("CREATE PUBLICATION \"p\" FOR ALL TABLES {options}"));
        assert_eq!(
            sql(&["app.*", "a.b"]),
            format!("CREATE PUBLICATION \"p\" FOR TABLE \"a\".\"b\", TABLES IN SCHEMA \"app\" {options}")
        );
    }

    #[test]
    fn what_the_role_or_the_version_cannot_say_is_named_table_by_table() {
        let name = |table: &str| TableName { schema: "app".into(), table: table.into() };
        let row = |oid, table, kind, ancestors: &[&str]| TableRow {
            oid,
            name: name(table),
            kind,
            persistence: 'p',
            is_partition: !ancestors.is_empty(),
            ancestors: ancestors.iter().map(|table| name(table)).collect(),
        };
        let configured = [
            row(20_001, "root", 'p', &[]),
            row(20_002, "leaf", 'r', &["root"]),
            row(20_003, "t", 'r', &[]),
            row(20_004, "v", 'v', &[]),
        ];
        let all = patterns(&["app.*"]);
        assert!(expansion(&all, &configured, 15, true).is_none());
        assert!(expansion(&[], &configured, 14, true).is_none());
        assert!(expansion(&patterns(&["app.t"]), &configured, 14, false).is_none());
        for (patterns, major, superuser) in [(&all, 14, true), (&all, 15, false), (&Vec::new(), 18, false)] {
            let (tables, _) = expansion(patterns, &configured, major, superuser).unwrap();
            assert_eq!(tables, [TablePattern::Table(name("root")), TablePattern::Table(name("t"))]);
        }
    }
}
