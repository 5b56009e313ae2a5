//! Hosts, passwords, session settings.

use std::time::Duration;

use crabka_pgrepl::{Config, Error, ErrorClass, PINNED_SETTINGS, ReplicationClient};

use super::pki::pki;
use super::{PASSWORD, config, connect, one, server, url};

#[tokio::test]
async fn every_password_method_works() {
    let server = server().await;
    for (user, parameters) in [
        ("scram_user", "sslmode=disable"),
        ("scram_user", "sslmode=require"),
        ("md5_user", "sslmode=require"),
        ("clear_user", "sslmode=require"),
        ("postgres", "sslmode=disable"),
    ] {
        let config = config(&url(server, user, "127.0.0.1", parameters)).with_password(PASSWORD);
        let mut client =
            connect(&config).await.unwrap_or_else(|error| panic!("{user} {parameters}: {error}"));
        assert_eq!(one(&mut client, "SELECT current_user").await, user);
        assert_eq!(client.peer().encrypted(), parameters.contains("require"));
    }
}

#[tokio::test]
async fn every_password_method_works_over_the_unix_socket() {
    let server = server().await;
    for user in ["scram_user", "md5_user", "clear_user", "postgres"] {
        let directory = server.socket_dir();
        let text = format!(
            "host='{}' port={} user={user} dbname=postgres sslmode=verify-full",
            directory.display(),
            server.port()
        );
        let mut client = connect(&config(&text).with_password(PASSWORD)).await.unwrap();
        assert_eq!(one(&mut client, "SELECT coalesce(inet_client_addr()::text, 'socket')").await, "socket");
    }
}

#[tokio::test]
async fn a_wrong_password_is_an_authentication_error_without_the_password() {
    let server = server().await;
    for user in ["scram_user", "md5_user", "clear_user"] {
        let config = config(&url(server, user, "127.0.0.1", "sslmode=require")).with_password("wr0ng");
        let error = connect(&config).await.unwrap_err();
        assert_eq!(
            (error.class(), error.sqlstate()),
            (ErrorClass::Authentication, Some("28P01")),
            "{user}: {error}"
        );
        assert!(!format!("{error} {error:?} {config:?} {config}").contains("wr0ng"));
    }
}

#[tokio::test]
async fn passwords_are_not_exposed_without_tls_unless_allowed() {
    let server = server().await;
    for user in ["md5_user", "clear_user"] {
        let config = config(&url(server, user, "127.0.0.1", "sslmode=disable")).with_password(PASSWORD);
        let error = connect(&config).await.unwrap_err();
        assert!(matches!(&error, Error::Auth { message } if message.contains("without TLS")), "{error}");
        connect(&config.with_insecure_password_allowed(true)).await.unwrap();
    }
}

#[tokio::test]
async fn no_password_names_where_to_put_one() {
    let server = server().await;
    let error = connect(&config(&url(server, "scram_user", "127.0.0.1", ""))).await.unwrap_err();
    assert!(matches!(&error, Error::Auth { message } if message.contains("PGPASSWORD")), "{error}");
}

#[tokio::test]
async fn the_password_file_is_used() {
    let server = server().await;
    let escaped = PASSWORD.replace('\\', r"\\").replace(':', r"\:");
    let lines = format!("otherhost:*:*:*:no\n127.0.0.1:{}:postgres:scram_user:{escaped}\n", server.port());
    let file = pki().file("pgpass", &lines);
    let parameters = format!("passfile={}", file.display());
    connect(&config(&url(server, "scram_user", "127.0.0.1", &parameters))).await.unwrap();
    // The same by environment, with HOME's file.
    let home = tempfile::tempdir().unwrap();
    std::fs::copy(&file, home.path().join(".pgpass")).unwrap();
    let home = home.path().to_string_lossy().into_owned();
    let environment = |name: &str| (name == "HOME").then(|| home.clone());
    let from_home = Config::parse(&url(server, "scram_user", "127.0.0.1", ""), &environment).unwrap();
    connect(&from_home).await.unwrap();
}

#[tokio::test]
async fn a_rejected_user_is_an_authentication_error() {
    let server = server().await;
    let error = connect(&config(&url(server, "nobody", "127.0.0.1", "sslmode=disable"))).await.unwrap_err();
    assert_eq!((error.class(), error.sqlstate()), (ErrorClass::Authentication, Some("28000")), "{error}");
}

