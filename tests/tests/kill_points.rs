//! The worker's pipeline held at each named point of a batch's way under load, and killed there with SIGKILL: what was
//! durable, saved and acknowledged at that moment, and what the next process repeats because of it, to the record.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crabka_connect::{CheckpointStore, FileCheckpointStore, Point, SourceOffset};
use crabka_connect_kafka::{KafkaCheckpointConfig, KafkaCheckpointStore};
use crabka_connect_postgres::StoredPosition;
use crabka_pgrepl::Lsn;
use crabka_testkit::{KafkaBroker, PgServer, needs};
use crabka_tests::{
    BATCH_RECORDS, Database, FileRun, Held, KafkaRun, LEDGER_TABLE, Ledger, TopicReader, Writers,
    is_heartbeat,
};
use serde_json::Value;
use tokio::time::sleep;

/// How long a held process is watched: an acknowledge that should not be would have left by then.
const HOLD: Duration = Duration::from_millis(300);

fn host() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_crabka-held"))
}

fn resume_lsn(offset: Option<&SourceOffset>) -> Lsn {
    offset.map_or(Lsn::ZERO, |offset| StoredPosition::from_offset(offset).unwrap().position.resume_lsn)
}

/// How often each point is killed at; `CRABKA_TEST_KILL_ROUNDS` asks for more.
fn rounds() -> u32 {
    std::env::var("CRABKA_TEST_KILL_ROUNDS").map_or(1, |rounds| rounds.parse().expect("a number"))
}

/// A process passes a point for the first time when it opens, and at every batch.
fn nth(point: Point, round: u32) -> u32 {
    if point == Point::Opened { 1 } else { 4 + round }
}

/// How often the journal names a point.
fn passed(journal: &[String], point: Point) -> usize {
    journal.iter().filter(|line| *line == point.as_str()).count()
}

/// The order of a batch's way, as the process itself wrote it down before each step: nothing is saved that was not
/// durable, and nothing is about to be acknowledged that was not saved.
fn assert_order(journal: &[String]) {
    for end in 0..=journal.len() {
        let passed = |point| passed(&journal[..end], point);
        let way =
            [Point::Acknowledged, Point::BeforeAcknowledge, Point::Checkpointed, Point::Durable, Point::Put]
                .map(passed);
        assert!(way.is_sorted(), "out of order: {:?}", &journal[..end]);
    }
}

/// What the slot may have been told: never more than is stored, and in a process that was killed before it acknowledged
/// anything no more than was stored when it began.
async fn assert_acknowledged(
    database: &Database,
    slot: &str,
    known: &mut Lsn,
    stored: Lsn,
    journal: &[String],
) {
    let confirmed = database.confirmed_of(slot).await;
    assert!(confirmed <= stored.max(*known), "confirmed {confirmed}, stored {stored}");
    if passed(journal, Point::BeforeAcknowledge) == 0 {
        assert!(
            confirmed <= *known,
            "acknowledged without having said so: {confirmed} over {known}: {journal:?}"
        );
    }
    *known = stored.max(*known);
}

