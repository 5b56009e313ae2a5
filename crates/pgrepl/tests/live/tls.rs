//! TLS with a server whose certificate is in order.

use crabka_pgrepl::{Config, Error, ErrorClass};

use super::pki::pki;
use super::{PASSWORD, config, connect, one, server, url};

async fn cert_config(cert: &str, key: &str) -> Config {
    config(&url(
        server().await,
        "cert_user",
        "localhost",
        &format!("sslmode=require&sslcert={cert}&sslkey={key}"),
    ))
}

#[tokio::test]
async fn a_good_certificate_passes_every_check() {
    let server = server().await;
    let root = pki().ca.display().to_string();
    for (host, mode) in [
        ("localhost", "verify-full"),
        ("127.0.0.1", "verify-full"),
        ("127.0.0.1", "verify-ca"),
        ("localhost", "require"),
    ] {
        let config = config(&url(server, "postgres", host, &format!("sslmode={mode}&sslrootcert={root}")));
        let mut client = connect(&config).await.unwrap_or_else(|error| panic!("{host} {mode}: {error}"));
        assert!(client.peer().encrypted());
        assert_eq!(one(&mut client, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").await, "t");
    }
}

#[tokio::test]
async fn both_protocol_versions_are_spoken() {
    let server = server().await;
    let mut newest =
        connect(&config(&url(server, "postgres", "localhost", "sslmode=require"))).await.unwrap();
    let sql = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(one(&mut newest, sql).await, "TLSv1.3");
    let only13 = "sslmode=require&ssl_min_protocol_version=TLSv1.3";
    let mut newest = connect(&config(&url(server, "postgres", "localhost", only13))).await.unwrap();
    assert_eq!(one(&mut newest, sql).await, "TLSv1.3");
}

#[tokio::test]
async fn an_unknown_authority_is_refused_once_anything_is_verified() {
    let server = server().await;
    let other = pki().other_ca.display().to_string();
    for mode in ["verify-full", "verify-ca", "require"] {
        let config =
            config(&url(server, "postgres", "localhost", &format!("sslmode={mode}&sslrootcert={other}")));
        let error = connect(&config).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Configuration);
        assert!(error.to_string().contains("not signed by an authority"), "{mode}: {error}");
    }
    for parameters in ["sslmode=require".to_owned(), format!("sslmode=prefer&sslrootcert={other}")] {
        let client = connect(&config(&url(server, "postgres", "localhost", &parameters))).await.unwrap();
        assert!(client.peer().encrypted(), "{parameters}");
    }
}

#[tokio::test]
async fn verifying_needs_to_know_whom_to_trust() {
    let server = server().await;
    for (parameters, says) in [
        ("sslmode=verify-full".to_owned(), "set sslrootcert"),
        ("sslmode=verify-ca&sslrootcert=/does/not/exist".into(), "cannot read the file of sslrootcert"),
        (
            format!("sslmode=verify-ca&sslrootcert={}", pki().file("empty.crt", "").display()),
            "holds no certificate",
        ),
    ] {
        let error = connect(&config(&url(server, "postgres", "localhost", &parameters))).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Configuration);
        assert!(error.to_string().contains(says), "{parameters}: {error}");
    }
    // The system's authorities have not signed the test's certificate, or there are none.
    let error =
        connect(&config(&url(server, "postgres", "localhost", "sslrootcert=system"))).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
}

#[tokio::test]
async fn the_root_certificate_in_its_default_place_is_used() {
    let server = server().await;
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".postgresql")).unwrap();
    let place = home.path().join(".postgresql/root.crt");
    let home = home.path().to_string_lossy().into_owned();
    let environment = |name: &str| (name == "HOME").then(|| home.clone());
    for (root, works) in [(&pki().ca, true), (&pki().other_ca, false)] {
        std::fs::copy(root, &place).unwrap();
        for mode in ["verify-full", "require"] {
            let text = url(server, "postgres", "localhost", &format!("sslmode={mode}"));
            let config = Config::parse(&text, &environment).unwrap();
            assert_eq!(connect(&config).await.is_ok(), works, "{mode} {}", root.display());
        }
    }
}

