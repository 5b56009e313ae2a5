//! The byte stream to the server: TCP or a Unix socket, with TLS already negotiated.
//!
//! Both the replication connection and ordinary SQL connections of another library run over it, so that all of them
//! use the same hosts, certificates and time-outs.

mod certificate;
mod dial;
mod socket;
mod tls;
mod verify;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

pub(crate) use dial::{first_that_works, open};
pub(crate) use tls::tls_error;

use crate::Error;
use crate::config::{Config, Host, HostSpec};

/// Directories where servers put their socket unless told otherwise.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// What a connection leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub(crate) spec: HostSpec,
    pub(crate) encrypted: bool,
}

impl Peer {
    /// The connection is protected by TLS.
    pub fn encrypted(&self) -> bool {
        self.encrypted
    }

    /// Host and port under which the password file lists the server.
    pub(crate) fn password_key(&self) -> (String, u16) {
        let host = match &self.spec.host {
            Host::Default => "localhost".to_owned(),
            Host::Name(name) => name.clone(),
            Host::Directory(directory) => {
                let directory = directory.to_string_lossy();
                if SOCKET_DIRECTORIES.contains(&&*directory) {
                    "localhost".into()
                } else {
                    directory.into_owned()
                }
            }
        };
        (host, self.spec.port)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin + Send + Sync {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync> Duplex for T {}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
    Other(Box<dyn Duplex>),
}

/// A connection to the server before anybody has logged in.
///
/// It reads and writes plain protocol bytes; TLS, where it was negotiated, is underneath.
pub struct Transport {
    stream: Stream,
    peer: Peer,
    server_end_point: Option<Vec<u8>>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Transport {
    /// A transport over any byte stream: an in-memory pipe to a scripted server, a tunnel.
    ///
    /// It counts as unencrypted.
    pub fn from_io(io: impl AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static) -> Self {
        let spec = HostSpec { host: Host::Name("byte stream".into()), address: None, port: 0 };
        Self {
            stream: Stream::Other(Box::new(io)),
            peer: Peer { spec, encrypted: false },
            server_end_point: None,
        }
    }

    /// What it leads to.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The `tls-server-end-point` channel binding data: the hash of the server's certificate. `None` without TLS, or
    /// when the certificate's signature algorithm has no hash.
    pub fn tls_server_end_point(&self) -> Option<&[u8]> {
        self.server_end_point.as_deref()
    }

    /// Nobody on the network can listen: TLS, or a Unix socket.
    pub fn is_private(&self) -> bool {
        self.peer.encrypted || matches!(self.stream, Stream::Unix(_))
    }

    fn io(&mut self) -> Pin<&mut dyn Duplex> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream),
            Stream::Unix(stream) => Pin::new(stream),
            Stream::Tls(stream) => Pin::new(&mut **stream),
            Stream::Other(stream) => Pin::new(&mut **stream),
        }
    }
}

impl Config {
    /// Connects to the first host that answers, and negotiates TLS.
    ///
    /// # Errors
    ///
    /// Transient: no host could be reached. Configuration: certificates, or TLS that the server does not offer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes whatever was opened.
    pub async fn connect_transport(&self) -> Result<Transport, Error> {
        first_that_works(self, |place, encryption| dial::open(self, place, encryption)).await
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.io().poll_read(cx, buf)
    }
}

impl AsyncWrite for Transport {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.io().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io().poll_shutdown(cx)
    }
}
