//! The server itself: version, role in replication, identity, encoding.

use crabka_connect::ConnectError;
use crabka_pgrepl::Lsn;
use tokio_postgres::types::PgLsn;

use crate::sql::{SqlConnection, column};

/// What a server says of itself and of the database of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// `server_version_num`: 150018 is 15.18.
    pub version_num: u32,
    /// `server_version`, as printed.
    pub version: String,
    /// Whether the server is a standby.
    pub in_recovery: bool,
    /// The level of WAL in effect. On a standby this is the standby's own setting, not the primary's.
    pub wal_level: String,
    /// `system_identifier` of the cluster: made by initdb, the same on its standbys.
    pub system_identifier: u64,
    /// Oid of the database.
    pub database_oid: u32,
    /// Name of the database.
    pub database: String,
    /// Encoding of the database.
    pub server_encoding: String,
    /// Role of the session.
    pub role: String,
}

/// From 19 on the effective level rises with the first logical slot; older servers know only the setting.
const SERVER_INFO: &str = "SELECT current_setting('server_version') AS version, \
    pg_is_in_recovery() AS in_recovery, \
    coalesce(current_setting('effective_wal_level', true), current_setting('wal_level')) AS wal_level, \
    (SELECT system_identifier FROM pg_control_system()) AS system_identifier, \
    d.oid AS database_oid, d.datname::text AS database, \
    pg_encoding_to_char(d.encoding)::text AS server_encoding, current_user::text AS role \
    FROM pg_database d WHERE d.datname = current_database()";

/// Asks the server what it is.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn server_info(sql: &SqlConnection) -> Result<ServerInfo, ConnectError> {
    let row = sql.query_one("reading the server's identity", SERVER_INFO, &[]).await?;
    let system_identifier: i64 = column(&row, "system_identifier")?;
    Ok(ServerInfo {
        version_num: sql.version_num(),
        version: column(&row, "version")?,
        in_recovery: column(&row, "in_recovery")?,
        wal_level: column(&row, "wal_level")?,
        system_identifier: system_identifier.cast_unsigned(),
        database_oid: column(&row, "database_oid")?,
        database: column(&row, "database")?,
        server_encoding: column(&row, "server_encoding")?,
        role: column(&row, "role")?,
    })
}

/// How far the server's WAL goes, and how much of it a slot may retain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalState {
    /// End of the WAL that is on disk, which is all that a walsender reads; on a standby of what is replayed.
    pub end: Lsn,
    /// `max_slot_wal_keep_size`, bytes; `None`: no limit.
    pub max_slot_wal_keep_bytes: Option<u64>,
}

/// Reads the state of the WAL.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn wal_state(sql: &SqlConnection) -> Result<WalState, ConnectError> {
    let query = "SELECT coalesce(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() \
        ELSE pg_current_wal_flush_lsn() END, '0/0') AS wal_end, \
        (SELECT setting::int8 * 1048576 FROM pg_settings WHERE name = 'max_slot_wal_keep_size') AS keep_bytes";
    let row = sql.query_one("reading the state of the WAL", query, &[]).await?;
    let keep_bytes: Option<i64> = column(&row, "keep_bytes")?;
    Ok(WalState {
        end: Lsn::new(column::<PgLsn>(&row, "wal_end")?.into()),
        // Without a limit the setting is -1.
        max_slot_wal_keep_bytes: keep_bytes.and_then(|bytes| u64::try_from(bytes).ok()),
    })
}

/// The position behind the last WAL written; on a standby the last one replayed.
///
/// # Errors
///
/// As [`SqlConnection::query`].
pub async fn wal_position(sql: &SqlConnection) -> Result<Lsn, ConnectError> {
    let query = "SELECT coalesce(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() \
        ELSE pg_current_wal_lsn() END, '0/0') AS position";
    let row = sql.query_one("reading the WAL position", query, &[]).await?;
    Ok(Lsn::new(column::<PgLsn>(&row, "position")?.into()))
}
