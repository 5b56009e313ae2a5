//! What replication slots cost: the WAL each of them keeps on the server, and who reads it.
//!
//! <https://www.postgresql.org/docs/18/view-pg-replication-slots.html>.

use std::time::Duration;

use crabka_connect::ConnectError;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::quote_identifier;
use super::slot::{SlotHolder, SlotRow, columns_of, holder, slot_row};
use super::transactions::{Blocker, OLD_TRANSACTION, transactions_with_xid};
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

/// Why the oldest WAL of a slot stays behind the position that its reader has confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestartHolder {
    /// An old transaction, running or prepared.
    Transaction(Blocker),
    /// Whether there is an old one cannot be told: the role may not see when transactions of others began.
    Hidden {
        /// How many of them are running.
        transactions: usize,
        /// The role that may not.
        role: String,
    },
}

impl RestartHolder {
    /// The transaction, where it is known.
    pub fn transaction(&self) -> Option<&Blocker> {
        match self {
            Self::Transaction(blocker) => Some(blocker),
            Self::Hidden { .. } => None,
        }
    }

    /// Why it is not known, with the SQL that changes that.
    pub fn hidden(&self) -> Option<String> {
        match self {
            Self::Transaction(_) => None,
            Self::Hidden { transactions, role } => Some(format!(
                "the age of {transactions} transactions of other roles is hidden: GRANT pg_read_all_stats TO {}",
                quote_identifier(role)
            )),
        }
    }
}

/// What keeps the slot's oldest WAL behind the position its reader has confirmed, when `restart_lsn` stands still for
/// at least `standing_for`; `None` when there is no such distance, or nothing old that explains it.
///
/// Decoding after a restart begins where the oldest transaction that was open then began: a long one, of whatever
/// database of the cluster, holds everything since. A distance alone is usual on a busy server, so only a transaction
/// that is known to be older than [`OLD_TRANSACTION`] is named.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn restart_held_by(
    sql: &SqlConnection,
    slot: &SlotRow,
    standing_for: Duration,
) -> Result<Option<RestartHolder>, ConnectError> {
    if !matches!((slot.restart_lsn, slot.confirmed_flush_lsn), (Some(restart), Some(confirmed)) if restart < confirmed)
    {
        return Ok(None);
    }
    let transactions = transactions_with_xid(sql).await?;
    if let Some(oldest) = holder_among(&transactions, standing_for) {
        return Ok(Some(RestartHolder::Transaction(oldest.clone())));
    }
    let unknown = transactions.iter().filter(|transaction| transaction.age.is_none()).count();
    if unknown == 0 {
        return Ok(None);
    }
    let query = "SELECT current_user::text AS role, pg_has_role('pg_read_all_stats', 'USAGE') AS sees";
    let row = sql.query_one("reading what the role may see", query, &[]).await?;
    // One that has just ended has no age either.
    let hidden = !column::<bool>(&row, "sees")?;
    let role = column(&row, "role")?;
    Ok(hidden.then_some(RestartHolder::Hidden { transactions: unknown, role }))
}

/// The oldest transaction that can have begun before `restart_lsn` came to stand still.
fn holder_among(transactions: &[Blocker], standing_for: Duration) -> Option<&Blocker> {
    transactions.iter().find(|transaction| {
        // The age of a prepared one counts from when it was prepared, and not from its begin.
        let least =
            if transaction.gid.is_some() { OLD_TRANSACTION } else { standing_for.max(OLD_TRANSACTION) };
        transaction.age.is_some_and(|age| age >= least)
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction(pid: i32, age_s: Option<u64>) -> Blocker {
        Blocker {
            pid: Some(pid),
            gid: None,
            user: None,
            database: None,
            application: None,
            age: age_s.map(Duration::from_secs),
        }
    }

    #[test]
    fn only_a_transaction_known_to_be_old_enough_is_named() {
        let holder = |transactions: &[Blocker], standing_s| {
            holder_among(transactions, Duration::from_secs(standing_s)).and_then(|found| found.pid)
        };
        assert_eq!(holder(&[], 10), None);
        assert_eq!(holder(&[transaction(1, Some(9))], 10), None, "younger than the standstill");
        assert_eq!(holder(&[transaction(1, Some(4))], 0), None, "young");
        assert_eq!(holder(&[transaction(1, Some(9))], 0), Some(1));
        assert_eq!(holder(&[transaction(1, Some(60)), transaction(2, Some(20))], 10), Some(1));
        assert_eq!(holder(&[transaction(1, Some(60)), transaction(3, None)], 10), Some(1));
        assert_eq!(holder(&[transaction(1, Some(9)), transaction(3, None)], 10), None, "unknown");
        let prepared = |age_s| Blocker { gid: Some("left".to_owned()), ..transaction(4, Some(age_s)) };
        assert_eq!(holder(&[transaction(1, Some(9)), prepared(6)], 10), Some(4));
        assert_eq!(holder(&[transaction(1, Some(9)), prepared(1)], 10), None);
    }
}
