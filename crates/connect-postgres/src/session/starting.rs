//! A start that outlives the poll that began it: a host may drop a poll, and a slot's creation must then be ended in
//! order or found finished by the next one.

use std::time::Duration;

use crabka_connect::ConnectError;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::start::Started;

/// How long a start that was told to stop may take to end: the creation of a slot is cancelled and its row waited for.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A start on its way. Dropping it gives the start up where it is.
#[derive(Debug)]
pub(crate) struct Starting {
    stop: oneshot::Sender<()>,
    task: Task,
}

#[derive(Debug)]
struct Task(JoinHandle<Result<Started, ConnectError>>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Starting {
    /// Begins. What `start` gets is ready once the start is to end early.
    pub(crate) fn spawn<F>(start: impl FnOnce(oneshot::Receiver<()>) -> F) -> Self
    where
        F: Future<Output = Result<Started, ConnectError>> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        Self { stop, task: Task(tokio::spawn(start(stopped))) }
    }

    /// Waits for its end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn finished(&mut self) -> Result<Started, ConnectError> {
        match (&mut self.task.0).await {
            Ok(started) => started,
            Err(error) => Err(ConnectError::bug("the start of a session panicked").with_source(error)),
        }
    }

    /// Ends it early; a creation of a slot leaves none behind.
    pub(crate) async fn stop(self) {
        let Self { stop, mut task } = self;
        let _ = stop.send(());
        match timeout(STOP_LIMIT, &mut task.0).await {
            Ok(Ok(Ok(started))) => {
                if let Err(error) = started.session.stop().await {
                    tracing::debug!(%error, "a session that was not wanted any more had failed");
                }
            }
            Ok(Ok(Err(error))) => tracing::info!("the start was given up: {error}"),
            Ok(Err(error)) => tracing::warn!(%error, "the start of a session panicked"),
            Err(_elapsed) => tracing::warn!("the start of a session did not end within {STOP_LIMIT:?}"),
        }
    }
}