#[tokio::test]
async fn the_next_host_is_tried_and_all_failures_are_named() {
    let server = server().await;
    let port = server.port();
    let missing = tempfile::tempdir().unwrap();
    let dead = free_port().await;
    let socket = missing.path().display().to_string().replace('/', "%2F");
    let hosts = format!("{socket}:{port},127.0.0.1:{dead},no-such-host.invalid:5432");
    let working = config(&format!("postgres://postgres@{hosts},127.0.0.1:{port}/postgres"));
    let client = connect(&working).await.unwrap();
    assert_eq!(client.peer().to_string(), format!("127.0.0.1:{port}"));

    let error = connect(&config(&format!("postgres://postgres@{hosts}/postgres"))).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient);
    let text = error.to_string();
    for part in [&missing.path().display().to_string(), &format!("127.0.0.1:{dead}"), "no-such-host.invalid"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

async fn free_port() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_left_after_the_time_out() {
    let server = server().await;
    // Accepts and says nothing.
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mute_port = mute.local_addr().unwrap().port();
    let text = format!("postgres://postgres@127.0.0.1:{mute_port},127.0.0.1:{}/postgres", server.port());
    let patient = config(&text).with_connect_timeout(Some(Duration::from_millis(300)));
    let client = connect(&patient).await.unwrap();
    assert_eq!(client.peer().to_string(), format!("127.0.0.1:{}", server.port()));

    let alone = config(&format!("postgres://postgres@127.0.0.1:{mute_port}/postgres"))
        .with_connect_timeout(Some(Duration::from_millis(300)));
    let error = connect(&alone).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }) && error.is_transient(), "{error}");
}

#[tokio::test]
async fn the_kind_of_server_is_checked() {
    let server = server().await;
    for (wanted, works) in [
        ("any", true),
        ("primary", true),
        ("read-write", true),
        ("standby", false),
        ("read-only", false),
        ("prefer-standby", true),
    ] {
        let config = config(&url(server, "postgres", "127.0.0.1", &format!("target_session_attrs={wanted}")));
        assert_eq!(connect(&config).await.is_ok(), works, "{wanted}");
    }
}

#[tokio::test]
async fn session_settings_beat_those_of_role_database_and_user() {
    let server = server().await;
    let sql = server.connect("postgres").await.unwrap();
    sql.batch_execute(
        "CREATE ROLE german LOGIN REPLICATION;
         ALTER ROLE german SET datestyle = 'German';
         ALTER ROLE german SET intervalstyle = 'sql_standard';
         ALTER ROLE german SET bytea_output = 'escape';
         ALTER ROLE german SET extra_float_digits = -3;
         ALTER ROLE german SET timezone = 'Asia/Kathmandu';
         ALTER ROLE german SET search_path = 'secret, public';
         ALTER ROLE german SET statement_timeout = '1s';
         ALTER ROLE german SET idle_session_timeout = '1s';
         ALTER ROLE german SET client_encoding = 'LATIN1'",
    )
    .await
    .unwrap();
    let options =
        r"-c%20datestyle=SQL%20-c%20application_name=lost%20-c%20geqo=off%20-c%20custom.note=two\%20words";
    let parameters = format!("options={options}&application_name=crab%20ka");
    let config = config(&url(server, "german", "127.0.0.1", &parameters))
        .with_wal_sender_timeout(Some(Duration::from_millis(12_345)));
    let mut client = ReplicationClient::connect(&config).await.unwrap();
    for (name, value) in PINNED_SETTINGS {
        let shown = one(&mut client, &format!("SHOW {name}")).await;
        // ISO output has one order of day and month; the second word rules input only.
        let fits = if name == "datestyle" { shown.starts_with("ISO, ") } else { shown == value };
        assert!(fits, "{name}: {shown}");
    }
    for (name, value) in [
        ("client_encoding", "UTF8"),
        ("application_name", "crab ka"),
        ("wal_sender_timeout", "12345ms"),
        ("geqo", "off"),
        ("custom.note", "two words"),
    ] {
        assert_eq!(one(&mut client, &format!("SHOW {name}")).await, value, "{name}");
    }
    let text = one(
        &mut client,
        r"SELECT concat_ws(' ', '2024-02-03 04:05:06+00'::timestamptz, '\x00ff'::bytea, 0.1::float8)",
    )
    .await;
    assert_eq!(text, r"2024-02-03 04:05:06+00 \x00ff 0.1");
}

#[tokio::test]
async fn commands_survive_errors_and_dropped_futures() {
    let server = server().await;
    let mut client = connect(&config(&url(server, "postgres", "127.0.0.1", ""))).await.unwrap();
    let error = client.query("SELECT 1 / 0").await.unwrap_err();
    assert_eq!((error.class(), error.sqlstate()), (ErrorClass::Server, Some("22012")));
    let slow =
        tokio::time::timeout(Duration::from_millis(50), client.query("SELECT pg_sleep(0.3), 'late'")).await;
    assert!(slow.is_err());
    assert_eq!(one(&mut client, "SELECT 'prompt'").await, "prompt");
    let rows = client.query("SELECT g, NULL FROM generate_series(1, 3) g").await.unwrap();
    assert_eq!(
        (rows.rows.len(), rows.rows[2][0].as_deref(), rows.rows[2][1].as_deref()),
        (3, Some("3"), None)
    );
    assert_eq!(rows.columns, ["g", "?column?"]);
    assert_eq!(client.query("").await.unwrap().rows.len(), 0);
    client.query("COPY (SELECT 1) TO STDOUT").await.unwrap();
    assert!(client.query("SELECT 'a\0b'").await.is_err());
    assert_eq!(one(&mut client, "SELECT 'still here'").await, "still here");
}
