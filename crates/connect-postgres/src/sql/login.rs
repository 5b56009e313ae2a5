//! Logging in with tokio-postgres over the transport of the replication connection.

use std::io;

use crabka_pgrepl::{ChannelBinding, Config, Error, Peer, ServerMessage, ServerRole, Transport};
use tokio_postgres::config::{self, SslMode, SslNegotiation};
use tokio_postgres::{Client, Connection};

use super::transport::{Negotiated, SqlTransport};

/// A session before it is driven by a task.
type Session = (Client, Connection<SqlTransport, SqlTransport>, Peer);

pub(super) async fn log_in(config: &Config, transport: Transport) -> Result<(Session, ServerRole), Error> {
    let peer = transport.peer().clone();
    let settings = settings(config, &peer)?;
    let transport = SqlTransport::new(transport, config.insecure_password_allowed());
    let (client, connection) = settings.connect_raw(transport, Negotiated).await.map_err(refused)?;
    let role = ServerRole::from_parameters(|name| connection.parameter(name));
    Ok(((client, connection, peer), role))
}

/// What tokio-postgres has to know to log in. TLS is there already or is not wanted: it must not ask for it again.
fn settings(config: &Config, peer: &Peer) -> Result<tokio_postgres::Config, Error> {
    let mut settings = tokio_postgres::Config::new();
    settings
        .user(config.user())
        .dbname(config.dbname())
        .application_name(config.application_name())
        .options(config.session_options())
        .channel_binding(match config.channel_binding() {
            ChannelBinding::Disable => config::ChannelBinding::Disable,
            ChannelBinding::Prefer => config::ChannelBinding::Prefer,
            ChannelBinding::Require => config::ChannelBinding::Require,
        });
    if peer.encrypted() {
        settings.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    } else {
        settings.ssl_mode(SslMode::Disable);
    }
    if let Some(password) = config.password_for(peer)? {
        settings.password(password);
    }
    Ok(settings)
}

/// A log-in that failed, in the words of the replication connection, whose search for a host goes by them.
fn refused(error: tokio_postgres::Error) -> Error {
    if let Some(db) = error.as_db_error() {
        let hint = db.hint().map(str::to_owned);
        let message = ServerMessage::new(db.severity(), db.code().code(), db.message(), hint);
        return Error::Server(Box::new(message));
    }
    if error.is_closed() {
        return Error::Closed { during: "logging in" };
    }
    let text = error.to_string();
    match error.into_source().map(|source| source.downcast::<io::Error>()) {
        Some(Ok(source)) if source.kind() == io::ErrorKind::PermissionDenied => {
            Error::Auth { message: source.to_string() }
        }
        Some(Ok(source)) if text.starts_with("error communicating") => {
            Error::Io { context: "logging in".to_owned(), source: *source }
        }
        Some(Ok(source)) => Error::Auth { message: format!("{text}: {source}") },
        Some(Err(source)) => Error::Auth { message: format!("{text}: {source}") },
        None => Error::Auth { message: text },
    }
}
