//! The last look at the slot, and the SQL connection that looks share with the session.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crabka_pgrepl::Lsn;
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::locked;
use crate::catalog::{RestartHolder, SlotRow};
use crate::sql::SqlConnection;

/// The server's WAL may end this much behind its last record, and there is nothing to send: the header of a page.
pub const PAGE_HEADER_BYTES: u64 = 40;

/// What a look at the slot has found.
#[derive(Debug, Clone)]
pub struct SlotLook {
    /// When.
    pub at: Instant,
    /// Name of the slot.
    pub slot: String,
    /// Its row; `None` when there is no such slot, or the look failed.
    pub row: Option<SlotRow>,
    /// End of the server's WAL that is on its disk; on a standby of what is replayed.
    pub wal_end: Option<Lsn>,
    /// Since when `wal_end` is ahead of everything received, which has not moved meanwhile.
    pub ahead_since: Option<Instant>,
    /// Bytes of WAL behind `restart_lsn`.
    pub wal_retained_bytes: Option<u64>,
    /// `max_slot_wal_keep_size`, bytes; `None` without a limit.
    pub max_slot_wal_keep_bytes: Option<u64>,
    /// How fast `wal_retained_bytes` grew over the last minute; negative when it shrinks.
    pub retained_bytes_per_second: Option<f64>,
    /// What keeps `restart_lsn` behind `confirmed_flush_lsn`: the oldest transaction that was running already when
    /// `restart_lsn` moved last.
    pub held_by: Option<RestartHolder>,
    /// Why the look failed; what an earlier look has found is kept.
    pub error: Option<String>,
}

impl SlotLook {
    /// Whether the slot exists; `None` as long as no look has succeeded.
    pub fn exists(&self) -> Option<bool> {
        // A look that succeeds knows the end of the WAL, whatever it finds of the slot.
        self.wal_end.map(|_| self.row.is_some())
    }

    /// When `safe_wal_size` is used up at the present rate; `None`: never.
    pub fn lost_in(&self) -> Option<Duration> {
        let safe = self.row.as_ref()?.safe_wal_size?.max(0);
        let rate = self.retained_bytes_per_second.filter(|rate| *rate > 0.0)?;
        #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "an estimate")]
        Duration::try_from_secs_f64(safe as f64 / rate).ok()
    }
}

/// The SQL connection of the session, for others to use beside it, and the right to open another one while there is
/// none: there is never more than one.
#[derive(Debug, Default)]
pub(crate) struct SharedSql {
    connection: Mutex<Weak<SqlConnection>>,
    turn: tokio::sync::Mutex<()>,
}

impl SharedSql {
    /// Whoever holds it may open a connection.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    pub(crate) fn share(&self, connection: &Arc<SqlConnection>) {
        *locked(&self.connection) = Arc::downgrade(connection);
    }

    pub(crate) fn get(&self) -> Option<Arc<SqlConnection>> {
        locked(&self.connection).upgrade().filter(|connection| !connection.client().is_closed())
    }
}
