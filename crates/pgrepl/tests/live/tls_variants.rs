//! TLS with certificates that are not in order, or unusual: one server that changes its certificate.

use std::time::Duration;

use crabka_pgrepl::ErrorClass;
use crabka_testkit::PgServer;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, date_time_ymd};

use super::pki::{Pair, pki, server_params};
use super::{PASSWORD, config, connect, url};

/// The server with one certificate after the other; every one has its own file name.
struct Chameleon {
    server: PgServer,
}

impl Chameleon {
    async fn start(pairs: &[(&str, &Pair)]) -> Self {
        let mut builder = PgServer::builder().hba("host all scram_user 127.0.0.1/32 scram-sha-256");
        for (name, pair) in pairs {
            builder = builder
                .file(format!("{name}.crt"), pair.cert.clone())
                .file(format!("{name}.key"), pair.key.clone());
        }
        let first = pairs[0].0;
        let server = builder
            .setting("ssl", "on")
            .setting("ssl_cert_file", format!("{first}.crt"))
            .setting("ssl_key_file", format!("{first}.key"))
            .start()
            .await
            .unwrap();
        let sql = server.connect("postgres").await.unwrap();
        sql.batch_execute(&format!("CREATE ROLE scram_user LOGIN REPLICATION PASSWORD '{PASSWORD}'"))
            .await
            .unwrap();
        Self { server }
    }

