//! The checkpoint store in a table, against a real server.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use crabka_connect::{CheckpointStore, ErrorClass, Scalar, SourceOffset};
use crabka_connect_postgres::catalog::TableName;
use crabka_connect_postgres::{CHECKPOINT_TABLE_SQL, PostgresCheckpointStore};
use crabka_testkit::{PgServer, StopMode};

fn offset(lsn: &str) -> SourceOffset {
    let mut offset = SourceOffset::default();
    offset.partition.insert("slot".to_owned(), Scalar::from("orders"));
    offset.position.insert("lsn".to_owned(), Scalar::from(lsn));
    offset.position.insert("delivered".to_owned(), Scalar::from(u64::MAX));
    offset
}

#[tokio::test]
async fn an_offset_is_read_back_and_replaced() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let database = server.create_database("checkpoint").await.unwrap();
    let client = server.connect(&database).await.unwrap();
    client.batch_execute(CHECKPOINT_TABLE_SQL).await.unwrap();
    client.batch_execute(CHECKPOINT_TABLE_SQL).await.unwrap();
    // The worst that an operator may have set for applications.
    client
        .batch_execute(&format!("ALTER DATABASE \"{database}\" SET synchronous_commit = off"))
        .await
        .unwrap();

    let mut store = PostgresCheckpointStore::new(server.url(&database).parse().unwrap());
    assert_eq!(store.load("orders").await.unwrap(), None);
    store.save("orders", &offset("0/10")).await.unwrap();
    store.save("other", &offset("0/99")).await.unwrap();
    store.save("orders", &offset("0/20")).await.unwrap();
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("0/20")));

    let mut again = PostgresCheckpointStore::new(server.url(&database).parse().unwrap());
    let restored = again.load("orders").await.unwrap().unwrap();
    assert_eq!(restored.to_json(), offset("0/20").to_json());
    let row = client
        .query_one("SELECT count(*), max(updated_at) <= now() FROM crabka_checkpoint", &[])
        .await
        .unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, bool>(1)), (2, true));
}

#[tokio::test]
async fn a_missing_table_is_a_configuration_error_that_quotes_the_sql() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let database = server.create_database("checkpoint").await.unwrap();
    let mut store = PostgresCheckpointStore::new(server.url(&database).parse().unwrap());
    for error in
        [store.load("orders").await.unwrap_err(), store.save("orders", &offset("0/1")).await.unwrap_err()]
    {
        assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
        assert_eq!(error.sqlstate(), Some("42P01"));
        let fix = error.fix().unwrap();
        assert!(fix.contains("CREATE TABLE IF NOT EXISTS public.crabka_checkpoint"), "{fix}");
    }

    let client = server.connect(&database).await.unwrap();
    client.batch_execute("CREATE TABLE public.crabka_checkpoint (id int)").await.unwrap();
    let error = store.load("orders").await.unwrap_err();
    assert_eq!((error.class(), error.sqlstate()), (ErrorClass::Configuration, Some("42703")), "{error}");
}

#[tokio::test]
async fn a_foreign_row_is_an_error_and_not_a_fresh_start() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let database = server.create_database("checkpoint").await.unwrap();
    let client = server.connect(&database).await.unwrap();
    client.batch_execute(CHECKPOINT_TABLE_SQL).await.unwrap();
    client.batch_execute("INSERT INTO crabka_checkpoint VALUES ('orders', '{\"lsn\": 7}')").await.unwrap();
    let mut store = PostgresCheckpointStore::new(server.url(&database).parse().unwrap());
    let error = store.load("orders").await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::LostPosition, "{error}");
}

#[tokio::test]
async fn a_weird_table_name_survives() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let database = server.create_database("checkpoint").await.unwrap();
    let client = server.connect(&database).await.unwrap();
    let name = TableName { schema: "S ch".to_owned(), table: "We\"ird.Näme".to_owned() };
    let sql = format!(
        "CREATE SCHEMA \"S ch\"; CREATE TABLE {} \
         (connector text PRIMARY KEY, \"offset\" jsonb NOT NULL, updated_at timestamptz NOT NULL)",
        name.quoted()
    );
    client.batch_execute(&sql).await.unwrap();
    let mut store = PostgresCheckpointStore::new(server.url(&database).parse().unwrap()).with_table(name);
    store.save("orders", &offset("0/10")).await.unwrap();
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("0/10")));
}

#[tokio::test]
async fn the_store_survives_a_server_restart() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::start().await.unwrap();
    server.connect("postgres").await.unwrap().batch_execute(CHECKPOINT_TABLE_SQL).await.unwrap();
    let mut store = PostgresCheckpointStore::new(server.url("postgres").parse().unwrap());
    store.save("orders", &offset("0/10")).await.unwrap();
    server.stop(StopMode::Fast).await.unwrap();
    assert_eq!(store.save("orders", &offset("0/20")).await.unwrap_err().class(), ErrorClass::Transient);
    server.start_again().await.unwrap();
    store.save("orders", &offset("0/30")).await.unwrap();
    server.stop(StopMode::Fast).await.unwrap();
    server.start_again().await.unwrap();
    // The connection is dead and nobody has noticed yet.
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("0/30")));
}

/// A save that nobody waits for any more, held up on the server by a lock, and a load after it.
#[tokio::test]
async fn a_save_that_was_given_up_does_not_land_after_a_load() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let database = server.create_database("checkpoint").await.unwrap();
    let mut client = server.connect(&database).await.unwrap();
    client.batch_execute(CHECKPOINT_TABLE_SQL).await.unwrap();
    let mut store = PostgresCheckpointStore::new(server.url(&database).parse().unwrap());
    // The first one waits as an INSERT, the other one as an UPDATE.
    for (stored, lock) in [
        (None, "LOCK TABLE crabka_checkpoint IN SHARE MODE"),
        (Some(offset("0/10")), "SELECT FROM crabka_checkpoint FOR UPDATE"),
    ] {
        if let Some(stored) = &stored {
            store.save("orders", stored).await.unwrap();
        }
        let holder = client.transaction().await.unwrap();
        holder.batch_execute(lock).await.unwrap();
        let next = offset("0/20");
        let held_up = tokio::time::timeout(Duration::from_secs(1), store.save("orders", &next));
        held_up.await.expect_err("the lock holds it up");
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND wait_event_type = 'Lock'";
        assert_eq!(holder.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0), 1, "still at it");
        assert_eq!(store.load("orders").await.unwrap(), stored);
        holder.rollback().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(store.load("orders").await.unwrap(), stored, "landed after the load");
    }
    store.save("orders", &offset("0/30")).await.unwrap();
    assert_eq!(store.load("orders").await.unwrap(), Some(offset("0/30")));
}
