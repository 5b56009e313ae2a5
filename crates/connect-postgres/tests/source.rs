//! The source as an embedding program sees it, on a live server.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use crabka_connect::Source;
use crabka_connect_postgres::{
    ChangeKey, ChangePart, ChangeRecord, Operation, PostgresSource, PostgresSourceConfig,
};
use crabka_testkit::{PgServer, needs};
use tokio::time::Instant;

async fn take(source: &mut PostgresSource, count: usize) -> Vec<ChangeRecord> {
    let mut records = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    while records.len() < count {
        assert!(Instant::now() < deadline, "{} of {count}", records.len());
        source.poll_batch(count - records.len(), &mut records).await.unwrap();
        records.retain(|record| !matches!(record.key, Some(ChangeKey::Heartbeat { .. })));
    }
    records
}

#[tokio::test]
async fn a_host_reads_typed_changes_and_their_positions() {
    needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let database = server.create_database("embed").await.unwrap();
    let sql = server.connect(&database).await.unwrap();
    sql.batch_execute("CREATE TABLE t (id int PRIMARY KEY, v text)").await.unwrap();
    let mut config = PostgresSourceConfig::new(&database, server.url(&database).parse().unwrap()).unwrap();
    config.tables = vec!["public.t".parse().unwrap()];
    let mut source = PostgresSource::new(config.clone()).unwrap();
    assert!(source.poll().await.unwrap().is_none());
    assert!(source.checkpoint().is_none());

    sql.batch_execute(
        "BEGIN; INSERT INTO t VALUES (1, 'a'); UPDATE t SET v = 'b' WHERE id = 1; UPDATE t SET id = 2 WHERE id = 1;
         DELETE FROM t WHERE id = 2; COMMIT",
    )
    .await
    .unwrap();
    let records = take(&mut source, 7).await;
    let told: Vec<_> = records
        .iter()
        .map(|r| r.value.as_ref().map(|event| (event.operation, event.part, event.ordinal)))
        .collect();
    use ChangePart::{KeyChangeCreate, KeyChangeDelete, Whole};
    assert_eq!(
        told,
        [
            Some((Operation::Insert, Whole, 0)),
            Some((Operation::Update, Whole, 1)),
            Some((Operation::Delete, KeyChangeDelete, 2)),
            None,
            Some((Operation::Insert, KeyChangeCreate, 2)),
            Some((Operation::Delete, Whole, 3)),
            None,
        ]
    );
    let offset = source.checkpoint().unwrap();
    source.acknowledge(&offset).await.unwrap();
    source.close().await.unwrap();

    let mut again = PostgresSource::new(config).unwrap();
    again.seek(offset).await.unwrap();
    sql.batch_execute("INSERT INTO t VALUES (5, 'x')").await.unwrap();
    let records = take(&mut again, 1).await;
    assert_eq!(records[0].value.as_ref().unwrap().operation, Operation::Insert);
    again.close().await.unwrap();
}
