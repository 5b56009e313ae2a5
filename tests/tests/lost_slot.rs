//! Cases DEL-27, 64 and 66: slots that the server invalidates, and slots that it puts back.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use crabka_connect::{ConnectError, ErrorClass, Source, SourceOffset};
use crabka_connect_postgres::StoredPosition;
use crabka_pgrepl::Lsn;
use crabka_testkit::{PgServer, StopMode, needs, pg_available_majors};
use crabka_tests::{Database, Reader};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v text)";

fn lsn(offset: &SourceOffset) -> Lsn {
    StoredPosition::from_offset(offset).unwrap().position.resume_lsn
}

/// A server that keeps 16 MB of WAL for a slot, and counts what is asked of it in its log.
async fn forgetful_server() -> PgServer {
    PgServer::builder()
        .setting("max_slot_wal_keep_size", "16MB")
        .setting("max_wal_size", "48MB")
        .setting("min_wal_size", "32MB")
        .setting("log_replication_commands", "on")
        .start()
        .await
        .unwrap()
}

async fn status_of_slot(database: &Database) -> String {
    let query = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1";
    database.sql.query_one(query, &[&database.slot()]).await.unwrap().get(0)
}

/// Writes and checkpoints until the slot is invalidated.
async fn lose_slot(database: &Database) {
    for _ in 0..40 {
        database.run("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 8000000))").await;
        database.run("SELECT pg_switch_wal()").await;
        database.run("CHECKPOINT").await;
        if status_of_slot(database).await == "lost" {
            return;
        }
    }
    panic!("the slot outlived 320 MB of WAL: {}", status_of_slot(database).await);
}

fn starts(server: &PgServer, slot: &str) -> usize {
    let start = format!("START_REPLICATION SLOT \"{slot}\"");
    server
        .log()
        .lines()
        .filter(|line| line.contains("received replication command") && line.contains(&start))
        .count()
}

fn lost(error: &ConnectError, words: &[&str]) {
    assert_eq!(error.class(), ErrorClass::LostPosition, "{error}");
    for word in words {
        assert!(error.message().contains(word), "no {word}: {error}");
    }
    let fix = error.fix().expect("what to do");
    assert!(fix.contains("pg_drop_replication_slot") && fix.contains("crabka init"), "{fix}");
}

#[tokio::test]
async fn del_27_pgc_74_slot_lost_while_the_source_was_stopped() {
    needs!(postgres);
    for major in pg_available_majors() {
        let server = PgServer::builder().major(major).setting("max_slot_wal_keep_size", "16MB").start();
        let server = server.await.unwrap();
        let database = Database::on(&server, TABLE).await;
        let config = database.config(&["public.t"]);
        let offset = Reader::offset_behind(&config, &database, "INSERT INTO t VALUES (1)").await;
        database.run("INSERT INTO t VALUES (2)").await;
        lose_slot(&database).await;

        let slot = database.slot();
        let stored = lsn(&offset).to_string();
        let mut again = Reader::new(config.clone());
        lost(&again.source().seek(offset).await.unwrap_err(), &[&slot, "wal_status lost", &stored]);
        lost(&again.source().poll().await.unwrap_err(), &[&slot, "wal_status lost", &stored]);
        // Nor is it a fresh start without an offset.
        let mut fresh = Reader::new(config);
        let error = fresh.source().poll().await.unwrap_err();
        lost(&error, &[&slot, "wal_status lost"]);
        if major >= 17 {
            assert!(error.message().contains("wal_removed"), "{error}");
        }
        assert_eq!(status_of_slot(&database).await, "lost", "the slot is left alone");
    }
}

