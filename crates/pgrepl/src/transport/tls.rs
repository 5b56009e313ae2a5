//! TLS over TCP, by rustls.
//!
//! <https://www.postgresql.org/docs/18/libpq-ssl.html>
//! <https://www.postgresql.org/docs/18/protocol-flow.html#PROTOCOL-FLOW-SSL>

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::certificate::Certificate;
use super::verify::{Check, Verifier};
use crate::Error;
use crate::config::{ClientCert, RootCert, SslConfig, SslMode};

/// What the server said to the request for TLS.
pub(super) enum Negotiated {
    Tls(Box<TlsStream<TcpStream>>),
    /// It has none; the connection can go on in clear.
    Refused(TcpStream),
}

/// Asks for TLS and shakes hands. `host` is the name the certificate should carry.
pub(super) async fn negotiate(
    mut stream: TcpStream,
    ssl: &SslConfig,
    host: &str,
    address: IpAddr,
) -> Result<Negotiated, Error> {
    if !ssl.direct && !ask(&mut stream).await? {
        return Ok(Negotiated::Refused(stream));
    }
    let server_name = match ServerName::try_from(host.to_owned()) {
        Ok(name) => name,
        Err(_) if ssl.mode == SslMode::VerifyFull => {
            return Err(Error::config(format!("the host is no name that a certificate can carry: {host}")));
        }
        Err(_) => ServerName::IpAddress(address.into()),
    };
    let settings = ssl.clone();
    let host = host.to_owned();
    // Reads certificate files.
    let config = tokio::task::spawn_blocking(move || client_config(&settings, host))
        .await
        .map_err(|error| Error::tls(format!("the TLS settings could not be read: {error}")))??;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(server_name, stream).await.map_err(handshake_error)?;
    Ok(Negotiated::Tls(Box::new(stream)))
}

/// SSLRequest; whether the server is willing.
async fn ask(stream: &mut TcpStream) -> Result<bool, Error> {
    let failed = |source| Error::io("the connection broke while asking for TLS", source);
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    stream.write_all(&request).await.map_err(failed)?;
    // One byte and no more: what follows belongs to the handshake.
    match stream.read_u8().await {
        Ok(b'S') => Ok(true),
        Ok(b'N') => Ok(false),
        // An error message, which nobody vouches for: it is not read.
        Ok(b'E') => {
            Err(Error::io("the server cannot take connections now", io::ErrorKind::ConnectionRefused.into()))
        }
        Ok(other) => {
            Err(Error::protocol(format!("unexpected answer to the request for TLS: {:?}", char::from(other))))
        }
        Err(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
            Err(Error::Closed { during: "asking for TLS" })
        }
        Err(source) => Err(failed(source)),
    }
}

fn client_config(ssl: &SslConfig, host: String) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let versions: &[_] = if ssl.tls13_only {
        &[&rustls::version::TLS13]
    } else {
        &[&rustls::version::TLS13, &rustls::version::TLS12]
    };
    let verifier = Verifier { check: check(ssl)?, algorithms, host };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| Error::tls(format!("TLS cannot be set up: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &ssl.client_cert {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let (chain, key) = client_cert(files)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                Error::config(format!(
                    "the client certificate {} and its key {} cannot be used: {error}",
                    files.cert.display(),
                    files.key.display()
                ))
            })?
        }
    };
    config.enable_sni = ssl.sni;
    config.resumption = Resumption::disabled();
    if ssl.direct {
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(config)
}

