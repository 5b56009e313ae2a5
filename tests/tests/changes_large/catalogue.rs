//! A database of very many tables, of which a few are written to.

use crabka_connect::Source;
use crabka_connect_postgres::{Operation, PostgresSource};
use crabka_testkit::{PgServer, needs};
use crabka_tests::Database;
use tokio::time::Instant;

use crate::measure::{alone, resident_kb, size};

/// What reading the changes of two tables may add to the process, however many tables there are. The names alone of
/// 20 000 tables, with what belongs to each, were 10 MB.
const GROWTH_MAX_KB: u64 = 4 << 10;

async fn rows(source: &mut PostgresSource, count: usize) {
    let mut batch = Vec::new();
    let mut seen = 0;
    while seen < count {
        source.poll_batch(100, &mut batch).await.unwrap();
        let is_row = |event: &crabka_connect_postgres::ChangeEvent| event.operation != Operation::Heartbeat;
        seen += batch.drain(..).filter(|record| record.value.as_ref().is_some_and(is_row)).count();
    }
}

/// Runs a statement for every number up to `count`, each hundred in a transaction.
async fn each(database: &Database, count: u32, statement: &str) {
    for from in (0..count).step_by(100) {
        let to = (from + 100).min(count) - 1;
        database
            .run(&format!(
                "DO $do$ BEGIN FOR i IN {from}..{to} LOOP EXECUTE format('{statement}', i); END LOOP; END $do$"
            ))
            .await;
    }
}

/// `CRABKA_TEST_MANY_TABLES` sets their number; 20 000 is the case's own. Each brings two types, besides a domain for
/// every second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_10_a_database_of_thousands_of_tables_and_types() {
    needs!(postgres);
    let _alone = alone().await;
    let tables = size("CRABKA_TEST_MANY_TABLES", 3_000);
    let server = PgServer::shared_default().await.unwrap();
    let database = Database::on(server, "CREATE TABLE busy (id int PRIMARY KEY)").await;
    database.run(&format!("CREATE PUBLICATION \"{}\" FOR ALL TABLES", database.name)).await;

    // The same with one table and with thousands: the first start warms the process up.
    let mut source = PostgresSource::new(database.config(&[])).unwrap();
    assert!(source.poll().await.unwrap().is_none());
    database.run("INSERT INTO busy VALUES (1)").await;
    rows(&mut source, 1).await;
    let offset = source.checkpoint().unwrap();
    source.acknowledge(&offset).await.unwrap();
    source.close().await.unwrap();

    each(&database, tables, "CREATE TABLE many_%s (id int)").await;
    each(&database, tables / 2, "CREATE DOMAIN of_%s AS int").await;
    database.run("INSERT INTO busy VALUES (2); INSERT INTO many_7 VALUES (1)").await;
    let baseline = resident_kb();
    let began = Instant::now();
    let mut source = PostgresSource::new(database.config(&[])).unwrap();
    source.seek(offset).await.unwrap();
    rows(&mut source, 2).await;
    let grown = resident_kb().saturating_sub(baseline);
    println!("{tables} tables: two rows after {:?}, the process grew by {grown} kB", began.elapsed());
    assert!(grown < GROWTH_MAX_KB, "the process grew by {grown} kB");
    source.close().await.unwrap();
}
