//! The slot: its creation waits for every running transaction of the cluster that has written something, and no
//! setting of the server ends that wait, so the time limit, the report and the cancel are ours.

use std::pin::pin;
use std::sync::LazyLock;
use std::time::Duration;

use crabka_connect::ConnectError;
use crabka_pgrepl::{CancelHandle, CreateSlot, CreatedSlot, ReplicationClient};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::types::Type;

use crate::catalog::{self, Blocker, quote_identifier};
use crate::check::{ended_by, waits_for};
use crate::classify::replication_error;
use crate::sql::SqlConnection;

/// How long the creation of a slot may wait for running transactions, and when it says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotWait {
    /// When this time has passed, the creation is cancelled.
    pub limit: Duration,
    /// A line that names the transactions is logged after this time, and again and again at twice the distance.
    pub report_after: Duration,
}

impl Default for SlotWait {
    fn default() -> Self {
        Self { limit: Duration::from_secs(120), report_after: Duration::from_secs(2) }
    }
}

/// How long a cancelled creation may take to end, and its row to vanish.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);

/// How long reading the blockers may keep the wait itself from being watched.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// Creates a slot over `client` and watches the creation over `sql`. A wait is logged with the transactions that
/// cause it; when the limit has passed, or `stop` is ready, the creation is cancelled and no slot is left.
///
/// # Errors
///
/// Transient: the limit has passed, or `stop` came; the message names the transactions waited for. Configuration: the
/// slot exists, no slot is free, a missing right.
///
/// # Cancel safety
///
/// Better ended with `stop`. When the future is dropped the creation is cancelled in the background, as far as the
/// runtime still lives for it ([`abandoned_creations_cancelled`] waits for that); else the half-made slot stays until the
/// transactions it waits for have ended.
///
/// # Durability
///
/// A permanent slot holds WAL from its creation until it is dropped.
pub async fn create_slot(
    sql: &SqlConnection,
    client: &mut ReplicationClient,
    slot: &CreateSlot,
    wait: &SlotWait,
    stop: impl Future<Output = ()>,
) -> Result<CreatedSlot, ConnectError> {
    let pid = client.backend_pid();
    let mut abandoned = CancelWhenDropped(client.cancel_handle().map(|handle| (handle, NotEnded::new())));
    let name = slot.name().to_owned();
    let begin = Instant::now();
    let mut distance = wait.report_after;
    let mut next_report = begin + distance;
    let mut stop = pin!(stop);
    let mut creation = pin!(client.create_replication_slot(slot));
    let ended = loop {
        tokio::select! {
            // The result first: a creation that is complete is not cancelled any more.
            biased;
            created = &mut creation => {
                abandoned.0 = None;
                return created.map_err(|error| replication_error(&creating(&name), error));
            }
            () = &mut stop => break "stopped",
            () = sleep_until(begin + wait.limit) => break "given up",
            () = sleep_until(next_report) => {
                report_wait(sql, &name, begin.elapsed(), wait.limit).await;
                distance *= 2;
                next_report = Instant::now() + distance;
            }
        }
    };
    let waited = begin.elapsed();
    // Before the cancel: afterwards nobody waits for them any more.
    let blockers = blockers(sql, waited).await;
    cancel(sql, pid).await?;
    abandoned.0 = None;
    match timeout(CANCEL_LIMIT, &mut creation).await {
        Ok(Ok(created)) => return Ok(created),
        Ok(Err(error)) if error.sqlstate() == Some("57014") => {}
        Ok(Err(error)) => return Err(replication_error(&creating(&name), error)),
        Err(_) => {
            return Err(ConnectError::transient(format!(
                "replication slot's creation was {ended} but does not end, its name stays taken until the transactions \
                 have; {}: {}",
                waits_for(&blockers),
                quote_identifier(&name)
            )));
        }
    }
    gone(sql, &name).await?;
    Err(ConnectError::transient(format!(
        "replication slot's creation was {ended} after {} s and left no slot; {}: {}",
        waited.as_secs(),
        waits_for(&blockers),
        quote_identifier(&name)
    ))
    .with_fix(ended_by(&blockers)))
}

