//! Replication slots: one row of `pg_replication_slots`, and what is wrong with it for us.
//!
//! <https://www.postgresql.org/docs/18/view-pg-replication-slots.html>.

use std::fmt;

use crabka_connect::ConnectError;
use crabka_pgrepl::Lsn;
use tokio_postgres::Row;
use tokio_postgres::types::{PgLsn, Type};

use crate::catalog::name::{quote_identifier, quote_literal};
use crate::sql::{SqlConnection, column};

/// The output plugin we read.
pub const PLUGIN: &str = "pgoutput";

/// A row of `pg_replication_slots`. What a server version does not have is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRow {
    /// Name of the slot.
    pub name: String,
    /// Output plugin; `None` for a physical slot.
    pub plugin: Option<String>,
    /// `logical` or `physical`.
    pub slot_type: String,
    /// Database of a logical slot.
    pub database: Option<String>,
    /// Whether it ends with the session that created it.
    pub temporary: bool,
    /// Whether a session reads it.
    pub active: bool,
    /// The process that reads it.
    pub active_pid: Option<i32>,
    /// Oldest WAL it holds.
    pub restart_lsn: Option<Lsn>,
    /// Position up to which its reader has confirmed; `None` while the slot is being created.
    pub confirmed_flush_lsn: Option<Lsn>,
    /// `reserved`, `extended`, `unreserved` or `lost`.
    pub wal_status: Option<String>,
    /// Bytes of WAL that may still be written before the slot is in danger; `None` without a limit.
    pub safe_wal_size: Option<i64>,
    /// Whether it sends prepared transactions.
    pub two_phase: bool,
    /// Whether recovery conflicts invalidated it (16 and later).
    pub conflicting: Option<bool>,
    /// Why it was invalidated (17 and later).
    pub invalidation_reason: Option<String>,
    /// Whether it is kept in step on standbys (17 and later).
    pub failover: Option<bool>,
    /// Whether it is a copy kept in step with a primary's (17 and later). The server's own flag outlives the promotion of
    /// the standby; this one does not.
    pub synced: Option<bool>,
}

/// Why a slot cannot be streamed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotFault {
    /// A physical slot.
    Physical,
    /// Another output plugin's.
    Plugin(String),
    /// Another database's.
    Database(String),
    /// Still being created by this process, which waits for running transactions to end.
    InCreation(Option<i32>),
    /// What it needs is gone: removed WAL, removed rows, or a time-out; the server's word for it.
    Lost(String),
    /// Kept in step with a primary's slot; usable after a promotion only.
    Synced,
}

/// The session that reads a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotHolder {
    /// Process id.
    pub pid: i32,
    /// Role, where it may be seen.
    pub user: Option<String>,
    /// `application_name`, where it may be seen.
    pub application: Option<String>,
    /// Client address, where it may be seen and is not a socket.
    pub address: Option<String>,
}

impl fmt::Display for SlotHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}", self.pid)?;
        if let Some(application) = self.application.as_deref().filter(|name| !name.is_empty()) {
            write!(f, ", application {application}")?;
        }
        if let Some(user) = &self.user {
            write!(f, ", user {user}")?;
        }
        if let Some(address) = &self.address {
            write!(f, ", from {address}")?;
        }
        Ok(())
    }
}

impl SlotRow {
    /// What keeps a session on `database` from streaming from this slot, if anything does. That another session
    /// reads it now is not a fault of the slot.
    pub fn fault(&self, database: &str) -> Option<SlotFault> {
        if self.slot_type != "logical" {
            return Some(SlotFault::Physical);
        }
        if let Some(reason) = self.lost_because() {
            return Some(SlotFault::Lost(reason));
        }
        match (&self.plugin, &self.database) {
            (Some(plugin), _) if plugin != PLUGIN => return Some(SlotFault::Plugin(plugin.clone())),
            (_, Some(other)) if other != database => return Some(SlotFault::Database(other.clone())),
            _ => {}
        }
        if self.synced == Some(true) {
            return Some(SlotFault::Synced);
        }
        match self.confirmed_flush_lsn {
            None => Some(SlotFault::InCreation(self.active_pid)),
            Some(_) => None,
        }
    }

    /// The server's word for why the slot is lost; `None` while it is not.
    pub fn lost_because(&self) -> Option<String> {
        if let Some(reason) = &self.invalidation_reason {
            return Some(reason.clone());
        }
        // 16 sets `conflicting` whatever the reason was; only removed WAL takes the position away.
        if self.conflicting == Some(true) && self.restart_lsn.is_some() {
            return Some("conflict with recovery".to_owned());
        }
        (self.wal_status.as_deref() == Some("lost")).then(|| "wal_removed".to_owned())
    }
}

