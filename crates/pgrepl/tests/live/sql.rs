//! Ordinary SQL connections of tokio-postgres over the same transport.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use crabka_pgrepl::{Config, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{ChannelBinding, SslMode, SslNegotiation};
use tokio_postgres::tls::{self, TlsConnect};

use super::{PASSWORD, config, server, url};

/// A transport as a stream on which TLS is finished.
struct Secured(Transport);

/// "Shakes hands" by handing over what is there.
struct Finished;

impl TlsConnect<Transport> for Finished {
    type Stream = Secured;
    type Error = io::Error;
    type Future = Ready<io::Result<Secured>>;

    fn connect(self, stream: Transport) -> Self::Future {
        ready(Ok(Secured(stream)))
    }
}

impl tls::TlsStream for Secured {
    fn channel_binding(&self) -> tls::ChannelBinding {
        match self.0.tls_server_end_point() {
            Some(hash) => tls::ChannelBinding::tls_server_end_point(hash.to_vec()),
            None => tls::ChannelBinding::none(),
        }
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

async fn sql_client(
    config: &Config,
    binding: ChannelBinding,
) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let transport = config.connect_transport().await.unwrap();
    let mut sql = tokio_postgres::Config::new();
    // `Require` and `Direct` make it ask our connector for the session without a word on the wire.
    sql.user(config.user())
        .dbname(config.dbname())
        .application_name(config.application_name())
        .options(config.session_options())
        .channel_binding(binding)
        .ssl_mode(SslMode::Require)
        .ssl_negotiation(SslNegotiation::Direct);
    if let Some(password) = config.password_for(transport.peer()).unwrap() {
        sql.password(password);
    }
    let (client, connection) = sql.connect_raw(transport, Finished).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

#[tokio::test]
async fn an_sql_connection_over_tls_with_channel_binding() {
    let server = server().await;
    let config = config(&url(server, "scram_user", "localhost", "sslmode=require")).with_password(PASSWORD);
    let client = sql_client(&config, ChannelBinding::Require).await.unwrap();
    let row = client
        .query_one("SELECT current_user::text, ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[])
        .await
        .unwrap();
    assert_eq!((row.get::<_, String>(0), row.get::<_, bool>(1)), ("scram_user".into(), true));
    let datestyle: String = client.query_one("SHOW timezone", &[]).await.unwrap().get(0);
    assert_eq!(datestyle, "UTC");
}

#[tokio::test]
async fn an_sql_connection_in_clear_and_over_the_socket() {
    let server = server().await;
    let plain = url(server, "scram_user", "127.0.0.1", "sslmode=disable");
    let socket = format!(
        "postgres://scram_user@{}:{}/postgres",
        server.socket_dir().display().to_string().replace('/', "%2F"),
        server.port()
    );
    for text in [plain, socket] {
        let config = config(&text).with_password(PASSWORD);
        let client = sql_client(&config, ChannelBinding::Prefer).await.unwrap();
        let ssl: bool = client
            .query_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[])
            .await
            .unwrap()
            .get(0);
        assert!(!ssl);
        assert!(sql_client(&config, ChannelBinding::Require).await.is_err());
    }
}