/// What the mode and the root certificates ask for.
fn check(ssl: &SslConfig) -> Result<Check, Error> {
    let name = ssl.mode == SslMode::VerifyFull;
    let path = match (&ssl.root_cert, ssl.mode) {
        (RootCert::None, SslMode::VerifyCa | SslMode::VerifyFull) => {
            return Err(Error::config(
                "sslmode=verify-ca and verify-full need to know whom to trust; set sslrootcert to the authority's PEM \
                 file, put it into ~/.postgresql/root.crt, or set sslrootcert=system",
            ));
        }
        (RootCert::None, _) => return Ok(Check::Possession),
        // With a root certificate at hand `require` means `verify-ca`, weaker modes do not verify.
        (RootCert::File(_), mode) if mode < SslMode::Require => return Ok(Check::Possession),
        (RootCert::File(path), _) => path,
        (RootCert::System, _) => {
            let mut roots = RootCertStore::empty();
            let found = rustls_native_certs::load_native_certs();
            if roots.add_parsable_certificates(found.certs).0 == 0 {
                return Err(Error::config(
                    "sslrootcert=system, but the operating system has no trusted authorities; install its \
                     ca-certificates, or name a file",
                ));
            }
            return Ok(Check::Chain { roots, trusted: Vec::new(), name });
        }
    };
    let trusted = certificates(path, "sslrootcert")?;
    let mut roots = RootCertStore::empty();
    for certificate in &trusted {
        roots.add(certificate.clone()).map_err(|error| {
            Error::config(format!(
                "sslrootcert holds a certificate that cannot be used: {}: {error}",
                path.display()
            ))
        })?;
    }
    Ok(Check::Chain { roots, trusted, name })
}

fn certificates(path: &Path, parameter: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bytes = std::fs::read(path).map_err(|error| {
        Error::config(format!("cannot read the file of {parameter}: {}: {error}", path.display()))
    })?;
    let found = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>().map_err(|error| {
        Error::config(format!("the file of {parameter} is not PEM: {}: {error}", path.display()))
    })?;
    if found.is_empty() {
        return Err(Error::config(format!(
            "the file of {parameter} holds no certificate: {}",
            path.display()
        )));
    }
    Ok(found)
}

fn client_cert(files: &ClientCert) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
    let chain = certificates(&files.cert, "sslcert")?;
    let path = files.key.display();
    check_key_mode(&files.key)?;
    let bytes = std::fs::read(&files.key)
        .map_err(|error| Error::config(format!("cannot read the file of sslkey: {path}: {error}")))?;
    let encrypted = [&b"ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"];
    if encrypted.iter().any(|mark| bytes.windows(mark.len()).any(|window| window == *mark)) {
        return Err(Error::config(format!(
            "the file of sslkey is encrypted, which is not supported; decrypt it (openssl pkey -in KEY -out NEW, mode \
             0600): {path}"
        )));
    }
    let key = PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_| Error::config(format!("the file of sslkey holds no private key in PEM form: {path}")))?;
    Ok((chain, key))
}

/// A key that others can read is refused, as libpq refuses it; a key of root may be readable by its group.
#[cfg(unix)]
fn check_key_mode(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).map_err(|error| {
        Error::config(format!("cannot read the file of sslkey: {}: {error}", path.display()))
    })?;
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & forbidden != 0 {
        return Err(Error::config(format!(
            "the file of sslkey may be read by group or others and is not used; run: chmod 0600 {}",
            path.display()
        )));
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_key_mode(_path: &Path) -> Result<(), Error> {
    Ok(())
}

/// The channel binding data of a session.
pub(super) fn server_end_point(stream: &TlsStream<TcpStream>) -> Option<Vec<u8>> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    Certificate::parse(certificate)?.end_point_hash(certificate)
}

fn handshake_error(error: io::Error) -> Error {
    match tls_error(&error) {
        Some(message) => Error::tls(message),
        None if error.kind() == io::ErrorKind::UnexpectedEof => Error::Closed { during: "the TLS handshake" },
        None => Error::io("the connection broke in the TLS handshake", error),
    }
}

/// What to say about an I/O error that is a TLS error underneath, and that somebody must act on.
pub(crate) fn tls_error(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        rustls::Error::InvalidCertificate(reason) => certificate_error(reason),
        rustls::Error::General(message) => message.clone(),
        rustls::Error::AlertReceived(
            alert @ (AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateRequired
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError),
        ) => format!(
            "the server refused the client certificate; check sslcert and sslkey, the alert was: {alert:?}"
        ),
        other => format!("TLS failed: {other}"),
    })
}

fn certificate_error(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired; renew it on the server".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet; check the clocks of both machines".into()
        }
        // A bad signature: an authority that was made anew with the name of the one before.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the server's certificate is not signed by an authority of sslrootcert; name the right file"
                .into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
            "the server's certificate is made out to another host; connect by a name it carries, or set \
             sslmode=verify-ca: {error}"
        ),
        other => format!("the server's certificate cannot be trusted: {other}"),
    }
}
