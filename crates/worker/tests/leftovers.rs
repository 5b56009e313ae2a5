//! What a verb that was ended hard leaves on a real PostgreSQL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

mod command;

use std::time::{Duration, Instant};

use command::{Running, Workplace};
use crabka_testkit::{PgServer, needs};
use tokio_postgres::Client;

struct Database {
    url: String,
    sql: Client,
}

impl Database {
    async fn on(server: &PgServer) -> Self {
        let name = server.create_database("left").await.unwrap();
        let sql = server.connect(&name).await.unwrap();
        let tables = "CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE other (id int PRIMARY KEY)";
        sql.batch_execute(tables).await.unwrap();
        Self { url: server.url(&name), sql }
    }

    async fn run(&self, sql: &str) {
        self.sql.batch_execute(sql).await.unwrap();
    }

    async fn names(&self, query: &str) -> Vec<String> {
        let rows = self.sql.query(query, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn publications(&self) -> Vec<String> {
        self.names("SELECT pubname::text FROM pg_publication ORDER BY pubname::text COLLATE \"C\"").await
    }

    /// Slots in this database.
    async fn slots(&self) -> Vec<String> {
        self.names("SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()")
            .await
    }

    async fn until_gone(&self, what: &str, query: &str) {
        let deadline = Instant::now() + command::LIMIT;
        while !self.names(query).await.is_empty() {
            assert!(Instant::now() < deadline, "still there: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A `tail` that streams.
fn tail(url: &str) -> (Running, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["tail", url, "--table", "public.orders", "--log-level", "info"];
    let (mut running, _) = Running::start(directory.path(), &arguments);
    running.until_log("streaming");
    (running, directory)
}

const NAME_OF_THIS_SESSION: &str =
    "SELECT format('crabka_tail_%s_%s', pid, (extract(epoch FROM backend_start) * 1000000)::bigint)
    FROM pg_stat_activity WHERE pid = pg_backend_pid()";

#[tokio::test(flavor = "multi_thread")]
async fn tail_drops_what_a_killed_one_has_left_and_nothing_else() {
    needs!(postgres);
    let database = Database::on(PgServer::shared_default().await.unwrap()).await;
    let (killed, _directory) = tail(&database.url);
    let left = database.publications().await;
    assert_eq!(left, database.slots().await, "both are named by the session");
    // SIGKILL.
    drop(killed);
    let others = "SELECT 'session' FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND backend_type <> 'autovacuum worker'";
    database.until_gone("the killed one's sessions", others).await;
    assert_eq!(database.slots().await, [""; 0]);
    assert_eq!(database.publications().await, left, "nobody was there to drop it");

    // Names that are not ours, or of a session that lives, or of a slot that is there.
    let lives = database.names(NAME_OF_THIS_SESSION).await.remove(0);
    let read = "crabka_tail_999999998_1000000000000000";
    let mut kept = ["crabka_tail_1", "crabka_tail_mine", "crabka_tail_7_1000000000000000_x", read, &lives];
    for name in kept {
        database.run(&format!("CREATE PUBLICATION {name} FOR TABLE other")).await;
    }
    database.run(&format!("SELECT pg_create_logical_replication_slot('{read}', 'pgoutput')")).await;
    let (running, _directory) = tail(&database.url);
    let beside = database.publications().await;
    assert!(!beside.contains(&left[0]) && beside.len() == kept.len() + 1, "{beside:?}");
    running.terminate();
    kept.sort_unstable();
    assert_eq!(database.publications().await, kept);
    database.run(&format!("SELECT pg_drop_replication_slot('{read}')")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_sigint_leaves_no_half_made_slot() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let database = Database::on(&server).await;
    let config = format!(
        "name = \"orders\"\n[source]\nurl = {:?}\ntables = [\"public.orders\"]\n\
         [sink]\ntype = \"null\"\n[checkpoint]\nstore = \"memory\"\n",
        database.url
    );
    let place = Workplace::new(&config);
    // The creation of a slot waits for it.
    let writer = server.connect("postgres").await.unwrap();
    writer.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    let mut running = place.run(&[]);
    running.until_log("creation of the replication slot is");
    assert_eq!(database.slots().await, ["orders"], "half made");
    // The graceful end looks for that writer first, and has to wait for this lock.
    database.run("BEGIN; LOCK TABLE pg_authid IN ACCESS EXCLUSIVE MODE").await;
    running.signal("INT");
    running.until_log("ending: what was read is finished first");
    running.signal("INT");
    assert_eq!(running.code(), Some(130), "{}", running.log());
    database.run("ROLLBACK").await;
    let half_made = "SELECT slot_name::text FROM pg_replication_slots";
    database.until_gone("the half-made slot", half_made).await;
    // It was waited for all the time.
    writer.batch_execute("COMMIT").await.unwrap();
}
