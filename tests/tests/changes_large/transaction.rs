//! A large transaction: its records leave while it is still being read, in bounded memory.

use std::sync::Arc;

use crabka_connect::Source;
use crabka_connect_postgres::{ChangeEvent, Operation, PostgresSource, StoredPosition};
use crabka_testkit::{FaultProxy, PgServer, needs};
use crabka_tests::Database;

use crate::measure::{alone, resident_kb, size};

/// Bytes of a row's text column: 160 MB in all with the rows of an ordinary run.
const WIDTH: usize = 800;
/// What the process may grow by. The queue holds 4 MB; the rest is sockets' buffers and the allocator's slack.
const GROWTH_MAX_KB: u64 = 48 << 10;

fn id(event: &ChangeEvent) -> i64 {
    event.after().unwrap().get::<i32>("id").unwrap().value().unwrap().into()
}

/// `CRABKA_TEST_TRANSACTION_ROWS` sets the size; 10 000 000 is the one that was seen to hurt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_13_a_transaction_of_200_000_rows_flows_through() {
    needs!(postgres);
    let _alone = alone().await;
    let rows = i64::from(size("CRABKA_TEST_TRANSACTION_ROWS", 200_000));
    let server = PgServer::shared_default().await.unwrap();
    let database = Database::on(server, "CREATE TABLE t (id int PRIMARY KEY, v text)").await;
    let proxy = Arc::new(FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap());
    let mut config = database.config(&["public.t"]);
    config.connection =
        format!("postgres://postgres@127.0.0.1:{}/{}", proxy.port(), database.name).parse().unwrap();
    config.queue_bytes = 4 << 20;
    let mut source = PostgresSource::new(config).unwrap();
    assert!(source.poll().await.unwrap().is_none());
    let sent_before = proxy.counters().bytes_to_client;
    database
        .run(&format!("INSERT INTO t SELECT g, repeat('x', {WIDTH}) FROM generate_series(1, {rows}) g"))
        .await;

    let baseline = resident_kb();
    let (mut next, mut grown, mut batch) = (1, 0, Vec::new());
    let mut sent_at_first = None;
    while next <= rows {
        source.poll_batch(1000, &mut batch).await.unwrap();
        for record in batch.drain(..) {
            let event = record.value.unwrap();
            if event.operation == Operation::Heartbeat {
                continue;
            }
            assert_eq!(id(&event), next);
            next += 1;
        }
        if next > 1 && sent_at_first.is_none() {
            sent_at_first = Some(proxy.counters().bytes_to_client - sent_before);
            let stored = StoredPosition::from_offset(&source.checkpoint().unwrap()).unwrap();
            let open = stored.position.open.expect("in the middle of the transaction");
            assert_eq!(i64::try_from(open.delivered).unwrap(), next - 1);
            // A reader that rests does not make the process grow either.
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        }
        grown = grown.max(resident_kb().saturating_sub(baseline));
    }
    let sent = proxy.counters().bytes_to_client - sent_before;
    let first = sent_at_first.unwrap();
    println!("first records after {first} of {sent} bytes; the process grew by {grown} kB");
    assert!(first < sent / 2, "records left after {first} of {sent} bytes");
    assert!(grown < GROWTH_MAX_KB, "the process grew by {grown} kB over {baseline} kB");
    let stored = StoredPosition::from_offset(&source.checkpoint().unwrap()).unwrap();
    assert_eq!(stored.position.open, None, "behind the transaction");
    source.close().await.unwrap();
}
