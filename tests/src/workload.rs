//! A random workload of several sessions.

use std::time::Duration;

use crabka_testkit::PgServer;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

/// The table that [`random_sessions`] writes to.
pub const WORKLOAD_TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v text)";

/// Eight sessions with overlapping transactions of random length: inserts, updates, key changes, deletes, savepoints
/// that are rolled back, whole transactions that are rolled back. Ends at `until`.
pub async fn random_sessions(server: &PgServer, database: &str, until: Instant, seed: u64) {
    let sessions = (0..8).map(|writer| session(server, database, until, writer, seed));
    futures_util::future::join_all(sessions).await;
}

async fn session(server: &PgServer, database: &str, until: Instant, writer: u64, seed: u64) {
    let session = server.connect(database).await.expect("a session");
    let mut random = StdRng::seed_from_u64(seed * 8 + writer);
    let run =
        async |sql: &str| session.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    while Instant::now() < until {
        run("BEGIN").await;
        for _ in 0..random.random_range(1..12) {
            let undone = random.random_range(0..6) == 0;
            if undone {
                run("SAVEPOINT s").await;
            }
            run(&statement(&mut random, writer)).await;
            if undone {
                run("ROLLBACK TO s").await;
            }
            if random.random_range(0..4) == 0 {
                tokio::time::sleep(Duration::from_millis(random.random_range(0..8))).await;
            }
        }
        run(if random.random_range(0..5) == 0 { "ROLLBACK" } else { "COMMIT" }).await;
    }
}

/// Each writer has keys of its own, so that sessions do not wait for each other.
fn statement(random: &mut StdRng, writer: u64) -> String {
    let id = random.random_range(0..40) * 8 + writer;
    match random.random_range(0..8) {
        0 | 1 => format!("DELETE FROM t WHERE id = {id}"),
        2 => {
            let other = random.random_range(0..40) * 8 + writer;
            format!(
                "UPDATE t SET id = {other} WHERE id = {id} AND NOT EXISTS (SELECT 1 FROM t WHERE id = {other})"
            )
        }
        _ => format!(
            "INSERT INTO t VALUES ({id}, 'v{0}') ON CONFLICT (id) DO UPDATE SET v = excluded.v",
            random.random::<u16>()
        ),
    }
}