#[tokio::test]
async fn the_other_kind_of_encryption_is_tried_where_the_mode_allows() {
    let server = server().await;
    for (user, mode, encrypted) in [
        ("plain_only", "prefer", Some(false)),
        ("plain_only", "allow", Some(false)),
        ("plain_only", "disable", Some(false)),
        ("plain_only", "require", None),
        ("tls_only", "prefer", Some(true)),
        ("tls_only", "allow", Some(true)),
        ("tls_only", "require", Some(true)),
        ("tls_only", "disable", None),
    ] {
        let outcome = connect(&config(&url(server, user, "127.0.0.1", &format!("sslmode={mode}")))).await;
        match (outcome, encrypted) {
            (Ok(client), Some(encrypted)) => {
                assert_eq!(client.peer().encrypted(), encrypted, "{user} {mode}")
            }
            (Err(error), None) => {
                assert_eq!(error.class(), ErrorClass::Authentication, "{user} {mode}: {error}")
            }
            (outcome, _) => panic!("{user} {mode}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn a_second_connection_reaches_the_same_server_the_same_way() {
    let server = server().await;
    for (user, encrypted) in [("plain_only", false), ("tls_only", true)] {
        let first = config(&url(server, user, "no-such-host.invalid,127.0.0.1", "sslmode=prefer"));
        let client = connect(&first).await.unwrap();
        let pinned = first.pinned_to(client.peer());
        let second = pinned.connect_transport().await.unwrap();
        assert_eq!(second.peer(), client.peer());
        assert_eq!(second.peer().encrypted(), encrypted);
    }
}

#[tokio::test]
async fn client_certificates_in_every_key_format() {
    let pki = pki();
    let pair = pki.client("cert_user", true);
    let cert = pki.file("client.crt", &pair.cert).display().to_string();
    let pkcs8 = pki.file("client.key", &pair.key).display().to_string();
    pki.openssl("ec -in client.key -out client.sec1.key");
    let sec1 = pki.file("client.sec1.key", &pki.read("client.sec1.key")).display().to_string();
    assert!(pki.read("client.sec1.key").contains("BEGIN EC PRIVATE KEY"));
    for key in [&pkcs8, &sec1] {
        let mut client =
            connect(&cert_config(&cert, key).await).await.unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(
            one(&mut client, "SELECT client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()").await,
            "/CN=cert_user"
        );
    }
    pki.openssl("req -x509 -newkey rsa:2048 -nodes -keyout rsa.key -out rsa.crt -subj /CN=cert_user -days 2");
    pki.openssl("rsa -in rsa.key -traditional -out rsa.pkcs1.key");
    let pkcs1 = pki.file("rsa.pkcs1.key", &pki.read("rsa.pkcs1.key")).display().to_string();
    assert!(pki.read("rsa.pkcs1.key").contains("BEGIN RSA PRIVATE KEY"));
    // Signed by itself: the format is read, the server refuses the certificate.
    let rsa = pki.file("rsa.crt", &pki.read("rsa.crt")).display().to_string();
    let error = connect(&cert_config(&rsa, &pkcs1).await).await.unwrap_err();
    assert!(
        matches!(&error, Error::Tls { message } if message.contains("refused the client certificate")),
        "{error}"
    );
}

#[tokio::test]
async fn client_certificates_that_do_not_do() {
    let pki = pki();
    let server = server().await;
    let error =
        connect(&config(&url(server, "cert_user", "localhost", "sslmode=require"))).await.unwrap_err();
    assert_eq!((error.class(), error.sqlstate()), (ErrorClass::Authentication, Some("28000")), "{error}");

    let stranger = pki.client("cert_user", false);
    let stranger_cert = pki.file("stranger.crt", &stranger.cert).display().to_string();
    let stranger_key = pki.file("stranger.key", &stranger.key).display().to_string();
    let error = connect(&cert_config(&stranger_cert, &stranger_key).await).await.unwrap_err();
    assert!(
        matches!(&error, Error::Tls { message } if message.contains("refused the client certificate")),
        "{error}"
    );

    let namesake = pki.client("somebody_else", true);
    let cert = pki.file("namesake.crt", &namesake.cert).display().to_string();
    let key = pki.file("namesake.key", &namesake.key).display().to_string();
    let error = connect(&cert_config(&cert, &key).await).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Authentication, "{error}");

    let error = connect(&cert_config(&cert, &stranger_key).await).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Configuration, "{error}");

    let open = pki.file("open.key", &namesake.key);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&open, mode).unwrap();
    let error = connect(&cert_config(&cert, &open.display().to_string()).await).await.unwrap_err();
    assert!(error.to_string().contains("chmod 0600"), "{error}");

    pki.openssl("pkey -in namesake.key -aes256 -passout pass:x -out locked.key");
    let locked = pki.file("locked.key", &pki.read("locked.key")).display().to_string();
    let error = connect(&cert_config(&cert, &locked).await).await.unwrap_err();
    assert!(error.to_string().contains("encrypted"), "{error}");
}

#[tokio::test]
async fn channel_binding_is_required_preferred_or_off() {
    let server = server().await;
    let with = |user: &str, parameters: &str| {
        config(&url(server, user, "localhost", parameters)).with_password(PASSWORD)
    };
    for parameters in [
        "sslmode=require&channel_binding=require",
        "sslmode=require&channel_binding=prefer",
        "sslmode=require&channel_binding=disable",
        "sslmode=disable&channel_binding=prefer",
    ] {
        connect(&with("scram_user", parameters))
            .await
            .unwrap_or_else(|error| panic!("{parameters}: {error}"));
    }
    for (user, parameters) in [
        ("scram_user", "sslmode=disable&channel_binding=require"),
        ("md5_user", "sslmode=require&channel_binding=require"),
        ("clear_user", "sslmode=require&channel_binding=require"),
        ("tls_only", "sslmode=require&channel_binding=require"),
    ] {
        let error = connect(&with(user, parameters)).await.unwrap_err();
        assert!(
            matches!(&error, Error::Auth { message } if message.contains("channel_binding=require")),
            "{user}: {error}"
        );
    }
}
