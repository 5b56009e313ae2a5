//! SIGTERM and SIGINT: the first asks for a graceful end, a second SIGINT ends at once.

use crabka_connect::ConnectError;
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

    /// Waits for `work`, which was asked to end; a SIGINT meanwhile ends the program at once. A further SIGTERM changes
    /// nothing: whoever sends it twice did not ask for less care.
    pub(crate) async fn until<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                outcome = &mut work => return outcome,
                _ = self.interrupt.recv() => end_now(&Failure::Interrupted),
                _ = self.terminate.recv() => tracing::info!("already ending"),
            }
        }
    }
}