/// Cancels a creation whose future was dropped: closing its connection would not end it.
struct CancelWhenDropped(Option<(CancelHandle, NotEnded)>);

impl Drop for CancelWhenDropped {
    fn drop(&mut self) {
        if let (Some((handle, not_ended)), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                if let Err(error) = handle.cancel().await {
                    tracing::warn!(%error, "an abandoned creation of a replication slot could not be cancelled");
                }
                drop(not_ended);
            });
        }
    }
}

/// How many creations have neither ended nor had their cancel taken by the server. They count from their begin: when
/// the task of one is aborted, its future is dropped some time later.
static NOT_ENDED: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// One of [`NOT_ENDED`].
struct NotEnded;

impl NotEnded {
    fn new() -> Self {
        NOT_ENDED.send_modify(|count| *count += 1);
        Self
    }
}

impl Drop for NotEnded {
    fn drop(&mut self) {
        NOT_ENDED.send_modify(|count| *count -= 1);
    }
}

/// Waits until the servers have taken the cancels of all creations whose futures were dropped, or are about to be: a
/// creation that still goes on is waited for as well. A program awaits it, for a bounded time, before it ends: a creation
/// that nobody cancelled stays half made.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn abandoned_creations_cancelled() {
    // The sender lives as long as the program.
    let _ = NOT_ENDED.subscribe().wait_for(|count| *count == 0).await;
}

fn creating(name: &str) -> String {
    format!("creating the replication slot {}", quote_identifier(name))
}

/// The transactions that run for as long as the creation waits; all, if none of them can be told to.
async fn blockers(sql: &SqlConnection, waited: Duration) -> Vec<Blocker> {
    let all = match timeout(LOOK_LIMIT, catalog::transactions_with_xid(sql)).await {
        Ok(Ok(blockers)) => blockers,
        Ok(Err(error)) => {
            tracing::warn!(%error, "running transactions cannot be read");
            return Vec::new();
        }
        Err(_) => {
            tracing::warn!("running transactions cannot be read in time");
            return Vec::new();
        }
    };
    let old = |blocker: &Blocker| blocker.age.is_none_or(|age| age + Duration::from_secs(1) >= waited);
    if all.iter().any(old) { all.into_iter().filter(old).collect() } else { all }
}

async fn report_wait(sql: &SqlConnection, slot: &str, waited: Duration, limit: Duration) {
    let blockers = blockers(sql, waited).await;
    if blockers.is_empty() && matches!(catalog::server_info(sql).await, Ok(server) if server.in_recovery) {
        tracing::warn!(
            slot,
            waited_s = waited.as_secs(),
            "creation of the replication slot waits for the primary's next running-transactions record; \
             SELECT pg_log_standby_snapshot() on the primary brings one"
        );
        return;
    }
    tracing::warn!(
        slot,
        waited_s = waited.as_secs(),
        limit_s = limit.as_secs(),
        "creation of the replication slot is {}",
        waits_for(&blockers)
    );
}

async fn cancel(sql: &SqlConnection, pid: Option<i32>) -> Result<(), ConnectError> {
    let Some(pid) = pid else {
        return Err(ConnectError::transient(
            "the slot's creation cannot be cancelled: its process id is unknown",
        ));
    };
    sql.query("cancelling the slot's creation", "SELECT pg_cancel_backend($1)", &[(&pid, Type::INT4)])
        .await?;
    Ok(())
}

/// Waits until the row of a cancelled creation is gone, so that its name can be used again.
async fn gone(sql: &SqlConnection, name: &str) -> Result<(), ConnectError> {
    let end = Instant::now() + CANCEL_LIMIT;
    while catalog::slot(sql, name).await?.is_some() {
        if Instant::now() >= end {
            return Err(ConnectError::transient(format!(
                "replication slot still shows after its creation was cancelled: {}",
                quote_identifier(name)
            )));
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
