//! Transactions that have written something: what the creation of a slot waits for.

use std::fmt;
use std::time::Duration;

use crabka_connect::ConnectError;

use crate::sql::{SqlConnection, column};

/// A transaction that is open for less long is nothing out of the ordinary.
pub const OLD_TRANSACTION: Duration = Duration::from_secs(5);

/// A running or prepared transaction with a transaction id, of any database of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// Process id; `None` for a prepared transaction.
    pub pid: Option<i32>,
    /// Global id of a prepared transaction.
    pub gid: Option<String>,
    /// Role, where it may be seen.
    pub user: Option<String>,
    /// Database, where it may be seen.
    pub database: Option<String>,
    /// `application_name`, where it may be seen.
    pub application: Option<String>,
    /// Age of the transaction, where it may be seen (role `pg_read_all_stats`); seconds.
    pub age: Option<Duration>,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.gid, self.pid) {
            (Some(gid), _) => write!(f, "prepared transaction {gid:?}")?,
            (None, Some(pid)) => write!(f, "pid {pid}")?,
            (None, None) => f.write_str("unknown process")?,
        }
        if let Some(user) = &self.user {
            write!(f, ", user {user}")?;
        }
        if let Some(database) = &self.database {
            write!(f, ", database {database}")?;
        }
        if let Some(application) = self.application.as_deref().filter(|name| !name.is_empty()) {
            write!(f, ", application {application}")?;
        }
        match self.age {
            Some(age) => write!(f, ", age {} s", age.as_secs()),
            None => f.write_str(", age unknown"),
        }
    }
}

impl Blocker {
    /// The SQL that ends the transaction.
    pub fn ended_by(&self) -> String {
        match (&self.gid, self.pid) {
            (Some(gid), _) => format!("ROLLBACK PREPARED {}", super::quote_literal(gid)),
            (None, Some(pid)) => format!("SELECT pg_terminate_backend({pid})"),
            (None, None) => "end the transaction".to_owned(),
        }
    }
}

/// The lock that each transaction holds on its own id can be seen by everybody, unlike the times in
/// `pg_stat_activity`. Subtransactions hold one each: hence the grouping.
const TRANSACTIONS: &str = "SELECT l.pid, NULL::text AS gid, a.usename::text AS role, a.datname::text AS database, \
    a.application_name, extract(epoch FROM clock_timestamp() - min(a.xact_start))::float8 AS age \
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
    WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted \
    AND l.pid IS NOT NULL AND l.pid <> pg_backend_pid() \
    GROUP BY l.pid, a.usename, a.datname, a.application_name \
    UNION ALL \
    SELECT NULL, p.gid, p.owner::text, p.database::text, NULL, \
    extract(epoch FROM clock_timestamp() - p.prepared)::float8 FROM pg_prepared_xacts p \
    ORDER BY age DESC NULLS LAST, pid LIMIT 50";

/// Transactions with a transaction id, oldest first and those of unknown age last, at most 50. Read-only ones have none and are not listed.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn transactions_with_xid(sql: &SqlConnection) -> Result<Vec<Blocker>, ConnectError> {
    let rows = sql.query("reading running transactions", TRANSACTIONS, &[]).await?;
    rows.iter()
        .map(|row| {
            let age: Option<f64> = column(row, "age")?;
            Ok(Blocker {
                pid: column(row, "pid")?,
                gid: column(row, "gid")?,
                user: column(row, "role")?,
                database: column(row, "database")?,
                application: column(row, "application_name")?,
                age: age.map(|age| Duration::try_from_secs_f64(age.max(0.0)).unwrap_or_default()),
            })
        })
        .collect()
}
