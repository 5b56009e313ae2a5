//! Connecting, the session's settings, and the classes of what a server refuses.

use std::time::Duration;

use crabka_connect::ErrorClass;
use crabka_connect_postgres::SqlConnection;
use crabka_testkit::{PgServer, StopMode};

use crate::{database, sql};

#[tokio::test]
async fn ops_07_what_the_role_sets_for_applications_does_not_reach_us() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("role").await;
    client
        .batch_execute(
            "CREATE ROLE hurried LOGIN; ALTER ROLE hurried SET statement_timeout = '100ms';
             ALTER ROLE hurried SET default_transaction_read_only = on; ALTER ROLE hurried SET datestyle = 'German';
             ALTER ROLE hurried SET idle_session_timeout = '300ms'; ALTER ROLE hurried SET search_path = 'elsewhere';
             GRANT CREATE ON SCHEMA public TO hurried",
        )
        .await
        .unwrap();
    let sql = SqlConnection::connect_url(&server.url_as("hurried", &db)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    sql.query("sleeping", "SELECT pg_sleep(0.3)", &[]).await.unwrap();
    sql.simple("writing", "CREATE TABLE public.mine ()").await.unwrap();
    let row = sql.query_one("x", "SELECT date '2024-03-01'::text", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "2024-03-01");

    let limit = Duration::from_millis(200);
    sql.set_statement_limit(limit).await.unwrap();
    let error = sql.query("sleeping", "SELECT pg_sleep(5)", &[]).await.unwrap_err();
    assert_eq!((error.class(), error.sqlstate()), (ErrorClass::Transient, Some("57014")));
    assert_eq!(sql.statement_limit(), limit);
    sql.close().await;
    drop(client);
    let client = server.connect(&db).await.unwrap();
    client.batch_execute("DROP OWNED BY hurried; DROP ROLE hurried").await.unwrap();
}

#[tokio::test]
async fn the_session_ends_with_its_owner() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("ends").await;
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let closed = sql(server, &db).await;
    let dropped = sql(server, &db).await;
    assert_eq!(client.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 2);
    closed.close().await;
    drop(dropped);
    for _ in 0..100 {
        if client.query_one(count, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("sessions are left");
}

#[tokio::test]
async fn del_40_what_keeps_us_out_is_classified_by_who_can_change_it() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::builder()
        .hba("host all scram 127.0.0.1/32 scram-sha-256")
        .hba("host all shut 127.0.0.1/32 reject")
        .hba("host all clear 127.0.0.1/32 password")
        .hba("host all hashed 127.0.0.1/32 md5")
        .start()
        .await
        .unwrap();
    let client = server.connect("postgres").await.unwrap();
    client
        .batch_execute(
            "CREATE ROLE scram LOGIN PASSWORD 'right'; CREATE ROLE shut LOGIN; CREATE ROLE clear LOGIN PASSWORD 'right';
             SET password_encryption = 'md5'; CREATE ROLE hashed LOGIN PASSWORD 'right';
             CREATE ROLE few LOGIN CONNECTION LIMIT 0",
        )
        .await
        .unwrap();
    let with = |user: &str, database: &str, more: &str| {
        format!("host=127.0.0.1 port={} user={user} dbname={database} {more}", server.port())
    };
    let error = |url: String| async move { SqlConnection::connect_url(&url).await.unwrap_err() };

    for (url, class, sqlstate) in [
        (with("scram", "postgres", "password=wrong"), ErrorClass::Configuration, Some("28P01")),
        (with("scram", "postgres", ""), ErrorClass::Configuration, None),
        (with("shut", "postgres", ""), ErrorClass::Configuration, Some("28000")),
        (with("nobody", "postgres", ""), ErrorClass::Configuration, Some("28000")),
        (with("postgres", "nowhere", ""), ErrorClass::Configuration, Some("3D000")),
        (with("few", "postgres", ""), ErrorClass::Transient, Some("53300")),
        (with("clear", "postgres", "password=right"), ErrorClass::Configuration, None),
        (with("hashed", "postgres", "password=right"), ErrorClass::Configuration, None),
        ("host=127.0.0.1 port=1 user=x".to_owned(), ErrorClass::Transient, None),
        ("host=127.0.0.1 prot=1".to_owned(), ErrorClass::Configuration, None),
    ] {
        let error = error(url.clone()).await;
        assert_eq!((error.class(), error.sqlstate()), (class, sqlstate), "{url}: {error}");
        assert!(!error.to_string().contains("wrong") && !error.to_string().contains("right"), "{error}");
    }
    let exposed = error(with("clear", "postgres", "password=right")).await;
    assert!(exposed.message().contains("in clear or as an MD5 hash"), "{exposed}");
    let url = with("scram", "postgres", "password=right");
    SqlConnection::connect_url(&url).await.unwrap().close().await;
    // Over the socket nobody can listen.
    let url = server.unix_url("postgres");
    SqlConnection::connect_url(&url).await.unwrap().close().await;
}

#[tokio::test]
async fn sql_runs_over_the_same_tls_as_replication() {
    crabka_testkit::needs!(postgres);
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let server = PgServer::builder()
        .file("server.crt", certified.cert.pem())
        .file("server.key", certified.signing_key.serialize_pem())
        .setting("ssl", "on")
        .hba("hostssl all bound 127.0.0.1/32 scram-sha-256")
        .hba("hostnossl all bound 127.0.0.1/32 reject")
        .start()
        .await
        .unwrap();
    let client = server.connect("postgres").await.unwrap();
    client.batch_execute("CREATE ROLE bound LOGIN PASSWORD 'right'").await.unwrap();
    let root = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(root.path(), certified.cert.pem()).unwrap();
    let url = format!(
        "host=127.0.0.1 port={} user=bound dbname=postgres password=right sslmode=verify-full sslrootcert={} \
         channel_binding=require",
        server.port(),
        root.path().display()
    );
    let sql = SqlConnection::connect_url(&url).await.unwrap();
    let row =
        sql.query_one("x", "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[]).await.unwrap();
    assert!(row.get::<_, bool>(0));
    let plain = url.replace("verify-full", "disable").replace("channel_binding=require", "");
    let error = SqlConnection::connect_url(&plain).await.unwrap_err();
    assert_eq!((error.class(), error.sqlstate()), (ErrorClass::Configuration, Some("28000")), "{error}");
}

#[tokio::test]
async fn sql_goes_to_the_host_that_target_session_attrs_asks_for() {
    crabka_testkit::needs!(postgres);
    let standby = PgServer::builder().file("standby.signal", "").start().await.unwrap();
    let primary = PgServer::start().await.unwrap();
    let url = |attributes: &str| {
        format!(
            "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs={attributes}",
            standby.port(),
            primary.port()
        )
    };
    for (attributes, in_recovery) in
        [("any", true), ("read-write", false), ("primary", false), ("standby", true)]
    {
        let sql = SqlConnection::connect_url(&url(attributes)).await.unwrap();
        let server = crabka_connect_postgres::catalog::server_info(&sql).await.unwrap();
        assert_eq!(server.in_recovery, in_recovery, "{attributes}");
    }
    primary.stop(StopMode::Fast).await.unwrap();
    let error = SqlConnection::connect_url(&url("read-write")).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient, "the primary may come back: {error}");
}
