//! Against real servers: logging in, TLS, streaming.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod login;
mod pki;
mod positions;
mod sql;
mod stream;
mod tls;
mod tls_variants;

use crabka_pgrepl::{Config, Error, ReplicationClient};
use crabka_testkit::PgServer;
use tokio::sync::OnceCell;

use pki::pki;

/// `user: method` for the lines of `pg_hba.conf`; every role has the password `pass word:\`.
const PASSWORD: &str = r"pass word:\";

/// One server with TLS and a role for each way of logging in, for all tests that change nothing.
async fn server() -> &'static PgServer {
    static SERVER: OnceCell<PgServer> = OnceCell::const_new();
    SERVER
        .get_or_init(|| async {
            let mut builder = PgServer::builder()
                .file("server.crt", pki().server.cert.clone())
                .file("server.key", pki().server.key.clone())
                .file("client_ca.crt", pki().ca_pem.clone())
                .setting("ssl", "on")
                .setting("ssl_ca_file", "client_ca.crt");
            for line in [
                "host all md5_user 127.0.0.1/32 md5",
                "local all md5_user md5",
                "hostssl all clear_user 127.0.0.1/32 password",
                "hostnossl all clear_user 127.0.0.1/32 password",
                "local all clear_user password",
                "host all scram_user 127.0.0.1/32 scram-sha-256",
                "local all scram_user scram-sha-256",
                "hostssl all tls_only 127.0.0.1/32 trust",
                "host all tls_only 127.0.0.1/32 reject",
                "hostnossl all plain_only 127.0.0.1/32 trust",
                "host all plain_only 127.0.0.1/32 reject",
                "hostssl all cert_user 127.0.0.1/32 cert",
                "host all nobody 127.0.0.1/32 reject",
            ] {
                builder = builder.hba(line);
            }
            let server = builder.start().await.unwrap();
            let sql = server.connect("postgres").await.unwrap();
            for (user, encryption) in [
                ("md5_user", "md5"),
                ("clear_user", "scram-sha-256"),
                ("scram_user", "scram-sha-256"),
                ("tls_only", "scram-sha-256"),
                ("plain_only", "scram-sha-256"),
                ("cert_user", "scram-sha-256"),
            ] {
                sql.batch_execute(&format!(
                    "SET password_encryption = '{encryption}'; CREATE ROLE {user} LOGIN REPLICATION PASSWORD '{PASSWORD}'"
                ))
                .await
                .unwrap();
            }
            server
        })
        .await
}

/// A configuration that takes nothing from the environment of the test.
fn config(url: &str) -> Config {
    Config::parse(url, &|_| None).unwrap()
}

/// `postgres://user@HOST:port/postgres?PARAMETERS`
fn url(server: &PgServer, user: &str, host: &str, parameters: &str) -> String {
    format!("postgres://{user}@{host}:{}/postgres?{parameters}", server.port())
}

async fn connect(config: &Config) -> Result<ReplicationClient, Error> {
    ReplicationClient::connect(config).await
}

/// One value of one row.
async fn one(client: &mut ReplicationClient, sql: &str) -> String {
    let result = client.query(sql).await.unwrap();
    result.rows[0][0].clone().unwrap()
}
