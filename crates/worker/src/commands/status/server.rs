//! What the server and the checkpoint store tell without a worker: where the slot is, and what it costs.

use std::time::Duration;

use crabka_connect::ConnectError;
use crabka_connect_postgres::catalog::{self, Blocker, RestartHolder};
use crabka_connect_postgres::{PostgresSourceConfig, SqlConnection, StoredPosition};
use crabka_pgrepl::Lsn;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::config::Config;
use crate::stored;

/// Over this time the rate of the first look is measured.
const RATE_SAMPLE: Duration = Duration::from_secs(1);

/// The checkpoint store is asked this often at most: it may be far away.
const STORED_INTERVAL: Duration = Duration::from_secs(15);

/// The server as seen beside a worker, or without one.
pub(super) struct ServerView<'a> {
    config: &'a Config,
    source: PostgresSourceConfig,
    sql: Option<SqlConnection>,
    /// The stored position as of the last look at the store.
    stored: Option<(Instant, Value)>,
    /// Retained bytes at an earlier look.
    sample: Option<(Instant, i64)>,
}

impl<'a> ServerView<'a> {
    pub(super) fn new(config: &'a Config, source: PostgresSourceConfig) -> Self {
        Self { config, source, sql: None, stored: None, sample: None }
    }

    /// Everything there is to see now; what cannot be seen says why.
    pub(super) async fn look(&mut self) -> Value {
        let stored = self.stored_position().await;
        match self.slot().await {
            Ok(slot) => json!({ "error": null, "stored_position": stored, "slot": slot }),
            Err(error) => {
                self.sql = None;
                json!({ "error": error.to_string(), "stored_position": stored, "slot": null })
            }
        }
    }

    async fn stored_position(&mut self) -> Value {
        let now = Instant::now();
        if let Some((at, known)) = &self.stored
            && now.duration_since(*at) < STORED_INTERVAL
        {
            return known.clone();
        }
        let read = match stored::read(self.config).await {
            Ok(Some(offset)) => match StoredPosition::from_offset(&offset) {
                Ok(stored) => json!({ "lsn": stored.position.resume_lsn.to_string(), "error": null }),
                Err(error) => json!({ "lsn": null, "error": error.to_string() }),
            },
            Ok(None) => json!({ "lsn": null, "error": null }),
            Err(error) => json!({ "lsn": null, "error": error.to_string() }),
        };
        self.stored = Some((now, read.clone()));
        read
    }

    async fn slot(&mut self) -> Result<Value, ConnectError> {
        let sql = match self.sql.take() {
            Some(sql) => sql,
            None => SqlConnection::connect(&self.source.connection).await?,
        };
        let slot = self.read_slot(&sql).await;
        self.sql = Some(sql);
        slot
    }

    async fn read_slot(&mut self, sql: &SqlConnection) -> Result<Value, ConnectError> {
        let name = self.source.slot.clone();
        let Some(mut state) = catalog::slot_state(sql, &name).await? else {
            return Ok(json!({ "name": name, "exists": false }));
        };
        if let (None, Some(retained)) = (self.sample, state.retained_bytes) {
            self.sample = Some((Instant::now(), retained));
            tokio::time::sleep(RATE_SAMPLE).await;
            state = catalog::slot_state(sql, &name).await?.unwrap_or(state);
        }
        let rate = self.rate(state.retained_bytes);
        let slot = &state.slot;
        let lost_in_ms = match (slot.safe_wal_size, rate) {
            (Some(safe), Some(rate)) if rate > 0 => Some(safe.max(0).saturating_mul(1000) / rate),
            _ => None,
        };
        let wal = catalog::wal_state(sql).await?;
        let holder = catalog::restart_held_by(sql, slot, Duration::ZERO).await?;
        let server = wal.end;
        let position = |lsn: Option<Lsn>| lsn.map(|lsn| lsn.to_string());
        let behind = slot.confirmed_flush_lsn.map(|lsn| server.as_u64().saturating_sub(lsn.as_u64()));
        Ok(json!({
            "name": name,
            "exists": true,
            "holder": state.holder.as_ref().map(ToString::to_string),
            "server_lsn": server.to_string(),
            "restart_lsn": position(slot.restart_lsn),
            "confirmed_flush_lsn": position(slot.confirmed_flush_lsn),
            "bytes_behind": behind,
            "wal_status": slot.wal_status,
            "lost_because": slot.lost_because(),
            "inactive_since": state.inactive_since,
            "wal_retained_bytes": state.retained_bytes,
            "safe_wal_size_bytes": slot.safe_wal_size,
            "max_slot_wal_keep_size_bytes": wal.max_slot_wal_keep_bytes,
            "retained_bytes_per_second": rate,
            "lost_in_ms": lost_in_ms,
            "held_by": holder.as_ref().and_then(RestartHolder::transaction).map(held_by),
            "held_by_hidden": holder.as_ref().and_then(RestartHolder::hidden),
        }))
    }

    /// How fast the retained WAL grows, since the look before this one.
    fn rate(&mut self, retained: Option<i64>) -> Option<i64> {
        let now = Instant::now();
        let before = std::mem::replace(&mut self.sample, retained.map(|retained| (now, retained)));
        let ((at, before), retained) = (before?, retained?);
        let elapsed_ms = i64::try_from(now.duration_since(at).as_millis()).ok().filter(|ms| *ms > 0)?;
        Some((retained - before).saturating_mul(1000) / elapsed_ms)
    }
}

fn held_by(blocker: &Blocker) -> Value {
    json!({
        "pid": blocker.pid,
        "gid": blocker.gid,
        "user": blocker.user,
        "database": blocker.database,
        "application": blocker.application,
        "age_ms": blocker.age.and_then(|age| u64::try_from(age.as_millis()).ok()),
        "ended_by": blocker.ended_by(),
    })
}
