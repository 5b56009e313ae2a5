//! The byte stream of an SQL connection: the replication connection's transport, dressed for tokio-postgres.
//!
//! Hosts, certificates and TLS are the transport's, already negotiated; tokio-postgres logs in over it. It would
//! send a password in clear or as an MD5 hash to any server that asks, which the replication connection refuses over
//! a network that others can listen to, so the same is refused here.
//!
//! <https://www.postgresql.org/docs/18/protocol-message-formats.html>.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use crabka_pgrepl::Transport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// A transport that tokio-postgres can log in over.
#[derive(Debug)]
pub(super) struct SqlTransport {
    inner: Transport,
    /// Watches the server's first messages where a password must not be exposed.
    watch: Option<LoginWatch>,
}

impl SqlTransport {
    pub(super) fn new(inner: Transport, exposed_password_allowed: bool) -> Self {
        let watch = (!exposed_password_allowed && !inner.is_private()).then(LoginWatch::default);
        Self { inner, watch }
    }
}

impl AsyncRead for SqlTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if let (Poll::Ready(Ok(())), Some(watch)) = (&read, &mut self.watch) {
            match watch.see(buf.filled().get(before..).unwrap_or_default()) {
                Seen::LoggingIn => {}
                Seen::LoggedIn => self.watch = None,
                Seen::PasswordAsked => return Poll::Ready(Err(exposed_password())),
            }
        }
        read
    }
}

fn exposed_password() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the server asks for the password in clear or as an MD5 hash over a connection without TLS; use sslmode=require, \
         or scram-sha-256 in pg_hba.conf",
    )
}

impl AsyncWrite for SqlTransport {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl TlsStream for SqlTransport {
    fn channel_binding(&self) -> ChannelBinding {
        match self.inner.tls_server_end_point() {
            Some(hash) => ChannelBinding::tls_server_end_point(hash.to_vec()),
            None => ChannelBinding::none(),
        }
    }
}

/// The TLS handshake that has already been made.
pub(super) struct Negotiated;

impl TlsConnect<SqlTransport> for Negotiated {
    type Stream = SqlTransport;
    type Error = io::Error;
    type Future = Ready<io::Result<SqlTransport>>;

    fn connect(self, stream: SqlTransport) -> Self::Future {
        ready(Ok(stream))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    LoggingIn,
    LoggedIn,
    PasswordAsked,
}

/// Reads the server's messages up to the end of the login: type byte, length, and of an authentication request the
/// method.
#[derive(Debug, Default)]
struct LoginWatch {
    head: Vec<u8>,
    /// Bytes of the present message that do not matter.
    skip: usize,
}

const AUTHENTICATION: u8 = b'R';
const OK: u32 = 0;
const CLEARTEXT: u32 = 3;
const MD5: u32 = 5;

impl LoginWatch {
    fn see(&mut self, mut bytes: &[u8]) -> Seen {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let Some((first, rest)) = bytes.split_first() else { break };
            self.head.push(*first);
            bytes = rest;
            match *self.head.as_slice() {
                [AUTHENTICATION, l0, l1, l2, l3, m0, m1, m2, m3] => {
                    match u32::from_be_bytes([m0, m1, m2, m3]) {
                        OK => return Seen::LoggedIn,
                        CLEARTEXT | MD5 => return Seen::PasswordAsked,
                        _ => self.next_message([l0, l1, l2, l3], 8),
                    }
                }
                [tag, l0, l1, l2, l3] if tag != AUTHENTICATION => self.next_message([l0, l1, l2, l3], 4),
                _ => {}
            }
        }
        Seen::LoggingIn
    }

    /// `seen`: bytes of the message after its type byte that have been looked at.
    fn next_message(&mut self, length: [u8; 4], seen: u32) {
        self.head.clear();
        self.skip = usize::try_from(u32::from_be_bytes(length).saturating_sub(seen)).unwrap_or(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[tag][..], &length.to_be_bytes(), body].concat()
    }

    fn request(method: u32, rest: &[u8]) -> Vec<u8> {
        message(b'R', &[&method.to_be_bytes()[..], rest].concat())
    }

    #[test]
    fn a_password_that_others_could_read_is_noticed_however_the_bytes_arrive() {
        let notice = message(b'N', b"SNOTICE\0\0");
        let scram = request(10, b"SCRAM-SHA-256\0\0");
        for (last, expected) in [
            (request(0, b""), Seen::LoggedIn),
            (request(3, b""), Seen::PasswordAsked),
            (request(5, b"salt"), Seen::PasswordAsked),
            (message(b'E', b"SFATAL\0\0"), Seen::LoggingIn),
        ] {
            let bytes = [notice.clone(), scram.clone(), message(b'v', &[0; 8]), last].concat();
            for chunk in 1..=bytes.len() {
                let mut watch = LoginWatch::default();
                let seen =
                    bytes.chunks(chunk).map(|part| watch.see(part)).find(|seen| *seen != Seen::LoggingIn);
                assert_eq!(seen.unwrap_or(Seen::LoggingIn), expected, "chunks of {chunk}");
            }
        }
    }
}
