//! What `tail` makes on a server is named by the session that makes it, so that the next `tail` on the database can tell
//! what one left behind that was killed: its session is gone, and nobody reads from a slot of that name.

use crabka_connect::ConnectError;
use crabka_connect_postgres::SqlConnection;
use crabka_connect_postgres::catalog::quote_identifier;

/// Begins the names: behind it stand process id and start (µs since 1970) of the server's process for the session.
pub(crate) const PREFIX: &str = "crabka_tail";

/// The name for this session.
const NAME: &str = "SELECT format('crabka_tail_%s_%s', pid, (extract(epoch FROM backend_start) * 1000000)::bigint) \
    FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid()";

/// Publications with such a name that this role may drop, whose session is gone and that have no slot. The start of
/// another role's session may be hidden: then its process id alone says that it lives.
const LEFT: &str = "SELECT p.pubname::text FROM pg_catalog.pg_publication p, \
    LATERAL regexp_match(p.pubname::text, '^crabka_tail_([0-9]{1,9})_([0-9]{15,17})$') AS made_by \
    WHERE made_by IS NOT NULL AND pg_catalog.pg_has_role(p.pubowner, 'USAGE') \
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots s WHERE s.slot_name::text = p.pubname::text) \
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a WHERE a.pid = made_by[1]::int \
        AND (a.backend_start IS NULL \
            OR (extract(epoch FROM a.backend_start) * 1000000)::bigint = made_by[2]::bigint))";

/// The name of what this session makes.
pub(super) async fn name_of_this_session(sql: &SqlConnection) -> Result<String, ConnectError> {
    let doing = "naming what is made for this session";
    let row = sql.query_one(doing, NAME, &[]).await?;
    row.try_get(0).map_err(|error| ConnectError::bug(doing).with_source(error))
}

/// Drops the publications that killed ones have left in this database. What cannot be dropped is told and stays: it
/// keeps nobody from looking.
pub(super) async fn remove(sql: &SqlConnection) {
    if let Err(error) = try_to_remove(sql).await {
        tracing::warn!(%error, "what an earlier tail has left cannot be removed");
    }
}

async fn try_to_remove(sql: &SqlConnection) -> Result<(), ConnectError> {
    for row in sql.query("looking for what an earlier tail has left", LEFT, &[]).await? {
        let doing = "dropping a publication that an earlier tail has left";
        let name: &str = row.try_get(0).map_err(|error| ConnectError::bug(doing).with_source(error))?;
        sql.simple(doing, &format!("DROP PUBLICATION IF EXISTS {}", quote_identifier(name))).await?;
        tracing::info!(publication = name, "dropped what a killed tail has left");
    }
    Ok(())
}
