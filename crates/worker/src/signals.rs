//! SIGTERM and SIGINT: the first asks for a graceful end, a second SIGINT ends at once.

use std::time::Duration;

use crabka_connect::ConnectError;
use crabka_connect_postgres::setup;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Failure, end_now};

/// Both signals, caught from now on.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Catches the signals instead of being ended by them.
    pub(crate) fn catch() -> Result<Self, ConnectError> {
        let catch = |kind| {
            signal(kind).map_err(|error| ConnectError::bug("signals cannot be caught").with_source(error))
        };
        Ok(Self { interrupt: catch(SignalKind::interrupt())?, terminate: catch(SignalKind::terminate())? })
    }

    /// Waits for the first signal and says which one it was.
    pub(crate) async fn first(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    /// Waits for `work`, which was asked to end; a SIGINT meanwhile ends the program, after `abort` and what
    /// [`settled`] waits for. A further SIGTERM changes nothing: whoever sends it twice did not ask for less care.
    pub(crate) async fn until<T>(&mut self, work: impl Future<Output = T>, abort: impl FnOnce()) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                outcome = &mut work => return outcome,
                _ = self.interrupt.recv() => break,
                _ = self.terminate.recv() => tracing::info!("already ending"),
            }
        }
        abort();
        tokio::select! {
            _ = tokio::time::timeout(SETTLE_LIMIT, work) => {}
            _ = self.interrupt.recv() => end_now(&Failure::Interrupted),
        }
        settled().await;
        end_now(&Failure::Interrupted)
    }
}

/// How long an end that waits for nothing may still wait for what would be left behind on a server.
const SETTLE_LIMIT: Duration = Duration::from_secs(1);

/// Waits until no creation of a slot is left half made on a server, for a short time.
pub(crate) async fn settled() {
    if tokio::time::timeout(SETTLE_LIMIT, setup::abandoned_creations_cancelled()).await.is_err() {
        tracing::warn!("the server does not take the cancel of a replication slot's creation");
    }
}