#[tokio::test]
async fn del_27_ops_21_slot_lost_because_nobody_used_it() {
    needs!(postgres(18));
    let server =
        PgServer::builder().major(18).setting("idle_replication_slot_timeout", "1s").start().await.unwrap();
    let database = Database::on(&server, TABLE).await;
    let config = database.config(&["public.t"]);
    let offset = Reader::offset_behind(&config, &database, "INSERT INTO t VALUES (1)").await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while status_of_slot(&database).await != "lost" {
        assert!(tokio::time::Instant::now() < deadline, "the slot is still kept");
        tokio::time::sleep(Duration::from_millis(500)).await;
        // A slot's age is looked at when a checkpoint has something to do.
        database.run("SELECT pg_logical_emit_message(false, 'fill', 'x')").await;
        database.run("CHECKPOINT").await;
    }
    let mut again = Reader::new(config);
    let error = again.source().seek(offset.clone()).await.unwrap_err();
    lost(&error, &[&database.slot(), "wal_status lost", "idle_timeout", &lsn(&offset).to_string()]);
}

#[tokio::test]
async fn del_27_del_66_ii_pgc_74_slot_lost_while_it_was_read() {
    needs!(postgres);
    let server = forgetful_server().await;
    let database = Database::on(&server, TABLE).await;
    let mut config = database.config(&["public.t"]);
    // Nothing but rows may move the slot.
    config.heartbeat_interval = Duration::from_secs(3600);
    config.message_events = false;
    let mut reader = Reader::new(config.clone());
    reader.started().await;
    database.run("INSERT INTO t VALUES (1)").await;
    reader.take(1).await;
    let offset = reader.checkpoint().unwrap();
    // Delivered and never acknowledged, as with a sink that is blocked.
    lose_slot(&database).await;
    let slot = database.slot();
    let asked = starts(&server, &slot);
    let error = loop {
        match reader.source().poll().await {
            Ok(record) => assert!(record.is_none(), "nothing more was written: {record:?}"),
            Err(error) => break error,
        }
    };
    // The code of an ordinary restart.
    assert_eq!((error.class(), error.sqlstate()), (ErrorClass::Transient, Some("57P01")), "{error}");
    for _ in 0..3 {
        let error = reader.source().poll().await.unwrap_err();
        lost(&error, &[&slot, "wal_status lost", &lsn(&offset).to_string()]);
    }
    assert_eq!((starts(&server, &slot), asked), (1, 1), "the slot's row is read before any further start");
    reader.close().await;
}

#[tokio::test]
async fn del_27_pgc_74_slot_lost_while_the_sink_was_blocked() {
    needs!(postgres);
    let server = forgetful_server().await;
    let database = Database::on(&server, TABLE).await;
    let mut config = database.config(&["public.t"]);
    config.message_events = false;
    config.queue_bytes = 64 << 10;
    config.unread_limit = Duration::from_secs(1);
    let mut reader = Reader::new(config);
    reader.started().await;
    // Less than the server keeps.
    let rows = 10_000;
    // Nobody polls: the queue fills, and with it the sockets between.
    database
        .run(&format!("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, {rows}) g"))
        .await;
    // The connection is closed after its time, so that it blocks nobody.
    let active =
        format!("SELECT 1 FROM pg_replication_slots WHERE slot_name = '{}' AND active", database.slot());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !database.sql.query(&active, &[]).await.unwrap().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the unread connection is not closed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    lose_slot(&database).await;
    let slot = database.slot();
    // What had been received is delivered, in order; then the slot's loss is told, not an ordinary reconnect.
    let mut next = 1;
    let error = loop {
        match reader.poll().await {
            Ok(Some(record)) if record.op() == "h" => {}
            Ok(Some(record)) => {
                assert_eq!(record.int("id"), next);
                next += 1;
            }
            Ok(None) => {}
            Err(error) => break error,
        }
    };
    lost(&error, &[&slot, "wal_status lost"]);
    assert!(1 < next && next < rows, "{next} rows came");
    assert_eq!(starts(&server, &slot), 1, "no start after the loss");
    reader.close().await;
}

