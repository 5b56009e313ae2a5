//! Who the server is: libpq's three degrees of checking a certificate.
//!
//! Where this is milder than the TLS library: a certificate that is itself the trusted one may be an authority, and a
//! certificate without alternative names is matched by its common name. The documentation's own recipe for
//! server certificates makes such ones.
//!
//! <https://www.postgresql.org/docs/18/libpq-ssl.html#LIBQ-SSL-CERTIFICATES>

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, PeerMisbehaved, RootCertStore, SignatureScheme};

use super::certificate::Certificate;

/// What is checked.
#[derive(Debug)]
pub(super) enum Check {
    /// Only that the server owns the certificate it shows.
    Possession,
    /// And that a trusted authority has signed it; with `name`, that it is made out to the host.
    Chain { roots: RootCertStore, trusted: Vec<CertificateDer<'static>>, name: bool },
}

#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) check: Check,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// The host as it was written, for common names.
    pub(super) host: String,
}

fn bad(error: CertificateError) -> rustls::Error {
    rustls::Error::InvalidCertificate(error)
}

fn other(message: &'static str) -> rustls::Error {
    rustls::Error::General(message.into())
}

impl Verifier {
    /// `end_entity` is one of the trusted certificates itself: only its dates are to be checked.
    fn check_dates(end_entity: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
        let certificate = Certificate::parse(end_entity).ok_or_else(|| bad(CertificateError::BadEncoding))?;
        if now.as_secs() < certificate.not_before {
            return Err(bad(CertificateError::NotValidYet));
        }
        if now.as_secs() > certificate.not_after {
            return Err(bad(CertificateError::Expired));
        }
        Ok(())
    }

    fn check_name(
        &self,
        end_entity: &CertificateDer<'_>,
        server_name: &ServerName<'_>,
    ) -> Result<(), rustls::Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let Err(mismatch) = verify_server_name(&parsed, server_name) else { return Ok(()) };
        let certificate = Certificate::parse(end_entity).ok_or_else(|| bad(CertificateError::BadEncoding))?;
        match certificate.common_name {
            Some(name) if !certificate.has_alternative_names && name_matches(name, &self.host) => Ok(()),
            _ => Err(mismatch),
        }
    }
}

/// Equal but for case, or a leading `*.` in place of exactly one label.
fn name_matches(pattern: &str, host: &str) -> bool {
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    match (pattern.strip_prefix("*."), host.split_once('.')) {
        (Some(domain), Some((label, rest))) => {
            !label.is_empty() && domain.contains('.') && domain.eq_ignore_ascii_case(rest)
        }
        _ => false,
    }
}

/// A signature by the key of a certificate that the TLS library cannot read because it is of version 1.
fn verify_by_key(
    message: &[u8],
    certificate: &Certificate<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
    tls13: bool,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let pkcs1 = [
        SignatureScheme::RSA_PKCS1_SHA256,
        SignatureScheme::RSA_PKCS1_SHA384,
        SignatureScheme::RSA_PKCS1_SHA512,
    ];
    if tls13 && pkcs1.contains(&signed.scheme) {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    }
    let mapped =
        algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme).map(|(_, list)| *list);
    let candidates = mapped.unwrap_or_default();
    let fitting = candidates
        .iter()
        .find(|algorithm| algorithm.public_key_alg_id().as_ref() == certificate.key_algorithm);
    match fitting {
        Some(algorithm)
            if algorithm.verify_signature(certificate.key, message, signed.signature()).is_ok() =>
        {
            Ok(HandshakeSignatureValid::assertion())
        }
        _ => Err(bad(CertificateError::BadSignature)),
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Check::Chain { roots, trusted, name } = &self.check else {
            return Ok(ServerCertVerified::assertion());
        };
        if Certificate::parse(end_entity).is_some_and(|certificate| certificate.version < 3) {
            return Err(other(
                "the server's certificate is of X.509 version 1 or 2 and cannot be verified; issue it again with \
                 extensions (openssl x509 -req ... -extfile FILE with the line subjectAltName=DNS:HOST)",
            ));
        }
        if trusted.iter().any(|root| root == end_entity) {
            Self::check_dates(end_entity, now)?;
        } else {
            let parsed = ParsedCertificate::try_from(end_entity)?;
            verify_server_cert_signed_by_trust_anchor(
                &parsed,
                roots,
                intermediates,
                now,
                self.algorithms.all,
            )?;
        }
        if *name {
            self.check_name(end_entity, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match Certificate::parse(cert) {
            Some(old) if old.version < 3 => verify_by_key(message, &old, signed, &self.algorithms, false),
            _ => verify_tls12_signature(message, cert, signed, &self.algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match Certificate::parse(cert) {
            Some(old) if old.version < 3 => verify_by_key(message, &old, signed, &self.algorithms, true),
            _ => verify_tls13_signature(message, cert, signed, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::name_matches;

    #[test]
    fn common_names_match_as_in_libpq() {
        for (pattern, host, fits) in [
            ("db.example.com", "DB.example.com", true),
            ("*.example.com", "db.example.com", true),
            ("*.example.com", "a.b.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.example.com", ".example.com", false),
            ("*.com", "example.com", false),
            ("*", "localhost", false),
            ("d*.example.com", "db.example.com", false),
            ("127.0.0.1", "127.0.0.1", true),
        ] {
            assert_eq!(name_matches(pattern, host), fits, "{pattern} {host}");
        }
    }
}
