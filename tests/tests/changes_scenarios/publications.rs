//! What a publication lets through: operations, column lists, filters, schemas, generated columns, partitions.

use crabka_testkit::needs;
use crabka_tests::{Scenario, run_scenario};

#[tokio::test]
async fn pgc_34_truncate_names_what_it_reaches() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a); \
             CREATE TABLE c (id int PRIMARY KEY)",
            "TABLE a, b, c",
        )
        .does("TRUNCATE a CASCADE", "t a; t b")
        .does("TRUNCATE c", "t c")
        .does("TRUNCATE a, b, c RESTART IDENTITY", "t a; t b; t c")
        .does(
            "BEGIN; INSERT INTO c VALUES (1); TRUNCATE c; INSERT INTO c VALUES (2); COMMIT",
            "c c [id=1] > id=1; t c; c c [id=2] > id=2",
        )
        .silent("BEGIN; TRUNCATE c; ROLLBACK")
        .does("TRUNCATE ONLY c RESTART IDENTITY CASCADE", "t c")
    })
    .await;
}

#[tokio::test]
async fn sch_26_pgc_37_column_lists() {
    needs!(postgres);
    run_scenario(15..=18, |_| {
        Scenario::new("CREATE TABLE t (id int PRIMARY KEY, a text, secret text, n int)", "TABLE t (id, a)")
            .does("INSERT INTO t VALUES (1, 'a', 's', 1)", "c t [id=1] > a='a' id=1")
            .does("UPDATE t SET secret = 'new'", "u t [id=1] > a='a' id=1")
            .does("UPDATE t SET a = 'a2'", "u t [id=1] > a='a2' id=1")
            .does("UPDATE t SET id = 2", "d t [id=1] a=null id=1; x t [id=1]; c t [id=2] > a='a2' id=2")
            .does("DELETE FROM t", "d t [id=2] a=null id=2; x t [id=2]")
            .silent("ALTER TABLE t ADD extra int")
            .does("INSERT INTO t VALUES (3, 'c', 's', 3, 3)", "c t [id=3] > a='c' id=3")
            .silent(&set_table("t (id, n)"))
            .does("INSERT INTO t VALUES (4, 'd', 's', 4, 4)", "c t [id=4] > id=4 n=4")
            .silent(&set_table("t"))
            .does(
                "INSERT INTO t VALUES (5, 'e', 's', 5, 5)",
                "c t [id=5] > a='e' extra=5 id=5 n=5 secret='s'",
            )
    })
    .await;
}

/// Alters the publication of the database, which is named after it.
fn set_table(what: &str) -> String {
    altered(&format!("SET TABLE {what}"))
}

fn altered(how: &str) -> String {
    format!(
        "DO $do$ BEGIN EXECUTE format('ALTER PUBLICATION %I {}', current_database()); END $do$",
        how.replace('\'', "''")
    )
}

#[tokio::test]
async fn sch_26_pgc_38_a_row_filter_under_full_identity() {
    needs!(postgres);
    run_scenario(15..=18, |_| {
        Scenario::new(
            "CREATE TABLE t (id int PRIMARY KEY, a int, v text); ALTER TABLE t REPLICA IDENTITY FULL",
            "TABLE t WHERE (a > 10)",
        )
        .does("INSERT INTO t VALUES (1, 5, 'no'), (2, 15, 'yes')", "c t [id=2] > a=15 id=2 v='yes'")
        .does("UPDATE t SET a = 20 WHERE id = 1", "c t [id=1] > a=20 id=1 v='no'")
        .does("UPDATE t SET v = 'z' WHERE id = 2", "u t [id=2] a=15 id=2 v='yes' > a=15 id=2 v='z'")
        .does("UPDATE t SET a = 1 WHERE id = 2", "d t [id=2] a=15 id=2 v='z'; x t [id=2]")
        .silent("UPDATE t SET a = 2 WHERE id = 2")
        .does("DELETE FROM t WHERE id = 1", "d t [id=1] a=20 id=1 v='no'; x t [id=1]")
        .silent("DELETE FROM t WHERE id = 2")
        .silent("INSERT INTO t VALUES (3, NULL, 'n')")
        .does("TRUNCATE t", "t t")
    })
    .await;
}