/// Delivers `ids`, acknowledging the last one alone: what the server saves of a slot on the way is older then.
async fn deliver(database: &Database, reader: &mut Reader, ids: std::ops::Range<i64>) -> SourceOffset {
    let write = |from: i64, to: i64| {
        format!(
            "DO $$ BEGIN FOR i IN {from}..{to} LOOP INSERT INTO t VALUES (i, 'v'); COMMIT; END LOOP; END $$"
        )
    };
    let last = ids.end - 1;
    database.run(&write(ids.start, last - 1)).await;
    let seen = reader.take(usize::try_from(last - ids.start).unwrap()).await;
    assert!(seen.iter().map(|record| record.int("id")).eq(ids.start..last));
    let offset = reader.acknowledge().await;
    database.confirmed_at_least(&database.slot(), lsn(&offset), Duration::from_secs(10)).await;
    database.run(&write(last, last)).await;
    assert_eq!(reader.take(1).await[0].int("id"), last);
    let offset = reader.acknowledge().await;
    database.confirmed_at_least(&database.slot(), lsn(&offset), Duration::from_secs(10)).await;
    offset
}

#[tokio::test]
async fn del_64_pgc_68_a_slot_behind_the_offset_is_normal_and_repeats_nothing() {
    needs!(postgres);
    for major in pg_available_majors() {
        let server = PgServer::builder().major(major).start().await.unwrap();
        let mut database = Database::on(&server, TABLE).await;
        let config = database.config(&["public.t"]);
        let mut reader = Reader::new(config.clone());
        reader.started().await;
        let mut next = 0;
        for mode in [StopMode::Fast, StopMode::Immediate] {
            // Once the source lives through the restart, once it is restarted as well.
            for restarted in [false, true] {
                let what = format!("PostgreSQL {major}, {mode:?}, source restarted: {restarted}");
                let offset = deliver(&database, &mut reader, next..next + 250).await;
                next += 250;
                let stop = {
                    let stop = server.stop(mode);
                    tokio::pin!(stop);
                    loop {
                        // A fast shutdown waits until the source has acknowledged the shutdown's own position.
                        tokio::select! {
                            stopped = &mut stop => break stopped,
                            polled = reader.poll_and_acknowledge() => match polled {
                                Ok(()) => {}
                                Err(error) => assert!(error.is_transient(), "{what}: {error}"),
                            },
                        }
                    }
                };
                stop.unwrap();
                let stored = reader.checkpoint().unwrap();
                assert!(lsn(&stored) >= lsn(&offset), "{what}");
                server.start_again().await.unwrap();
                database.sql = server.connect(&database.name).await.unwrap();
                let confirmed = database.confirmed().await;
                println!("{what}: stored {}, confirmed {confirmed}", lsn(&stored));
                if mode == StopMode::Immediate {
                    assert!(confirmed < lsn(&stored), "{what}: the case did not arise");
                }
                if restarted {
                    // A crash: no goodbye.
                    drop(reader);
                    reader = Reader::resumed(config.clone(), Some(stored)).await.unwrap();
                }
                database.run(&format!("INSERT INTO t VALUES ({next}, 'after')")).await;
                assert_eq!(reader.take(1).await[0].int("id"), next, "{what}");
                next += 1;
                reader.quiet(Duration::from_millis(200)).await;
            }
        }
        reader.close().await;
    }
}

#[tokio::test]
async fn del_64_an_older_offset_may_be_sought_after_a_crash_has_put_the_slot_back() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let mut database = Database::on(&server, TABLE).await;
    let mut reader = Reader::new(database.config(&["public.t"]));
    reader.started().await;
    database.run("INSERT INTO t VALUES (1)").await;
    reader.take(1).await;
    let older = reader.acknowledge().await;
    database.confirmed_at_least(&database.slot(), lsn(&older), Duration::from_secs(10)).await;
    database.run("INSERT INTO t VALUES (2)").await;
    reader.take(1).await;
    let newer = reader.acknowledge().await;
    database.confirmed_at_least(&database.slot(), lsn(&newer), Duration::from_secs(10)).await;
    server.kill9().await.unwrap();
    server.start_again().await.unwrap();
    database.sql = server.connect(&database.name).await.unwrap();
    assert!(database.confirmed().await <= lsn(&older), "the case did not arise");
    reader.source().seek(older).await.unwrap();
    assert_eq!(reader.take(1).await[0].int("id"), 2);
    database.run("INSERT INTO t VALUES (3)").await;
    assert_eq!(reader.take(1).await[0].int("id"), 3);
    reader.close().await;
}