    async fn show(&self, settings: &[(&str, String)]) {
        let before = self.loaded_at().await;
        for (name, value) in settings {
            self.server.set(name, value).await.unwrap();
        }
        self.server.reload().await.unwrap();
        // A new backend inherits the time at which the postmaster has read its files.
        while self.loaded_at().await == before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn show_certificate(&self, name: &str) {
        self.show(&[("ssl_cert_file", format!("{name}.crt")), ("ssl_key_file", format!("{name}.key"))]).await;
    }

    async fn loaded_at(&self) -> String {
        let sql = self.server.connect("postgres").await.unwrap();
        sql.query_one("SELECT pg_conf_load_time()::text", &[]).await.unwrap().get(0)
    }

    /// The message of the failure, or `ok`.
    async fn outcome(&self, host: &str, parameters: &str) -> String {
        let config = config(&url(&self.server, "scram_user", host, parameters)).with_password(PASSWORD);
        match connect(&config).await {
            Ok(client) => {
                assert!(client.peer().encrypted());
                "ok".into()
            }
            Err(error) => {
                assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
                error.to_string()
            }
        }
    }
}

fn root() -> String {
    pki().ca.display().to_string()
}

#[tokio::test]
async fn wrong_host_and_wrong_dates() {
    let mut expired = server_params(&["localhost"]);
    (expired.not_before, expired.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    let mut future = server_params(&["localhost"]);
    (future.not_before, future.not_after) = (date_time_ymd(2999, 1, 1), date_time_ymd(3000, 1, 1));
    let (expired, future) = (pki().issue(expired), pki().issue(future));
    let other_host = pki().issue(server_params(&["db.example.com"]));
    let server =
        Chameleon::start(&[("other", &other_host), ("expired", &expired), ("future", &future)]).await;

    let full = format!("sslmode=verify-full&sslrootcert={}", root());
    let ca = format!("sslmode=verify-ca&sslrootcert={}", root());
    let said = server.outcome("localhost", &full).await;
    assert!(said.contains("made out to another host") && said.contains("db.example.com"), "{said}");
    assert_eq!(server.outcome("localhost", &ca).await, "ok");
    // The name is what counts, not the address behind it.
    assert_eq!(server.outcome("db.example.com", &format!("{full}&hostaddr=127.0.0.1")).await, "ok");

    for (name, says) in [("expired", "has expired"), ("future", "not valid yet")] {
        server.show_certificate(name).await;
        for parameters in [&full, &ca] {
            let said = server.outcome("localhost", parameters).await;
            assert!(said.contains(says), "{name} {parameters}: {said}");
        }
        assert_eq!(server.outcome("localhost", "sslmode=require&channel_binding=require").await, "ok");
    }
}

#[tokio::test]
async fn certificates_as_the_documentation_makes_them() {
    let pki = pki();
    // Signs itself and is an authority, without alternative names.
    let mut own = CertificateParams::new(Vec::new()).unwrap();
    own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    own.distinguished_name.push(DnType::CommonName, "localhost");
    let own = pki.self_signed(own, &rcgen::PKCS_ECDSA_P256_SHA256);
    let own_root = pki.file("own.crt", &own.cert).display().to_string();
    // Version 1, made by `openssl x509 -req` without extensions.
    pki.openssl("req -new -newkey rsa:2048 -nodes -keyout v1.key -out v1.csr -subj /CN=localhost");
    pki.openssl("x509 -req -in v1.csr -days 2 -signkey v1.key -out v1.crt -sha512");
    assert!(pki.openssl("x509 -in v1.crt -noout -text").contains("Version: 1 "));
    let version1 = Pair { cert: pki.read("v1.crt"), key: pki.read("v1.key") };
    let v1_root = pki.file("v1_root.crt", &version1.cert).display().to_string();
    // By the common name, without alternative names.
    let mut named = server_params(&[]);
    named.distinguished_name.push(DnType::CommonName, "localhost");
    let named = pki.issue(named);
    let server = Chameleon::start(&[("own", &own), ("named", &named), ("v1", &version1)]).await;

    assert_eq!(
        server.outcome("localhost", &format!("sslmode=verify-full&sslrootcert={own_root}")).await,
        "ok"
    );
    let said = server.outcome("127.0.0.1", &format!("sslmode=verify-full&sslrootcert={own_root}")).await;
    assert!(said.contains("made out to another host"), "{said}");

    server.show_certificate("named").await;
    assert_eq!(
        server.outcome("localhost", &format!("sslmode=verify-full&sslrootcert={}", root())).await,
        "ok"
    );
    let said = server.outcome("127.0.0.1", &format!("sslmode=verify-full&sslrootcert={}", root())).await;
    assert!(said.contains("made out to another host"), "{said}");

    server.show_certificate("v1").await;
    // RSA with SHA-512, so the binding is a SHA-512 hash.
    for version in ["TLSv1.3", "TLSv1.2"] {
        server.show(&[("ssl_max_protocol_version", version.to_owned())]).await;
        assert_eq!(
            server.outcome("localhost", "sslmode=require&channel_binding=require").await,
            "ok",
            "{version}"
        );
        let said = server.outcome("localhost", &format!("sslmode=verify-ca&sslrootcert={v1_root}")).await;
        assert!(said.contains("X.509 version 1"), "{version}: {said}");
    }
}

#[tokio::test]
async fn channel_binding_hashes_as_the_certificate_is_signed() {
    let pki = pki();
    let p384 = pki.self_signed(server_params(&["localhost"]), &rcgen::PKCS_ECDSA_P384_SHA384);
    pki.openssl(
        "req -x509 -newkey rsa:2048 -nodes -keyout sha1.key -out sha1.crt -subj /CN=localhost -days 2 -sha1",
    );
    let sha1 = Pair { cert: pki.read("sha1.crt"), key: pki.read("sha1.key") };
    pki.openssl("req -x509 -newkey rsa:2048 -nodes -keyout sha512.key -out sha512.crt -subj /CN=localhost -days 2 -sha512");
    let sha512 = Pair { cert: pki.read("sha512.crt"), key: pki.read("sha512.key") };
    pki.openssl(
        "req -x509 -newkey rsa:2048 -nodes -keyout pss.key -out pss.crt -subj /CN=localhost -days 2 -sha384 \
         -sigopt rsa_padding_mode:pss",
    );
    let pss = Pair { cert: pki.read("pss.crt"), key: pki.read("pss.key") };
    let ed25519 = pki.self_signed(server_params(&["localhost"]), &rcgen::PKCS_ED25519);
    let pairs = [("p384", &p384), ("sha1", &sha1), ("sha512", &sha512), ("pss", &pss), ("ed25519", &ed25519)];
    let server = Chameleon::start(&pairs).await;
    for name in ["p384", "sha1", "sha512", "pss"] {
        server.show_certificate(name).await;
        let said = server.outcome("localhost", "sslmode=require&channel_binding=require").await;
        assert_eq!(said, "ok", "{name}");
    }
    // No hash belongs to this signature: without binding it works.
    server.show_certificate("ed25519").await;
    assert_eq!(server.outcome("localhost", "sslmode=require&channel_binding=prefer").await, "ok");
}

#[tokio::test]
async fn a_server_without_tls() {
    let server = PgServer::shared_default().await.unwrap();
    let error = connect(&config(&url(server, "postgres", "127.0.0.1", "sslmode=require"))).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Configuration);
    assert!(error.to_string().contains("does not offer TLS"), "{error}");
    for mode in ["prefer", "allow", "disable"] {
        let client = connect(&config(&url(server, "postgres", "127.0.0.1", &format!("sslmode={mode}"))))
            .await
            .unwrap();
        assert!(!client.peer().encrypted(), "{mode}");
    }
}