#[tokio::test]
async fn sch_26_pgc_39_a_row_filter_on_the_key() {
    needs!(postgres);
    run_scenario(15..=18, |_| {
        Scenario::new("CREATE TABLE t (id int PRIMARY KEY, a int)", "TABLE t WHERE (id < 10)")
            .does("INSERT INTO t VALUES (5, 1)", "c t [id=5] > a=1 id=5")
            .does("UPDATE t SET a = 2", "u t [id=5] > a=2 id=5")
            .does("UPDATE t SET id = 20", "d t [id=5] a=null id=5; x t [id=5]")
            .does("UPDATE t SET id = 6", "c t [id=6] > a=2 id=6")
            .does("UPDATE t SET id = 7", "d t [id=6] a=null id=6; x t [id=6]; c t [id=7] > a=2 id=7")
            .does("DELETE FROM t", "d t [id=7] a=null id=7; x t [id=7]")
            .silent(&set_table("t (id) WHERE (id < 100)"))
            .does("INSERT INTO t VALUES (50, 1)", "c t [id=50] > id=50")
    })
    .await;
}

#[tokio::test]
async fn pgc_42_the_publications_operations_and_tables_altered_under_the_stream() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE t2 (id int PRIMARY KEY, v text)",
            "TABLE t WITH (publish = 'insert, delete')",
        )
        .does("INSERT INTO t VALUES (1, 'a')", "c t [id=1] > id=1 v='a'")
        .silent("UPDATE t SET v = 'b'")
        .does("DELETE FROM t", "d t [id=1] id=1 v=null; x t [id=1]")
        .silent("TRUNCATE t")
        .silent("INSERT INTO t2 VALUES (1, 'not yet')")
        .silent(&altered("ADD TABLE t2"))
        .does("INSERT INTO t2 VALUES (2, 'now')", "c t2 [id=2] > id=2 v='now'")
        .silent(&altered("SET (publish = 'insert, update')"))
        .does("UPDATE t2 SET v = 'u' WHERE id = 2", "u t2 [id=2] > id=2 v='u'")
        .silent("DELETE FROM t2")
        .silent(&altered("DROP TABLE t2"))
        .silent("INSERT INTO t2 VALUES (4, 'gone')")
        .does("INSERT INTO t VALUES (5, 'still')", "c t [id=5] > id=5 v='still'")
    })
    .await;
}

#[tokio::test]
async fn sch_09_pgc_45_tables_of_a_schema_come_and_go() {
    needs!(postgres);
    run_scenario(15..=18, |_| {
        Scenario::new(
            "CREATE SCHEMA s1; CREATE TABLE s1.t1 (id int PRIMARY KEY); CREATE TABLE t2 (id int PRIMARY KEY)",
            "TABLES IN SCHEMA s1",
        )
        .does("INSERT INTO s1.t1 VALUES (1)", "c s1.t1 [id=1] > id=1")
        .silent("INSERT INTO t2 VALUES (1)")
        .silent("ALTER TABLE t2 SET SCHEMA s1")
        .does("INSERT INTO s1.t2 VALUES (2)", "c s1.t2 [id=2] > id=2")
        .silent("ALTER TABLE s1.t1 SET SCHEMA public")
        .silent("INSERT INTO t1 VALUES (3)")
        .does(
            "CREATE TABLE s1.t3 (id int PRIMARY KEY); INSERT INTO s1.t3 VALUES (1)",
            "c s1.t3 [id=1] > id=1",
        )
    })
    .await;
}

/// Only what is written after the ALTER PUBLICATION comes, also of transactions that were open then.
#[tokio::test]
async fn pgc_46_a_table_added_while_transactions_have_rows_of_it() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new("CREATE TABLE t (a int, b int); CREATE TABLE t2 (a int, b int)", "")
            .on(1, "BEGIN; INSERT INTO t VALUES (1, 1)", "")
            .silent(&altered("ADD TABLE t"))
            .on(1, "COMMIT", "")
            .on(1, "INSERT INTO t VALUES (2, 2)", "c t > a=2 b=2")
            .on(1, "BEGIN; INSERT INTO t2 VALUES (1, 1)", "")
            .on(2, "BEGIN; INSERT INTO t2 VALUES (3, 3)", "")
            .silent(&altered("ADD TABLE t2"))
            .on(1, "INSERT INTO t2 VALUES (2, 2); COMMIT", "c t2 > a=2 b=2")
            .on(2, "COMMIT", "")
    })
    .await;
}