#[tokio::test]
async fn del_66_i_an_ended_walsender_is_followed_by_a_new_one_without_gap_or_repeat() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let mut config = database.config(&["public.t"]);
    // Small, so that most of the transaction is still at the server when the connection ends.
    config.queue_bytes = 64 << 10;
    let mut reader = Reader::new(config);
    reader.started().await;
    database.run("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 30000) g").await;
    let mut next = 1;
    for _ in 0..3 {
        for record in reader.take(10).await {
            assert_eq!(record.int("id"), next);
            next += 1;
        }
        let terminate =
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1";
        let ended = database.sql.query_one(terminate, &[&database.slot()]).await.unwrap();
        assert!(ended.get::<_, bool>(0));
        // What was received before goes on to come, then the error, once; the poll after it reads on.
        let error = loop {
            match reader.source().poll().await {
                Ok(Some(record)) => {
                    let event = record.value.expect("an insert");
                    assert_eq!(event.operation, crabka_connect_postgres::Operation::Insert);
                    next += 1;
                }
                Ok(None) => {}
                Err(error) => break error,
            }
        };
        // 57P01, or only the end of the connection where the server was blocked in sending.
        assert!(error.is_transient(), "{error}");
    }
    assert!(next < 30_000, "the transaction was over before the last cut");
    while next <= 30_000 {
        assert_eq!(reader.take(1).await[0].int("id"), next);
        next += 1;
    }
    database.run("INSERT INTO t VALUES (0, 'last')").await;
    assert_eq!(reader.take(1).await[0].int("id"), 0);
    reader.close().await;
}

/// A start is held up between its look at the slot and its command: by a lock on the catalogue of publications, which
/// it reads in between. The slot is dropped meanwhile.
async fn error_of_a_start_during_which_the_slot_goes<T: std::fmt::Debug>(
    database: &Database,
    start: impl Future<Output = Result<T, ConnectError>>,
) -> ConnectError {
    // The reader before may still be leaving.
    let active = "SELECT 1 FROM pg_replication_slots WHERE slot_name = $1 AND active";
    while !database.sql.query(active, &[&database.slot()]).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    database.run("BEGIN; LOCK TABLE pg_publication IN ACCESS EXCLUSIVE MODE").await;
    let meddle = async {
        let waiters = "SELECT 1 FROM pg_locks WHERE relation = 'pg_publication'::regclass AND NOT granted";
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while database.sql.query(waiters, &[]).await.unwrap().is_empty() {
            assert!(tokio::time::Instant::now() < deadline, "the start does not wait for the lock");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        database.run(&format!("SELECT pg_drop_replication_slot('{}')", database.slot())).await;
        database.run("COMMIT").await;
    };
    tokio::join!(start, meddle).0.unwrap_err()
}

#[tokio::test]
async fn a_slot_that_goes_between_the_look_and_the_command_is_told_by_what_it_is() {
    needs!(postgres);
    let database = Database::new(TABLE).await;
    let config = database.config(&["public.t"]);
    let offset = Reader::offset_behind(&config, &database, "INSERT INTO t VALUES (1)").await;

    let mut resumed = Reader::new(config.clone());
    let seek = resumed.source().seek(offset.clone());
    let error = error_of_a_start_during_which_the_slot_goes(&database, seek).await;
    assert_eq!(error.class(), ErrorClass::LostPosition, "{error}");
    assert!(error.message().contains(&lsn(&offset).to_string()), "{error}");

    let make = format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", database.slot());
    database.run(&make).await;
    let mut fresh = Reader::new(config);
    let error = error_of_a_start_during_which_the_slot_goes(&database, fresh.source().poll()).await;
    assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
    assert!(error.fix().is_some_and(|fix| fix.contains("crabka init")), "{error}");
}
