//! The HTTP endpoints: `/live`, `/ready`, `/status` and `/metrics`.
//!
//! All of them answer from figures that the run writes anyway, so they never touch what does the work.

use std::net::SocketAddr;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use crabka_connect::ConnectError;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::watch::{Watch, metrics};

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
pub(crate) async fn serve(address: &str, watch: Watch) -> Result<Endpoints, ConnectError> {
    let refused = |error: std::io::Error| {
        ConnectError::configuration(format!("http.listen cannot be listened on: {address}: {error}"))
            .with_source(error)
            .with_fix("choose another address or port, or end the program that has it")
    };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let local: SocketAddr = listener.local_addr().map_err(refused)?;
    tracing::info!(address = %local, "http endpoints: /live /ready /status /metrics");
    let router = Router::new()
        .route("/live", get(live))
        .route("/ready", get(ready))
        .route("/status", get(status))
        .route("/metrics", get(exposition))
        .with_state(watch);
    let task = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "http endpoints ended");
        }
    });
    Ok(Endpoints { task })
}

/// Alive as long as the run has not ended: then the process is about to end as well.
async fn live(State(watch): State<Watch>) -> (StatusCode, Json<Value>) {
    let phase = watch.status.borrow().phase;
    (code(!phase.has_ended()), Json(json!({ "live": !phase.has_ended(), "phase": phase })))
}

/// Ready while the stream moves or has nothing to move; in both cases it says why.
async fn ready(State(watch): State<Watch>) -> (StatusCode, Json<Value>) {
    let view = watch.view();
    let reason = view.reason();
    let body = json!({
        "ready": reason.ready,
        "phase": view.status.phase,
        "code": reason.code.as_str(),
        "reason": reason.text,
    });
    (code(reason.ready), Json(body))
}

async fn status(State(watch): State<Watch>) -> Json<Value> {
    Json(watch.view().to_json())
}

async fn exposition(State(watch): State<Watch>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::exposition(watch.view()))
}

fn code(good: bool) -> StatusCode {
    if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}
