//! Looks at the slot now and then, beside the stream: what it retains, how safe it is, and who holds it back.
//!
//! Over the session's own SQL connection while there is one, and else over one that is opened for the look: so a
//! source never has more than one beside its replication connection, and none is ever inside a transaction.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crabka_connect::ConnectError;
use crabka_pgrepl::Lsn;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::catalog::{self, RestartHolder, SlotRow, WalState};
use crate::config::PostgresSourceConfig;
use crate::figures::{PAGE_HEADER_BYTES, SlotLook, SourceFigures, StreamState};
use crate::sql::SqlConnection;

/// Over how long the rate of growth is taken.
const RATE_WINDOW: Duration = Duration::from_secs(60);

/// How long a look may keep a session from starting: it holds the turn to open the one connection.
const TURN_LIMIT: Duration = Duration::from_secs(5);

/// Keeps [`SourceFigures`] told about the slot until it is dropped.
#[derive(Debug)]
pub struct SlotWatch {
    task: JoinHandle<()>,
}

impl Drop for SlotWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SlotWatch {
    /// Begins to look at the slot of `config` every `pause`. Needs a tokio runtime.
    pub fn spawn(config: &PostgresSourceConfig, figures: Arc<SourceFigures>, pause: Duration) -> Self {
        let watcher = Watcher {
            config: config.clone(),
            figures,
            retained: VecDeque::new(),
            restart: None,
            ahead: None,
        };
        Self { task: tokio::spawn(watcher.run(pause)) }
    }
}

struct Watcher {
    config: PostgresSourceConfig,
    figures: Arc<SourceFigures>,
    /// `wal_retained_bytes` of the looks within the window.
    retained: VecDeque<(Instant, u64)>,
    /// The last `restart_lsn`, and when it was seen first.
    restart: Option<(Lsn, Instant)>,
    /// What was received when the server's WAL was seen ahead of it, and when that was.
    ahead: Option<(Lsn, Instant)>,
}

struct Found {
    row: Option<SlotRow>,
    wal: WalState,
    held_by: Option<RestartHolder>,
}

impl Watcher {
    async fn run(mut self, pause: Duration) {
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let found = match self.look().await {
                None => continue,
                Some(found) => found,
            };
            let look = match found {
                Ok(found) => self.judge(found, Instant::now()),
                Err(error) => {
                    tracing::debug!(slot = %self.config.slot, "looking at the slot failed: {}", error.chain());
                    self.failed(&error)
                }
            };
            self.figures.looked(look);
        }
    }

    /// `None` while a session is being started.
    async fn look(&mut self) -> Option<Result<Found, ConnectError>> {
        let figures = Arc::clone(&self.figures);
        // A start may be inside a transaction, and opens the one connection itself.
        let starting = || figures.state() == StreamState::Starting;
        if starting() {
            return None;
        }
        if let Some(sql) = figures.sql().get() {
            return Some(self.read(&sql).await);
        }
        let _turn = figures.sql().turn().await;
        if starting() {
            return None;
        }
        Some(timeout(TURN_LIMIT, self.read_over_its_own()).await.unwrap_or_else(|_elapsed| {
            let limit_s = TURN_LIMIT.as_secs();
            Err(ConnectError::transient(format!("looking at the slot: no answer within {limit_s} s")))
        }))
    }

    async fn read_over_its_own(&mut self) -> Result<Found, ConnectError> {
        let sql = SqlConnection::connect(&self.config.connection).await?;
        let found = self.read(&sql).await;
        sql.close().await;
        found
    }

    async fn read(&mut self, sql: &SqlConnection) -> Result<Found, ConnectError> {
        // The end first: what it is compared with is then not behind it.
        let wal = catalog::wal_state(sql).await?;
        let row = catalog::slot(sql, &self.config.slot).await?;
        let held_by = match &row {
            Some(row) => {
                let standing_for = self.standing_for(row.restart_lsn, Instant::now());
                catalog::restart_held_by(sql, row, standing_for).await?
            }
            None => None,
        };
        Ok(Found { row, wal, held_by })
    }

    /// For how long `restart_lsn` has been seen where it is.
    fn standing_for(&mut self, restart: Option<Lsn>, now: Instant) -> Duration {
        self.restart = restart.map(|restart| match self.restart {
            Some((known, since)) if known == restart => (restart, since),
            _ => (restart, now),
        });
        self.restart.map_or(Duration::ZERO, |(_, since)| now.duration_since(since))
    }

    fn failed(&self, error: &ConnectError) -> SlotLook {
        let error = Some(error.with_causes());
        match self.figures.last_look() {
            Some(before) => SlotLook { error, ahead_since: None, ..SlotLook::clone(&before) },
            None => SlotLook {
                at: Instant::now(),
                slot: self.config.slot.clone(),
                row: None,
                wal_end: None,
                ahead_since: None,
                wal_retained_bytes: None,
                max_slot_wal_keep_bytes: None,
                retained_bytes_per_second: None,
                held_by: None,
                error,
            },
        }
    }

    fn judge(&mut self, found: Found, now: Instant) -> SlotLook {
        let Found { row, wal, held_by } = found;
        let restart = row.as_ref().and_then(|row| row.restart_lsn);
        let retained = restart.map(|restart| wal.end.as_u64().saturating_sub(restart.as_u64()));
        SlotLook {
            at: now,
            slot: self.config.slot.clone(),
            row,
            wal_end: Some(wal.end),
            ahead_since: self.ahead(wal.end, now),
            wal_retained_bytes: retained,
            max_slot_wal_keep_bytes: wal.max_slot_wal_keep_bytes,
            retained_bytes_per_second: retained.and_then(|retained| self.rate(retained, now)),
            held_by,
            error: None,
        }
    }

    fn ahead(&mut self, wal_end: Lsn, now: Instant) -> Option<Instant> {
        let received = self.figures.received()?;
        let ahead = wal_end.as_u64().saturating_sub(received.as_u64()) > PAGE_HEADER_BYTES;
        self.ahead = ahead.then_some(match self.ahead {
            Some((known, since)) if known == received => (received, since),
            _ => (received, now),
        });
        self.ahead.map(|(_, since)| since)
    }

    /// Bytes a second over the window; `None` with the first look.
    fn rate(&mut self, retained: u64, now: Instant) -> Option<f64> {
        self.retained.push_back((now, retained));
        while self.retained.len() > 2
            && self.retained.front().is_some_and(|(at, _)| now.duration_since(*at) > RATE_WINDOW)
        {
            self.retained.pop_front();
        }
        let (at, before) = *self.retained.front()?;
        let seconds = now.duration_since(at).as_secs_f64();
        #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "a rate")]
        (seconds > 0.0).then(|| (retained as f64 - before as f64) / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_does_not_answer_keeps_nobody_waiting_for_the_turn() {
        // Takes the connection and says nothing.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://nobody@{}/none?connect_timeout=600", silent.local_addr().unwrap());
        let config = PostgresSourceConfig::new("silent", url.parse().unwrap()).unwrap();
        let figures = Arc::<SourceFigures>::default();
        let _watch = SlotWatch::spawn(&config, Arc::clone(&figures), Duration::from_secs(600));
        let _connection = silent.accept().await.unwrap();
        let turn = timeout(Duration::from_secs(60), figures.sql().turn()).await;
        drop(turn.expect("the turn is given back"));
        while figures.last_look().is_none() {
            tokio::task::yield_now().await;
        }
        let look = figures.last_look().unwrap();
        let error = look.error.clone().unwrap();
        assert!(error.contains("no answer within"), "{error}");
        assert_eq!(look.exists(), None, "nobody knows");
    }
}
