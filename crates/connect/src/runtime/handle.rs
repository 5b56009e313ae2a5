//! How the host steers a run from outside.

use std::sync::Arc;

use tokio::sync::watch;

use super::figures::RunFigures;
use super::status::{Phase, Status, StatusWriter};

/// What the host wants. Later ones are stronger: a stop is not undone by a resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Command {
    Run,
    Pause,
    Stop,
    Abort,
}

/// Steers a [`ConnectorRuntime`](super::ConnectorRuntime) and watches it. Clones steer the same run.
#[derive(Debug, Clone)]
pub struct RuntimeHandle {
    pub(super) command: Arc<watch::Sender<Command>>,
    pub(super) status: watch::Receiver<Status>,
    figures: Arc<RunFigures>,
}

impl RuntimeHandle {
    pub(super) fn new(status: &StatusWriter) -> Self {
        let command = Arc::new(watch::Sender::new(Command::Run));
        Self { command, status: status.subscribe(), figures: status.figures() }
    }

    /// Stops polling once everything polled is delivered, checkpointed and acknowledged. Source and sink stay open.
    pub fn pause(&self) {
        self.ask(Command::Pause);
    }

    /// Polls again after [`pause`](Self::pause). Does not undo a stop.
    pub fn resume(&self) {
        self.ask(Command::Run);
    }

    /// Asks for a graceful end: what was polled is finished, checkpointed and acknowledged, source and sink are
    /// closed, and `run` returns `Ok`. Returns at once; see [`ended`](Self::ended).
    pub fn stop(&self) {
        self.ask(Command::Stop);
    }

    /// Ends the run now. What is in flight is left as it is and will be delivered again at the next start; source and
    /// sink are dropped and not closed.
    pub fn abort(&self) {
        self.ask(Command::Abort);
    }

    fn ask(&self, command: Command) {
        self.command.send_if_modified(|current| {
            let change = if *current >= Command::Stop { command > *current } else { command != *current };
            if change {
                *current = command;
            }
            change
        });
    }

    /// What the run is doing right now.
    pub fn state(&self) -> Phase {
        self.status.borrow().phase
    }

    /// The status right now.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// A watch that changes with the status.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Counts of the run, for metrics.
    pub fn figures(&self) -> Arc<RunFigures> {
        Arc::clone(&self.figures)
    }

    /// Waits until the run has ended and returns its last status.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn ended(&self) -> Status {
        self.until(|status| status.phase.has_ended()).await
    }

    /// Waits until `condition` holds for the status, or the run has ended, and returns the status.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn until(&self, mut condition: impl FnMut(&Status) -> bool + Send) -> Status {
        let mut status = self.status.clone();
        let found = status
            .wait_for(|status| condition(status) || status.phase.has_ended())
            .await
            .map(|status| status.clone());
        // The sender is gone only with the run, and then the last value says how it ended.
        found.unwrap_or_else(|_| self.status())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemClock;

    #[test]
    fn stronger_commands_stay() {
        let status = StatusWriter::new("orders", Arc::new(SystemClock));
        let handle = RuntimeHandle::new(&status);
        let now = || *handle.command.borrow();
        handle.pause();
        assert_eq!(now(), Command::Pause);
        handle.resume();
        assert_eq!(now(), Command::Run);
        handle.stop();
        handle.resume();
        handle.pause();
        assert_eq!(now(), Command::Stop);
        handle.abort();
        handle.stop();
        assert_eq!(now(), Command::Abort);
    }
}
