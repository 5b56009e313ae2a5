//! Plain changes, transactions, old rows.

use crabka_testkit::needs;
use crabka_tests::{Scenario, run_scenario};

const T: &str = "CREATE TABLE t (id int PRIMARY KEY, v text)";

#[tokio::test]
async fn pgc_01_pgc_02_pgc_03_pgc_04_inserts_upserts_savepoints() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(T, "ALL TABLES")
            .does(
                "INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 3) g",
                "c t [id=1] > id=1 v='v1'; c t [id=2] > id=2 v='v2'; c t [id=3] > id=3 v='v3'",
            )
            .does(
                "INSERT INTO t VALUES (1, 'dup') ON CONFLICT (id) DO UPDATE SET v = excluded.v || '!'",
                "u t [id=1] > id=1 v='dup!'",
            )
            .silent("INSERT INTO t VALUES (1, 'dup') ON CONFLICT DO NOTHING")
            .silent("BEGIN; SELECT * FROM t FOR UPDATE; COMMIT")
            .does("UPDATE t SET v = v WHERE id = 2", "u t [id=2] > id=2 v='v2'")
            .silent("UPDATE t SET v = 'x' WHERE id = 99")
            .silent("BEGIN; INSERT INTO t VALUES (50, 'rolled back'); ROLLBACK")
            .does(
                "BEGIN; INSERT INTO t VALUES (10, 'a'); SAVEPOINT s; INSERT INTO t VALUES (11, 'b'); ROLLBACK TO s; \
                 INSERT INTO t VALUES (12, 'c'); SAVEPOINT s2; INSERT INTO t VALUES (13, 'd'); RELEASE s2; COMMIT",
                "c t [id=10] > id=10 v='a'; c t [id=12] > id=12 v='c'; c t [id=13] > id=13 v='d'",
            )
            .does(
                "BEGIN; INSERT INTO t VALUES (20, 'x'); UPDATE t SET v = 'y' WHERE id = 20; \
                 DELETE FROM t WHERE id = 20; COMMIT",
                "c t [id=20] > id=20 v='x'; u t [id=20] > id=20 v='y'; d t [id=20] id=20 v=null; x t [id=20]",
            )
            .silent("VACUUM FULL t")
            .does("INSERT INTO t VALUES (60, 'after')", "c t [id=60] > id=60 v='after'")
            .silent("CLUSTER t USING t_pkey")
            .does("DELETE FROM t WHERE id = 60", "d t [id=60] id=60 v=null; x t [id=60]")
    })
    .await;
}

#[tokio::test]
async fn pgc_08_merge_is_plain_changes() {
    needs!(postgres);
    run_scenario(15..=18, |_| {
        Scenario::new(
            "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM generate_series(1, 4) g",
            "TABLE t",
        )
        .does(
            "MERGE INTO t USING (SELECT generate_series(3, 6) id) s ON t.id = s.id \
             WHEN MATCHED AND s.id = 3 THEN DELETE WHEN MATCHED THEN UPDATE SET v = v * 10 \
             WHEN NOT MATCHED THEN INSERT VALUES (s.id, 0)",
            "d t [id=3] id=3 v=null; x t [id=3]; u t [id=4] > id=4 v=40; c t [id=5] > id=5 v=0; c t [id=6] > id=6 v=0",
        )
    })
    .await;
}

#[tokio::test]
async fn pgc_10_a_lock_before_a_subtransaction() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new("CREATE TABLE xt (data text); INSERT INTO xt VALUES ('before')", "TABLE xt")
            .does(
                "BEGIN; SELECT * FROM xt FOR UPDATE; SAVEPOINT foo; INSERT INTO xt VALUES ('after-assignment'); \
                 COMMIT",
                "c xt > data='after-assignment'",
            )
            .does(
                "BEGIN; INSERT INTO xt VALUES ('main-txn'); SAVEPOINT foo; \
                 SELECT 1 FROM xt FOR UPDATE LIMIT 1; COMMIT",
                "c xt > data='main-txn'",
            )
    })
    .await;
}

#[tokio::test]
async fn pgc_19_full_identity_with_dropped_and_added_columns() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE TABLE f (a int, b_drop int, c int); ALTER TABLE f REPLICA IDENTITY FULL; \
             INSERT INTO f VALUES (1, 1, 1); ALTER TABLE f DROP b_drop; \
             CREATE TABLE m (a int); ALTER TABLE m REPLICA IDENTITY FULL; INSERT INTO m VALUES (1); \
             ALTER TABLE m ADD b bool DEFAULT false NOT NULL; INSERT INTO m VALUES (2, true)",
            "TABLE f, m",
        )
        .does("UPDATE f SET a = 100", "u f a=1 c=1 > a=100 c=1")
        .does("UPDATE m SET a = a + 1", "u m a=1 b=false > a=2 b=false; u m a=2 b=true > a=3 b=true")
        .does("DELETE FROM m WHERE b", "d m a=3 b=true")
    })
    .await;
}

