//! Catalogue, start-up check and set-up, on real servers. Tests are named by the cases they prove.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod catalogue;
mod connection;
mod connection_data;
mod defects;
mod requests;
mod setting_up;
mod slots;
mod tls;
mod waiting;

use crabka_connect::ConnectError;
use crabka_connect_postgres::SqlConnection;
use crabka_connect_postgres::catalog::TablePattern;
use crabka_connect_postgres::setup::{DropSlot, DroppedSlot};
use crabka_pgrepl::Config;
use crabka_testkit::PgServer;

/// An SQL connection as superuser.
async fn sql(server: &PgServer, database: &str) -> SqlConnection {
    SqlConnection::connect_url(&server.url(database)).await.unwrap()
}

fn config(server: &PgServer, database: &str) -> Config {
    server.url(database).parse().unwrap()
}

fn patterns(names: &[&str]) -> Vec<TablePattern> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

/// A database of its own on the shared server of the default version, and a connection of the test's to it.
async fn database(prefix: &str) -> (&'static PgServer, String, tokio_postgres::Client) {
    let server = PgServer::shared_default().await.unwrap();
    let database = server.create_database(prefix).await.unwrap();
    let client = server.connect(&database).await.unwrap();
    (server, database, client)
}

/// Drops a slot of whatever connector.
async fn drop_slot(sql: &SqlConnection, name: &str, force: bool) -> Result<DroppedSlot, ConnectError> {
    DropSlot { name: name.to_owned(), ours: None, force }.carry_out(sql).await
}