/// Key, position and row: what a repeated record has in common with the first one. The time of processing differs.
fn identity(line: &Value) -> (String, String, String) {
    let source = &line["value"]["source"];
    (
        line["key"].to_string(),
        format!("{}:{}", source["lsn"], source["txId"]),
        line["value"]["after"].to_string(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_each_point_the_file_has_no_gap_and_repeats_exactly_what_lay_behind_the_checkpoint() {
    needs!(postgres);
    let mut run = FileRun::new(LEDGER_TABLE, "public.ledger").await;
    // A batch may otherwise be a heartbeat alone.
    run.config = run.config.replace("heartbeat_interval_ms = 500", "heartbeat_interval_ms = 600000");
    let slot = run.database.slot();
    // Publication and slot, so that there is load before the first process that is held.
    let first = run.worker();
    run.database.slot_made(&slot).await;
    assert!(first.terminate(Duration::from_secs(60)).success());
    let writers = Writers::start(Arc::clone(&run.server), &run.database, 4);

    let mut known = run.database.confirmed_of(&slot).await;
    let mut repeats = 0;
    let mut due: Vec<Value> = Vec::new();
    for round in 0..rounds() {
        for point in Point::ALL {
            let what = format!("held at {point}, round {round}");
            let lines_before = run.all_lines().len();
            let held = Held::at(host(), run.path(), &run.config, point, nth(point, round)).await;
            sleep(HOLD).await;
            let journal = held.kill9();
            assert_order(&journal);
            let lines = run.all_lines();
            let stored =
                FileCheckpointStore::open(run.checkpoint()).await.unwrap().load(&run.database.name).await;
            let stored = stored.unwrap();
            assert_acknowledged(&run.database, &slot, &mut known, resume_lsn(stored.as_ref()), &journal)
                .await;

            // What the process before left behind its checkpoint comes first, the same again.
            let fresh: Vec<&Value> =
                lines[lines_before..].iter().filter(|line| !is_heartbeat(line)).collect();
            let again: Vec<_> = fresh.iter().take(due.len()).map(|line| identity(line)).collect();
            if !fresh.is_empty() {
                assert_eq!(again, due.iter().map(identity).collect::<Vec<_>>(), "{what}");
                due.clear();
            }
            let behind = behind_checkpoint(&lines, stored.as_ref());
            match point {
                Point::Durable => {
                    assert!(!behind.is_empty() && behind.len() <= BATCH_RECORDS, "{what}: {}", behind.len())
                }
                _ if due.is_empty() => assert_eq!(behind.len(), 0, "{what}: durable and not saved"),
                // Nothing new was written, so it is still what was due before.
                _ => assert_eq!(behind.len(), due.len(), "{what}"),
            }
            if point == Point::Durable {
                due = behind;
                repeats += due.len();
            }
        }
    }
    let worker = run.worker();
    let last = writers.stop().await;
    assert!(last.iter().all(|last| *last > 100), "the load was no load: {last:?}");
    let ledger = run.read_ledger(&last).await;
    assert_eq!(ledger.repeats, repeats, "repeated exactly what was durable and not saved");
    assert!(worker.terminate(Duration::from_secs(60)).success());
}

/// The rows' lines behind the one whose position is stored.
fn behind_checkpoint(lines: &[Value], stored: Option<&SourceOffset>) -> Vec<Value> {
    let stored = stored.map(|offset| serde_json::from_str::<Value>(&offset.to_json()).unwrap());
    let at = lines.iter().rposition(|line| Some(&line["offset"]) == stored.as_ref());
    assert!(at.is_some() || stored.is_none(), "a position is stored that no durable line has: {stored:?}");
    lines[at.map_or(0, |at| at + 1)..].iter().filter(|line| !is_heartbeat(line)).cloned().collect()
}

/// Reads what has come into the topic, until nothing comes for a moment.
fn read_on(reader: &TopicReader, ledger: &mut Ledger) {
    while let Some(record) = reader.next(Duration::from_millis(700)) {
        ledger.take_key(&record.key);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_at_each_point_the_topic_has_no_gap_and_repeats_at_most_the_batch_that_was_sent() {
    needs!(postgres, kafka);
    let servers = KafkaBroker::shared().await.unwrap().bootstrap_servers();
    let mut run = KafkaRun::on(Arc::new(PgServer::start().await.unwrap()), &servers).await;
    run.config = run.config.replace("heartbeat_interval_ms = 1000", "heartbeat_interval_ms = 600000");
    let first = run.worker();
    run.database.slot_made(&run.slot).await;
    run.database.run("INSERT INTO ledger VALUES (0, 1)").await;
    let (topic, bootstrap) = (run.topic.clone(), servers.clone());
    let reader = tokio::task::spawn_blocking(move || TopicReader::open(&bootstrap, &topic)).await.unwrap();
    assert!(first.terminate(Duration::from_secs(60)).success());
    let writers = Writers::start(Arc::clone(&run.server), &run.database, 4);

    let mut known = run.database.confirmed_of(&run.slot).await;
    let mut ledger = Ledger::default();
    // How many records the next process may, and must, repeat.
    let mut due = 0..=0;
    for point in Point::ALL {
        let held = Held::at(host(), run.path(), &run.config, point, nth(point, 0)).await;
        sleep(HOLD).await;
        let journal = held.kill9();
        assert_order(&journal);
        let config = KafkaCheckpointConfig {
            topic: format!("{}-offsets", run.name),
            ..KafkaCheckpointConfig::new(&servers)
        };
        let stored = KafkaCheckpointStore::open(config).await.unwrap().load(&run.name).await.unwrap();
        assert_acknowledged(&run.database, &run.slot, &mut known, resume_lsn(stored.as_ref()), &journal)
            .await;

        let repeats_before = ledger.repeats;
        tokio::task::block_in_place(|| read_on(&reader, &mut ledger));
        let repeated = ledger.repeats - repeats_before;
        if passed(&journal, Point::Durable) > 0 {
            assert!(due.contains(&repeated), "held at {point}: {repeated} repeats, {due:?} were due");
            due = 0..=0;
        }
        match point {
            // The broker may have any part of what was sent, and has all of it once it is durable.
            Point::Put => due = 0..=BATCH_RECORDS,
            Point::Durable => due = 1..=BATCH_RECORDS,
            _ => {}
        }
    }
    let worker = run.worker();
    let last = writers.stop().await;
    assert!(last.iter().all(|last| *last > 100), "the load was no load: {last:?}");
    let ledger = run.read_ledger(&servers, last).await;
    assert!((1..=2 * BATCH_RECORDS).contains(&ledger.repeats), "{} repeats", ledger.repeats);
    assert!(worker.terminate(Duration::from_secs(60)).success());
}