/// Streaming is for another protocol; the rows must be the same here.
#[tokio::test]
async fn pgc_24_out_of_line_values_in_one_large_transaction() {
    needs!(postgres);
    let rows = |from: u32, row: &dyn Fn(u32) -> String| (from..=60).map(row).collect::<Vec<_>>().join("; ");
    run_scenario(14..=18, |_| {
        let inserted = rows(1, &|id| format!("c s [id={id}] > big=x*5000 id={id} n={id}"));
        let updated: Vec<_> =
            (1..=5).map(|id| format!("u s [id={id}] > big=unavailable id={id} n={}", id + 1)).collect();
        Scenario::new(
            "CREATE TABLE s (id int PRIMARY KEY, big text, n int); ALTER TABLE s ALTER big SET STORAGE EXTERNAL",
            "TABLE s",
        )
        .does(
            "BEGIN; INSERT INTO s SELECT g, repeat('x', 5000), g FROM generate_series(1, 60) g; \
             UPDATE s SET n = n + 1 WHERE id <= 5; COMMIT",
            &format!("{inserted}; {}", updated.join("; ")),
        )
    })
    .await;
}

/// A row filter turns an update into an insert whose untouched out-of-line value is not there.
#[tokio::test]
async fn sch_26_pgc_25_an_insert_with_an_unavailable_value() {
    needs!(postgres);
    run_scenario(15..=18, |_| {
        Scenario::new(
            "CREATE TABLE tt (id int PRIMARY KEY, big text, v int); ALTER TABLE tt ALTER big SET STORAGE EXTERNAL",
            "TABLE tt WHERE (id < 10)",
        )
        .does("INSERT INTO tt VALUES (1, repeat('x', 3000), 1)", "c tt [id=1] > big=x*3000 id=1 v=1")
        .does("UPDATE tt SET v = 2", "u tt [id=1] > big=unavailable id=1 v=2")
        .does("UPDATE tt SET id = 20", "d tt [id=1] big=null id=1 v=null; x tt [id=1]")
        .does("UPDATE tt SET id = 5", "c tt [id=5] > big=unavailable id=5 v=2")
    })
    .await;
}

#[tokio::test]
async fn pgc_51_sch_05_enums_and_domains_made_and_changed() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE TYPE lvl AS ENUM ('low', 'high'); CREATE DOMAIN pct AS int; \
             CREATE TABLE s (id int PRIMARY KEY, l lvl, p pct, ls lvl[])",
            "TABLE s",
        )
        .does("INSERT INTO s VALUES (1, 'low', 50, '{low}')", "c s [id=1] > id=1 l='low' ls=[\"low\"] p=50")
        .silent("ALTER TYPE lvl ADD VALUE 'mid' AFTER 'low'")
        .does(
            "INSERT INTO s VALUES (2, 'mid', 10, '{mid,high}')",
            "c s [id=2] > id=2 l='mid' ls=[\"mid\",\"high\"] p=10",
        )
        .silent("ALTER TYPE lvl ADD VALUE 'none' BEFORE 'low'")
        .does("UPDATE s SET l = 'none' WHERE id = 1", "u s [id=1] > id=1 l='none' ls=[\"low\"] p=50")
        // An old row shows the new label from here on, and a row read later the label of its time.
        .silent("ALTER TYPE lvl RENAME VALUE 'low' TO 'bottom'")
        .does("UPDATE s SET p = 51 WHERE id = 1", "u s [id=1] > id=1 l='none' ls=[\"bottom\"] p=51")
        .silent("ALTER TYPE lvl RENAME TO level")
        .does("INSERT INTO s VALUES (3, 'bottom', 1, NULL)", "c s [id=3] > id=3 l='bottom' ls=null p=1")
    })
    .await;
}

/// In binary an external text is `u` where it was not touched, and a type without a binary form puts the stream on text.
#[tokio::test]
async fn pgc_52_a_table_with_a_type_that_has_no_binary_form() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE TABLE b (id int PRIMARY KEY, n int, x text, acl aclitem); \
             ALTER TABLE b ALTER x SET STORAGE EXTERNAL",
            "TABLE b",
        )
        .does(
            "INSERT INTO b VALUES (1, NULL, repeat('x', 3000), 'postgres=r/postgres')",
            "c b [id=1] > acl='postgres=r/postgres' id=1 n=null x=x*3000",
        )
        .does("UPDATE b SET n = 1", "u b [id=1] > acl='postgres=r/postgres' id=1 n=1 x=unavailable")
        .does(
            "UPDATE b SET id = 2",
            "d b [id=1] acl=null id=1 n=null x=null; x b [id=1]; \
             c b [id=2] > acl='postgres=r/postgres' id=2 n=1 x=unavailable",
        )
        .does("DELETE FROM b", "d b [id=2] acl=null id=2 n=null x=null; x b [id=2]")
    })
    .await;
}
