//! Tries hosts, addresses and kinds of encryption until one works.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use super::socket::{self, Address};
use super::tls::{self, Negotiated};
use super::{Peer, Stream, Transport};
use crate::config::{Config, Host, HostSpec, SslMode, TargetSession};
use crate::{Error, ErrorClass};

/// One address of one host.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) spec: HostSpec,
    pub(crate) address: Address,
    /// On the first of two rounds only a standby will do.
    pub(crate) target: TargetSession,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encryption {
    Plain,
    Tls,
}

/// The kinds of encryption to try on an address, in order.
fn encryptions(config: &Config, address: &Address) -> &'static [Encryption] {
    if matches!(address, Address::Unix(_)) {
        return &[Encryption::Plain];
    }
    match config.ssl.mode {
        SslMode::Disable => &[Encryption::Plain],
        SslMode::Allow => &[Encryption::Plain, Encryption::Tls],
        SslMode::Prefer => &[Encryption::Tls, Encryption::Plain],
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => &[Encryption::Tls],
    }
}

/// Runs `attempt` on one address after the other and returns its first success.
///
/// A refused login ends the search, as in libpq: the next host would be asked the same.
pub(crate) async fn first_that_works<T, Attempt, Answer>(
    config: &Config,
    attempt: Attempt,
) -> Result<T, Error>
where
    Attempt: Fn(Place, Encryption) -> Answer,
    Answer: Future<Output = Result<T, Error>>,
{
    let mut failures = Vec::new();
    let rounds: &[TargetSession] = match config.target {
        TargetSession::PreferStandby => &[TargetSession::Standby, TargetSession::Any],
        ref other => std::slice::from_ref(other),
    };
    for target in rounds {
        for spec in &config.hosts {
            let found =
                within(config.connect_timeout, || format!("looking up {spec}"), socket::addresses(spec))
                    .await;
            let addresses = match found {
                Ok(addresses) => addresses,
                Err(error) => {
                    failures.push((spec.to_string(), error));
                    continue;
                }
            };
            for address in addresses {
                let place = Place { spec: pinned(spec, &address), address, target: *target };
                match one_address(config, place, &attempt).await {
                    Ok(done) => return Ok(done),
                    Err(error) if ends_the_search(&error) => return Err(error),
                    Err(error) => failures.push((spec.to_string(), error)),
                }
            }
        }
    }
    Err(match failures.pop() {
        Some((_, only)) if failures.is_empty() => only,
        Some(last) => {
            failures.push(last);
            Error::Hosts { failures }
        }
        None => Error::config("no host to connect to"),
    })
}

async fn one_address<T, Attempt, Answer>(config: &Config, place: Place, attempt: &Attempt) -> Result<T, Error>
where
    Attempt: Fn(Place, Encryption) -> Answer,
    Answer: Future<Output = Result<T, Error>>,
{
    let mut first_error = None;
    for encryption in encryptions(config, &place.address) {
        match within(
            config.connect_timeout,
            || format!("connecting to {}", place.spec),
            attempt(place.clone(), *encryption),
        )
        .await
        {
            Ok(done) => return Ok(done),
            Err(error) => {
                let other_may_work = other_encryption_may_work(&error);
                let error = first_error.take().unwrap_or(error);
                if !other_may_work {
                    return Err(error);
                }
                first_error = Some(error);
            }
        }
    }
    Err(first_error.unwrap_or_else(|| Error::config("no kind of encryption to try")))
}

/// `pg_hba.conf` may have a line for the other kind only, and a server may offer no TLS or a broken one.
fn other_encryption_may_work(error: &Error) -> bool {
    matches!(error, Error::Tls { .. }) || error.sqlstate() == Some("28000")
}

fn ends_the_search(error: &Error) -> bool {
    match error.class() {
        ErrorClass::Authentication | ErrorClass::Caller => true,
        ErrorClass::Server => true,
        ErrorClass::Transient | ErrorClass::Configuration | ErrorClass::Protocol => false,
    }
}

async fn within<T>(
    limit: Option<Duration>,
    doing: impl FnOnce() -> String,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match limit {
        None => work.await,
        Some(limit) => tokio::time::timeout(limit, work)
            .await
            .unwrap_or_else(|_| Err(Error::TimedOut { context: doing(), limit })),
    }
}

/// The host narrowed to the address in use.
fn pinned(spec: &HostSpec, address: &Address) -> HostSpec {
    let mut spec = spec.clone();
    match address {
        Address::Tcp(address) => spec.address = Some(address.ip()),
        Address::Unix(path) => spec.host = Host::Directory(path.parent().unwrap_or(path).to_owned()),
    }
    spec
}

/// Opens the socket and, where wanted, TLS on it.
pub(crate) async fn open(config: &Config, place: Place, encryption: Encryption) -> Result<Transport, Error> {
    let plain =
        |stream, spec| Transport { stream, peer: Peer { spec, encrypted: false }, server_end_point: None };
    let address = match &place.address {
        Address::Unix(path) => return Ok(plain(Stream::Unix(socket::unix(path).await?), place.spec)),
        Address::Tcp(address) => *address,
    };
    let stream = socket::tcp(address, &config.tcp).await?;
    if encryption == Encryption::Plain {
        return Ok(plain(Stream::Tcp(stream), place.spec));
    }
    match tls::negotiate(stream, &config.ssl, &certificate_name(&place.spec, address), address.ip()).await? {
        Negotiated::Tls(stream) => Ok(Transport {
            server_end_point: tls::server_end_point(&stream),
            stream: Stream::Tls(stream),
            peer: Peer { spec: place.spec, encrypted: true },
        }),
        Negotiated::Refused(stream) if config.ssl.mode == SslMode::Prefer => {
            Ok(plain(Stream::Tcp(stream), place.spec))
        }
        Negotiated::Refused(_) => Err(Error::tls(
            "the server does not offer TLS; set ssl = on with a certificate in its postgresql.conf, or lower sslmode",
        )),
    }
}

/// The name that the server's certificate should carry.
fn certificate_name(spec: &HostSpec, address: SocketAddr) -> String {
    match &spec.host {
        Host::Name(name) => name.clone(),
        Host::Default => "localhost".into(),
        Host::Directory(_) => address.ip().to_string(),
    }
}
