//! What replication slots cost: the WAL each of them keeps on the server, and who reads it.
//!
//! <https://www.postgresql.org/docs/18/view-pg-replication-slots.html>.

use crabka_connect::ConnectError;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::slot::{SlotHolder, SlotRow, columns_of, holder, slot_row};
use super::transactions::{Blocker, transactions_with_xid};
use crate::sql::{Parameter, SqlConnection, column};

/// A slot with what it costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotState {
    /// Its row.
    pub slot: SlotRow,
    /// Who reads it now.
    pub holder: Option<SlotHolder>,
    /// Bytes of WAL between the oldest that it keeps and the newest there is; `None` for a slot that keeps none.
    pub retained_bytes: Option<i64>,
    /// Since when nobody reads it, in UTC as of ISO 8601 (17 and later).
    pub inactive_since: Option<String>,
}

/// Every slot of the server, of whatever database and kind, by name.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn slots(sql: &SqlConnection) -> Result<Vec<SlotState>, ConnectError> {
    read(sql, "true", &[]).await
}

/// The slot of that name; `None` when there is none.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn slot_state(sql: &SqlConnection, name: &str) -> Result<Option<SlotState>, ConnectError> {
    Ok(read(sql, "s.slot_name = $1", &[(&name, Type::TEXT)]).await?.into_iter().next())
}

/// The transaction that keeps the slot's oldest WAL behind the position its reader has confirmed; `None` when there is
/// no such distance, or nothing that explains it.
///
/// Decoding after a restart begins where the oldest transaction that was open then began: a long one, of whatever
/// database of the cluster, holds everything since.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn restart_held_by(sql: &SqlConnection, slot: &SlotRow) -> Result<Option<Blocker>, ConnectError> {
    match (slot.restart_lsn, slot.confirmed_flush_lsn) {
        (Some(restart), Some(confirmed)) if restart < confirmed => {
            Ok(transactions_with_xid(sql).await?.into_iter().next())
        }
        _ => Ok(None),
    }
}

async fn read(
    sql: &SqlConnection,
    condition: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<SlotState>, ConnectError> {
    let inactive_since = if sql.is_at_least(17) {
        "to_char(s.inactive_since AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
    } else {
        "NULL::text"
    };
    let query = format!(
        "SELECT {columns}, {inactive_since} AS inactive_since, pg_wal_lsn_diff(w.position, s.restart_lsn)::int8 \
         AS retained, s.active_pid AS pid, a.usename::text AS role, a.application_name, host(a.client_addr) AS address \
         FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid, \
         (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END \
         AS position) w WHERE {condition} ORDER BY s.slot_name",
        columns = columns_of(sql),
    );
    let rows = sql.query("reading the replication slots", &query, parameters).await?;
    rows.iter().map(state).collect()
}

fn state(row: &Row) -> Result<SlotState, ConnectError> {
    let read = column::<Option<i32>>(row, "pid")?.is_some();
    Ok(SlotState {
        slot: slot_row(row)?,
        holder: if read { Some(holder(row)?) } else { None },
        retained_bytes: column(row, "retained")?,
        inactive_since: column(row, "inactive_since")?,
    })
}
