//! Large rows: they pass, or a limit with a name stops them; nothing goes round in circles.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use crabka_connect::{ConnectError, Converter, ErrorClass, Source, SourceOffset, SystemClock};
use crabka_connect_postgres::envelope::{DebeziumConverter, DebeziumOptions};
use crabka_connect_postgres::{
    BinaryMode, Body, ChangeEvent, Operation, PostgresSource, PostgresSourceConfig,
};
use crabka_testkit::{PgServer, needs};
use crabka_tests::Database;
use tokio::time::Instant;

use crate::measure::{alone, resident_kb, size};

async fn next(source: &mut PostgresSource) -> Result<ChangeEvent, ConnectError> {
    // A row of hundreds of megabytes takes its time on a busy machine.
    let deadline = Instant::now() + Duration::from_secs(240);
    loop {
        assert!(Instant::now() < deadline, "nothing comes");
        match source.poll().await {
            Ok(Some(record)) => {
                let event = record.value.expect("no tombstones here");
                if event.operation != Operation::Heartbeat {
                    return Ok(event);
                }
            }
            Ok(None) => {}
            Err(error) if error.is_transient() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn id(event: &ChangeEvent) -> i32 {
    event.after().unwrap().get::<i32>("id").unwrap().value().unwrap()
}

fn config(database: &Database, binary: BinaryMode, frame_limit: usize) -> PostgresSourceConfig {
    let mut config = database.config(&["public.t"]);
    config.binary = binary;
    config.connection = config.connection.with_frame_limit(frame_limit);
    config
}

/// As a host that comes back with the offset it has kept.
async fn resumed(config: PostgresSourceConfig, offset: &SourceOffset) -> PostgresSource {
    let mut source = PostgresSource::new(config).unwrap();
    while let Err(error) = source.seek(offset.clone()).await {
        // The server may not have noticed yet that the source before is gone.
        assert!(error.is_transient(), "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    source
}

/// The stream stops with this row, again and again.
async fn stops(source: &mut PostgresSource, class: ErrorClass) -> ConnectError {
    let error = next(source).await.expect_err("it cannot come through");
    assert_eq!(error.class(), class, "{error}");
    let again = next(source).await.expect_err("nor at a second attempt");
    assert_eq!((again.class(), again.sqlstate()), (error.class(), error.sqlstate()));
    error
}

/// `CRABKA_TEST_WIDE_ROWS` sets their number; 10 000 is the case's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_14_rows_of_a_megabyte_leave_no_memory_behind() {
    needs!(postgres);
    let _alone = alone().await;
    let rows = size("CRABKA_TEST_WIDE_ROWS", 150);
    let server = PgServer::shared_default().await.unwrap();
    let database = Database::on(
        server,
        "CREATE TABLE t (id int PRIMARY KEY, doc jsonb); ALTER TABLE t ALTER doc SET STORAGE EXTERNAL",
    )
    .await;
    let mut source = PostgresSource::new(database.config(&["public.t"])).unwrap();
    assert!(source.poll().await.unwrap().is_none());
    let mut converter = DebeziumConverter::new(DebeziumOptions::default(), Arc::new(SystemClock)).unwrap();
    let baseline = resident_kb();
    database
        .run(&format!(
            "INSERT INTO t SELECT g, jsonb_build_object('n', g, 'text', repeat('\"wide\" ', 140000)) \
             FROM generate_series(1, {rows}) g"
        ))
        .await;
    let (mut seen, mut grown) = (0, 0);
    let mut batch = Vec::new();
    while seen < rows {
        // As a runtime does: a few records at a time, encoded into a buffer that is used again.
        source.poll_batch(4, &mut batch).await.unwrap();
        let mut scratch = BytesMut::new();
        for record in batch.drain(..) {
            if record.value.as_ref().unwrap().operation != Operation::Heartbeat {
                let encoded = converter.encode(record, &mut scratch).unwrap();
                assert!(encoded.value.unwrap().len() > 1_000_000);
                seen += 1;
            }
        }
        grown = grown.max(resident_kb().saturating_sub(baseline));
    }
    let offset = source.checkpoint().unwrap();
    source.acknowledge(&offset).await.unwrap();
    // A few small changes: what waits for the next message leaves with them.
    database.run("INSERT INTO t SELECT g, '{}' FROM generate_series(-100, -1) g").await;
    for _ in 0..100 {
        next(&mut source).await.unwrap();
    }
    let left = resident_kb().saturating_sub(baseline);
    println!("{rows} rows of 1 MB: the process grew by {grown} kB and kept {left} kB");
    // The queue holds 16 MB by default; four encoded rows and the socket's buffer come on top, and the allocator's slack.
    assert!(grown < 160 << 10, "the process grew by {grown} kB");
    assert!(left < 64 << 10, "the process kept {left} kB");
    source.close().await.unwrap();
}

/// `CRABKA_TEST_ROW_MIB` sets the value's size; 300 is the case's own: one frame of 629 MB as text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_26_pgc_78_a_row_over_the_frame_limit() {
    needs!(postgres);
    let _alone = alone().await;
    let value = size("CRABKA_TEST_ROW_MIB", 16) as usize * (1 << 20);
    let server = PgServer::shared_default().await.unwrap();
    let database = Database::on(server, "CREATE TABLE t (id int PRIMARY KEY, v bytea)").await;
    // Twice the value as text, the value itself in binary.
    let (between, above) = (value / 2 * 3, value / 2 * 5);
    let mut source = PostgresSource::new(config(&database, BinaryMode::Text, between)).unwrap();
    assert!(source.poll().await.unwrap().is_none());
    let chunk = 1 << 20;
    database.run("INSERT INTO t VALUES (1, 'small')").await;
    assert_eq!(id(&next(&mut source).await.unwrap()), 1);
    database
        .run(&format!(
            "INSERT INTO t SELECT 2, string_agg(decode(repeat('5a', {chunk}), 'hex'), '') FROM generate_series(1, {})",
            value / chunk
        ))
        .await;
    database.run("INSERT INTO t VALUES (3, 'small')").await;
    let baseline = resident_kb();
    let error = stops(&mut source, ErrorClass::Configuration).await;
    // Before any of it is buffered.
    let grown = resident_kb().saturating_sub(baseline);
    assert!(
        grown < u64::try_from(value / 2 / 1024).unwrap() + (4 << 10),
        "grew by {grown} kB before it stopped"
    );
    let length: usize =
        error.message().rsplit_once(": ").unwrap().1.strip_suffix(" bytes").unwrap().parse().unwrap();
    assert!(length > value * 2 && length < value * 2 + 1000, "{error}");
    assert!(
        error.message().contains(&format!("source.frame_bytes_max ({between} bytes), behind 0/")),
        "{error}"
    );
    assert!(error.fix().unwrap().contains(&format!("source.frame_bytes_max to {length}")), "{error}");
    // Where a host goes on after the stop: the row has not been passed.
    let offset = source.checkpoint().unwrap();
    source.close().await.unwrap();

    for (binary, limit) in [(BinaryMode::Text, above), (BinaryMode::Binary, between)] {
        let mut raised = resumed(config(&database, binary, limit), &offset).await;
        let event = next(&mut raised).await.unwrap();
        assert_eq!(id(&event), 2);
        let row = event.after().unwrap();
        let bytes = row.get::<Vec<u8>>("v").unwrap().value().unwrap();
        assert!(bytes.len() == value && bytes.iter().all(|byte| *byte == 0x5a), "{} bytes", bytes.len());
        assert_eq!(id(&next(&mut raised).await.unwrap()), 3);
        raised.close().await.unwrap();
    }
}

/// The server cannot build a text of more than a gigabyte: that of a bit string of 2^30 bits, or, with
/// `CRABKA_TEST_HUGE_BYTEA=1`, of a bytea of 520 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_27_pgc_78_a_value_that_the_server_cannot_write_as_text() {
    needs!(postgres);
    let _alone = alone().await;
    let bytea = size("CRABKA_TEST_HUGE_BYTEA", 0) == 1;
    let (type_name, seed, doublings) = match bytea {
        true => ("bytea", "decode(repeat('00', 8519680), 'hex')", 6),
        false => ("varbit", "repeat('0', 8388608)::varbit", 7),
    };
    let server = PgServer::shared_default().await.unwrap();
    let database = Database::on(
        server,
        &format!(
            "CREATE TABLE t (id int PRIMARY KEY, v {type_name}); CREATE TABLE plain (id int PRIMARY KEY)"
        ),
    )
    .await;
    let mut source = PostgresSource::new(config(&database, BinaryMode::Text, 1 << 30)).unwrap();
    assert!(source.poll().await.unwrap().is_none());
    database.run("INSERT INTO t VALUES (1, NULL)").await;
    assert_eq!(id(&next(&mut source).await.unwrap()), 1);
    database
        .run(&format!(
            "DO $$ DECLARE v {type_name} := {seed}; BEGIN FOR i IN 1..{doublings} LOOP v := v || v; END LOOP; \
             INSERT INTO t VALUES (2, v); END $$"
        ))
        .await;
    database.run("INSERT INTO t VALUES (3, NULL)").await;
    let error = stops(&mut source, ErrorClass::Data).await;
    assert!(error.message().contains(" behind 0/") && error.message().contains("public.t"), "{error}");
    assert!(!error.message().contains("public.plain"), "{error}");
    assert!(error.fix().unwrap().contains("source.binary to true"), "{error}");
    let offset = source.checkpoint().unwrap();
    source.close().await.unwrap();

    let mut binary = resumed(config(&database, BinaryMode::Binary, 1 << 30), &offset).await;
    let event = next(&mut binary).await.unwrap();
    assert_eq!(id(&event), 2);
    let Body::Row { new: Some(row), .. } = &event.body else { panic!("not a row") };
    let value = if bytea { 520 << 20 } else { 1 << 27 };
    assert!(row.len() > value && row.len() < value + 100, "{} bytes", row.len());
    assert_eq!(id(&next(&mut binary).await.unwrap()), 3);
    binary.close().await.unwrap();
}
