//! The HTTP endpoints: `/live`, `/ready` and `/status`.
//!
//! All three answer from the runtime's status watch, so they never touch what does the work.

use std::net::SocketAddr;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use crabka_connect::{ConnectError, Phase, Status};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The endpoints; they end with it.
pub(crate) struct Endpoints {
    task: JoinHandle<()>,
}

impl Drop for Endpoints {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Listens on `address` and answers until the result is dropped.
///
/// # Errors
///
/// Of the configuration class when the address cannot be listened on.
pub(crate) async fn serve(address: &str, status: watch::Receiver<Status>) -> Result<Endpoints, ConnectError> {
    let refused = |error: std::io::Error| {
        ConnectError::configuration(format!("http.listen cannot be listened on: {address}: {error}"))
            .with_source(error)
            .with_fix("choose another address or port, or end the program that has it")
    };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let local: SocketAddr = listener.local_addr().map_err(refused)?;
    tracing::info!(address = %local, "http endpoints: /live /ready /status");
    let router = Router::new()
        .route("/live", get(live))
        .route("/ready", get(ready))
        .route("/status", get(full_status))
        .with_state(status);
    let task = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "http endpoints ended");
        }
    });
    Ok(Endpoints { task })
}

/// Alive as long as the run has not ended: then the process is about to end as well.
async fn live(State(status): State<watch::Receiver<Status>>) -> (StatusCode, Json<Value>) {
    let phase = status.borrow().phase;
    (code(!phase.has_ended()), Json(json!({ "live": !phase.has_ended(), "phase": phase })))
}

/// Ready while changes are taken; else it says why not.
async fn ready(State(status): State<watch::Receiver<Status>>) -> (StatusCode, Json<Value>) {
    let status = status.borrow().clone();
    match reason(&status) {
        None => (StatusCode::OK, Json(json!({ "ready": true, "phase": status.phase }))),
        Some(reason) => {
            let body = json!({ "ready": false, "phase": status.phase, "reason": reason });
            (StatusCode::SERVICE_UNAVAILABLE, Json(body))
        }
    }
}

async fn full_status(State(status): State<watch::Receiver<Status>>) -> Json<Status> {
    Json(status.borrow().clone())
}

fn code(good: bool) -> StatusCode {
    if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Why the run is not ready; `None` when it is.
fn reason(status: &Status) -> Option<String> {
    let error = || match &status.last_error {
        Some(error) => format!("{}: {}", error.class, error.message),
        None => "no error was noted".to_owned(),
    };
    match status.phase {
        // Reopened, but nothing has gone through yet: whether it works is not known.
        Phase::Running if status.attempts > 0 => {
            Some(format!("trying again after {} failed attempts: {}", status.attempts, error()))
        }
        Phase::Running => None,
        Phase::Starting => Some("opening source and sink".to_owned()),
        Phase::Paused => Some("paused".to_owned()),
        Phase::BackingOff => Some(format!("waiting after attempt {} failed: {}", status.attempts, error())),
        Phase::Draining => Some("finishing what was read before it stops".to_owned()),
        Phase::Stopped => Some("stopped".to_owned()),
        Phase::Aborted => Some("aborted".to_owned()),
        Phase::Failed => Some(format!("ended by an error: {}", error())),
    }
}