/// A snapshot does not exist yet; in the stream they are what the publication sends.
#[tokio::test]
async fn sch_08_pgc_47_generated_columns() {
    needs!(postgres);
    let table = "CREATE TABLE g (id int PRIMARY KEY, b int, c int GENERATED ALWAYS AS (b * 2) STORED)";
    run_scenario(14..=18, |_| {
        Scenario::new(table, "TABLE g")
            .does("INSERT INTO g VALUES (1, 2)", "c g [id=1] > b=2 id=1")
            .does("UPDATE g SET b = 5", "u g [id=1] > b=5 id=1")
            .does("UPDATE g SET id = 9", "d g [id=1] b=null id=1; x g [id=1]; c g [id=9] > b=5 id=9")
            .does("DELETE FROM g", "d g [id=9] b=null id=9; x g [id=9]")
    })
    .await;
    run_scenario(18..=18, |_| {
        let setup = format!(
            "{table}; CREATE TABLE v (id int PRIMARY KEY, b int, e int GENERATED ALWAYS AS (b + 1) VIRTUAL); \
             CREATE TABLE k (b int, y text, c int GENERATED ALWAYS AS (b * 2) STORED PRIMARY KEY)"
        );
        Scenario::new(&setup, "TABLE g, v, k WITH (publish_generated_columns = stored)")
            .does("INSERT INTO g VALUES (1, 2)", "c g [id=1] > b=2 c=4 id=1")
            .does("UPDATE g SET b = 5", "u g [id=1] > b=5 c=10 id=1")
            .does("INSERT INTO v VALUES (1, 2)", "c v [id=1] > b=2 id=1")
            .silent("ALTER TABLE v REPLICA IDENTITY FULL")
            .refused("42P10", "UPDATE v SET b = 3")
            .does("INSERT INTO k VALUES (2, 'y')", "c k [c=4] > b=2 c=4 y='y'")
            .does("UPDATE k SET b = 5", "d k [c=4] b=null c=4 y=null; x k [c=4]; c k [c=10] > b=5 c=10 y='y'")
            .silent(&altered("SET (publish_generated_columns = none)"))
            .does("UPDATE g SET b = 6", "u g [id=1] > b=6 id=1")
            .silent(&set_table("g (id, c)"))
            .does("UPDATE g SET b = 7", "u g [id=1] > c=14 id=1")
    })
    .await;
}

#[tokio::test]
async fn sch_26_pgc_48_a_filter_on_a_long_key() {
    needs!(postgres);
    run_scenario(15..=18, |_| {
        let long = "k*2000";
        Scenario::new(
            "CREATE TABLE tt (a text NOT NULL, b text NOT NULL); ALTER TABLE tt ALTER a SET STORAGE EXTERNAL; \
             CREATE UNIQUE INDEX tti ON tt (a); ALTER TABLE tt REPLICA IDENTITY USING INDEX tti; \
             INSERT INTO tt VALUES (repeat('k', 2000), '1')",
            "TABLE tt WHERE (a = repeat('k', 2000))",
        )
        .does("UPDATE tt SET b = '2'", &format!("u tt [a={long}] > a={long} b='2'"))
        .does("UPDATE tt SET b = '3', a = 'short'", &format!("d tt [a={long}] a={long} b=''; x tt [a={long}]"))
        .does("INSERT INTO tt VALUES (repeat('k', 2000), '9')", &format!("c tt [a={long}] > a={long} b='9'"))
    })
    .await;
}

/// An inner partition, a leaf of another column order, a default leaf, one that leaves and comes back.
#[tokio::test]
async fn sch_22_partitions_come_and_go() {
    needs!(postgres);
    let setup = "CREATE TABLE m (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id); \
        CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (0) TO (100); \
        CREATE TABLE m2 (v text, id int NOT NULL PRIMARY KEY); \
        ALTER TABLE m ATTACH PARTITION m2 FOR VALUES FROM (100) TO (200); \
        CREATE TABLE m_rest PARTITION OF m DEFAULT";
    for via_root in [false, true] {
        run_scenario(15..=18, |_| {
            let name = |leaf: &'static str| if via_root { "m" } else { leaf };
            let (m1, m2, rest) = (name("m1"), name("m2"), name("m_rest"));
            Scenario::new(setup, &format!("TABLE m WITH (publish_via_partition_root = {via_root})"))
                .does(
                    "INSERT INTO m VALUES (1, 'a'), (101, 'b'), (900, 'c')",
                    &format!(
                        "c {m1} [id=1] > id=1 v='a'; c {m2} [id=101] > id=101 v='b'; c {rest} [id=900] > id=900 v='c'"
                    ),
                )
                .does(
                    "UPDATE m SET id = 150 WHERE id = 1",
                    &format!("d {m1} [id=1] id=1 v=null; x {m1} [id=1]; c {m2} [id=150] > id=150 v='a'"),
                )
                .silent("ALTER TABLE m DETACH PARTITION m2")
                .silent("INSERT INTO m2 (id, v) VALUES (160, 'away')")
                .does("INSERT INTO m VALUES (161, 'rest')", &format!("c {rest} [id=161] > id=161 v='rest'"))
                .does("DELETE FROM m WHERE id = 161", &format!("d {rest} [id=161] id=161 v=null; x {rest} [id=161]"))
                .silent("ALTER TABLE m ATTACH PARTITION m2 FOR VALUES FROM (100) TO (200)")
                .does("INSERT INTO m VALUES (170, 'back')", &format!("c {m2} [id=170] > id=170 v='back'"))
        })
        .await;
    }
}