impl SlotFault {
    /// The error that keeps a source from starting, with what to do about it.
    ///
    /// A lost slot is a lost position; a slot in creation is transient, for it will be complete or gone; the rest is
    /// for the operator to mend.
    pub fn to_error(&self, slot: &SlotRow) -> ConnectError {
        let name = quote_identifier(&slot.name);
        let drop = format!("SELECT pg_drop_replication_slot({})", quote_literal(&slot.name));
        let other_name = "choose another slot name, or drop it if nobody needs it";
        match self {
            Self::Physical => {
                ConnectError::configuration(format!("replication slot is physical, not logical: {name}"))
                    .with_fix(format!("{other_name}: {drop}"))
            }
            Self::Plugin(plugin) => ConnectError::configuration(format!(
                "replication slot {name} belongs to another output plugin than pgoutput: {plugin}"
            ))
            .with_fix(format!("{other_name}: {drop}")),
            Self::Database(database) => ConnectError::configuration(format!(
                "replication slot {name} belongs to another database: {database}"
            ))
            .with_fix("choose another slot name, or connect to that database"),
            Self::InCreation(pid) => {
                let by = pid.map(|pid| format!(" by pid {pid}")).unwrap_or_default();
                ConnectError::transient(format!(
                    "replication slot is being created{by}, which waits for running transactions to end: {name}"
                ))
            }
            Self::Lost(reason) => ConnectError::offset(format!(
                "replication slot {name} has lost what it held (wal_status {}): {reason}",
                slot.wal_status.as_deref().unwrap_or("unknown")
            ))
            .with_fix(format!(
                "changes since the stored position cannot be read any more; {drop}, then `crabka init` and a new snapshot"
            )),
            Self::Synced => ConnectError::transient(format!(
                "replication slot is kept in step with the primary's and can be read after a promotion only: {name}"
            ))
            .with_fix("connect to the primary"),
        }
    }
}

pub(super) fn columns_of(sql: &SqlConnection) -> String {
    let mut columns = "slot_name::text AS name, plugin::text AS plugin, slot_type::text AS slot_type, \
        database::text AS database, temporary, active, active_pid, restart_lsn, confirmed_flush_lsn, \
        wal_status::text AS wal_status, safe_wal_size, two_phase"
        .to_owned();
    columns.push_str(if sql.is_at_least(16) { ", conflicting" } else { ", NULL::bool AS conflicting" });
    columns.push_str(if sql.is_at_least(17) {
        ", invalidation_reason::text AS invalidation_reason, failover, \
            synced AND pg_is_in_recovery() AS synced"
    } else {
        ", NULL::text AS invalidation_reason, NULL::bool AS failover, NULL::bool AS synced"
    });
    columns
}

/// The slot of that name, in whatever database; `None` when there is none.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn slot(sql: &SqlConnection, name: &str) -> Result<Option<SlotRow>, ConnectError> {
    let query = format!("SELECT {} FROM pg_replication_slots WHERE slot_name = $1", columns_of(sql));
    let rows = sql.query("reading the replication slot", &query, &[(&name, Type::TEXT)]).await?;
    rows.first().map(slot_row).transpose()
}

pub(super) fn slot_row(row: &Row) -> Result<SlotRow, ConnectError> {
    let lsn =
        |name| Ok::<_, ConnectError>(column::<Option<PgLsn>>(row, name)?.map(|lsn| Lsn::new(lsn.into())));
    Ok(SlotRow {
        name: column(row, "name")?,
        plugin: column(row, "plugin")?,
        slot_type: column(row, "slot_type")?,
        database: column(row, "database")?,
        temporary: column(row, "temporary")?,
        active: column(row, "active")?,
        active_pid: column(row, "active_pid")?,
        restart_lsn: lsn("restart_lsn")?,
        confirmed_flush_lsn: lsn("confirmed_flush_lsn")?,
        wal_status: column(row, "wal_status")?,
        safe_wal_size: column(row, "safe_wal_size")?,
        two_phase: column(row, "two_phase")?,
        conflicting: column(row, "conflicting")?,
        invalidation_reason: column(row, "invalidation_reason")?,
        failover: column(row, "failover")?,
        synced: column(row, "synced")?,
    })
}

/// Who reads a slot now; `None` when nobody does, or the session has just ended.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn slot_holder(sql: &SqlConnection, slot: &str) -> Result<Option<SlotHolder>, ConnectError> {
    let query = "SELECT s.active_pid AS pid, a.usename::text AS role, a.application_name, \
        host(a.client_addr) AS address \
        FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid \
        WHERE s.slot_name = $1 AND s.active_pid IS NOT NULL";
    let rows = sql.query("reading who holds the slot", query, &[(&slot, Type::TEXT)]).await?;
    rows.first().map(holder).transpose()
}

/// The session in the columns `pid`, `role`, `application_name` and `address`.
pub(super) fn holder(row: &Row) -> Result<SlotHolder, ConnectError> {
    Ok(SlotHolder {
        pid: column(row, "pid")?,
        user: column(row, "role")?,
        application: column(row, "application_name")?,
        address: column(row, "address")?,
    })
}
