//! Certificates for the tests, made anew for each run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SignatureAlgorithm,
};
use tempfile::TempDir;

/// PEM of a certificate and of its key.
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

pub(crate) struct Pki {
    dir: TempDir,
    pub(crate) ca_pem: String,
    /// PEM file of the authority.
    pub(crate) ca: PathBuf,
    /// PEM file of an authority that has signed nothing.
    pub(crate) other_ca: PathBuf,
    /// For localhost and 127.0.0.1.
    pub(crate) server: Pair,
    issuer: Issuer<'static, KeyPair>,
    other_issuer: Issuer<'static, KeyPair>,
}

pub(crate) fn pki() -> &'static Pki {
    static PKI: OnceLock<Pki> = OnceLock::new();
    PKI.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let (ca_pem, issuer) = authority("crabka test authority");
        let (other_pem, other_issuer) = authority("another test authority");
        let ca = write(dir.path(), "ca.crt", &ca_pem);
        let other_ca = write(dir.path(), "other.crt", &other_pem);
        let server =
            signed(server_params(&["localhost", "127.0.0.1"]), &issuer, &rcgen::PKCS_ECDSA_P256_SHA256);
        Pki { dir, ca_pem, ca, other_ca, server, issuer, other_issuer }
    })
}

fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}

pub(crate) fn server_params(names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn signed(
    params: CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
    algorithm: &'static SignatureAlgorithm,
) -> Pair {
    let key = KeyPair::generate_for(algorithm).unwrap();
    Pair { cert: params.signed_by(&key, issuer).unwrap().pem(), key: key.serialize_pem() }
}

fn write(dir: &Path, name: &str, contents: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join(name);
    std::fs::write(&path, contents).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

impl Pki {
    /// A file readable by its owner alone.
    pub(crate) fn file(&self, name: &str, contents: &str) -> PathBuf {
        write(self.dir.path(), name, contents)
    }

    /// A certificate signed by the trusted authority.
    pub(crate) fn issue(&self, params: CertificateParams) -> Pair {
        signed(params, &self.issuer, &rcgen::PKCS_ECDSA_P256_SHA256)
    }

    /// A client certificate for a role.
    pub(crate) fn client(&self, role: &str, trusted: bool) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, role);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let issuer = if trusted { &self.issuer } else { &self.other_issuer };
        signed(params, issuer, &rcgen::PKCS_ECDSA_P256_SHA256)
    }

    /// A certificate that signs itself, with this kind of key.
    pub(crate) fn self_signed(
        &self,
        params: CertificateParams,
        algorithm: &'static SignatureAlgorithm,
    ) -> Pair {
        let key = KeyPair::generate_for(algorithm).unwrap();
        Pair { cert: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    }

    /// Runs `openssl` in the directory of the files and returns its output.
    pub(crate) fn openssl(&self, arguments: &str) -> String {
        let output = Command::new("openssl")
            .args(arguments.split_whitespace())
            .current_dir(self.dir.path())
            .output()
            .expect("openssl is needed for certificates that rcgen does not make");
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The contents of a file that `openssl` has made.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }
}
