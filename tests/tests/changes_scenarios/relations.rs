//! Relations that change between and within transactions.

use crabka_testkit::needs;
use crabka_tests::{Scenario, run_scenario};

/// The statements of PGC-26 to 28.
fn changing_relation() -> Scenario {
    Scenario::new("CREATE TABLE d (id int PRIMARY KEY, a text); CREATE SCHEMA s2", "ALL TABLES")
        .does("INSERT INTO d VALUES (1, 'a')", "c d [id=1] > a='a' id=1")
        .silent("ALTER TABLE d ADD c int DEFAULT 7")
        .does("INSERT INTO d VALUES (2, 'b', 8)", "c d [id=2] > a='b' c=8 id=2")
        .does("UPDATE d SET a = 'a1' WHERE id = 1", "u d [id=1] > a='a1' c=7 id=1")
        .silent("ALTER TABLE d DROP a")
        .does("INSERT INTO d VALUES (3, 9)", "c d [id=3] > c=9 id=3")
        .silent("ALTER TABLE d RENAME c TO cc")
        .does("INSERT INTO d VALUES (4, 10)", "c d [id=4] > cc=10 id=4")
        // The rewrite of the table emits nothing.
        .silent("ALTER TABLE d ALTER cc TYPE bigint")
        .does("INSERT INTO d VALUES (5, 5000000000)", "c d [id=5] > cc=5000000000 id=5")
        .silent("ALTER TABLE d RENAME TO d2")
        .does("INSERT INTO d2 VALUES (6, 12)", "c d2 [id=6] > cc=12 id=6")
        .silent("ALTER TABLE d2 SET SCHEMA s2")
        .does("INSERT INTO s2.d2 VALUES (7, 13)", "c s2.d2 [id=7] > cc=13 id=7")
        .silent("ALTER SCHEMA s2 RENAME TO s3")
        .does("INSERT INTO s3.d2 VALUES (8, 14)", "c s3.d2 [id=8] > cc=14 id=8")
        .does(
            "BEGIN; INSERT INTO s3.d2 VALUES (9, 15); ALTER TABLE s3.d2 ADD z text; \
             INSERT INTO s3.d2 VALUES (10, 16, 'z'); COMMIT",
            "c s3.d2 [id=9] > cc=15 id=9; c s3.d2 [id=10] > cc=16 id=10 z='z'",
        )
        .silent("ALTER TABLE s3.d2 REPLICA IDENTITY FULL")
        .does(
            "UPDATE s3.d2 SET z = 'q' WHERE id = 10",
            "u s3.d2 [id=10] cc=16 id=10 z='z' > cc=16 id=10 z='q'",
        )
}

#[tokio::test]
async fn sch_03_pgc_26_pgc_27_pgc_28_a_relation_that_changes_between_rows() {
    needs!(postgres);
    run_scenario(14..=18, |major| {
        // 14 and 15 go on sending the old schema's name until something else invalidates the table, which is not the
        // same in two reads.
        if major >= 16 { changing_relation() } else { changing_relation().or_under("s2", "s3") }
    })
    .await;
}

/// Read when the table and its schema are gone: everything is known from the stream.
#[tokio::test]
async fn sch_04_pgc_33_a_table_that_is_gone_when_its_changes_are_read() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE SCHEMA s; CREATE TABLE s.t (a int, b int, v text, PRIMARY KEY (b, a))",
            "ALL TABLES",
        )
        .does("INSERT INTO s.t VALUES (1, 2, 'x')", "c s.t [a=1 b=2] > a=1 b=2 v='x'")
        .does("UPDATE s.t SET v = 'y'", "u s.t [a=1 b=2] > a=1 b=2 v='y'")
        .silent("ALTER TABLE s.t ADD w bigint")
        .does("UPDATE s.t SET w = 5", "u s.t [a=1 b=2] > a=1 b=2 v='y' w=5")
        .does("DELETE FROM s.t", "d s.t [a=1 b=2] a=1 b=2 v=null w=null; x s.t [a=1 b=2]")
        .silent("DROP TABLE s.t; CREATE TABLE s.t (v numeric, other uuid PRIMARY KEY)")
        .does(
            "INSERT INTO s.t VALUES (1.75, '00000000-0000-0000-0000-000000000001')",
            "c s.t [other='00000000-0000-0000-0000-000000000001'] > \
                 other='00000000-0000-0000-0000-000000000001' v={\"scale\":2,\"value\":\"AK8=\"}",
        )
        .silent("DROP SCHEMA s CASCADE")
    })
    .await;
}

/// Past rows have the columns of their time; a null where the catalogue says NOT NULL by now is a null.
#[tokio::test]
async fn sch_02_not_null_added_and_dropped_while_rows_wait() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t REPLICA IDENTITY FULL",
            "TABLE t",
        )
        .does("INSERT INTO t VALUES (1, NULL)", "c t [id=1] > id=1 v=null")
        .silent("ALTER TABLE t ADD c int NOT NULL DEFAULT 0")
        .does("INSERT INTO t VALUES (2, NULL)", "c t [id=2] > c=0 id=2 v=null")
        .does(
            "UPDATE t SET v = 'now' WHERE v IS NULL",
            "u t [id=1] c=0 id=1 v=null > c=0 id=1 v='now'; u t [id=2] c=0 id=2 v=null > c=0 id=2 v='now'",
        )
        .silent("ALTER TABLE t ALTER v SET NOT NULL")
        .does("INSERT INTO t VALUES (3, 'x')", "c t [id=3] > c=0 id=3 v='x'")
        .silent("ALTER TABLE t ALTER c DROP NOT NULL")
        .does("INSERT INTO t VALUES (4, 'x', NULL)", "c t [id=4] > c=null id=4 v='x'")
        .does("DELETE FROM t WHERE id = 4", "d t [id=4] c=null id=4 v='x'; x t [id=4]")
    })
    .await;
}

/// A default is never looked at, so none can fail a table.
#[tokio::test]
async fn sch_06_defaults_that_nobody_can_parse() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE SEQUENCE q; CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 7'; \
             CREATE TABLE t (id int PRIMARY KEY, a numeric DEFAULT NULL::numeric, b timestamptz DEFAULT CURRENT_TIMESTAMP, \
                c bigint DEFAULT nextval('q'), d jsonb DEFAULT '{}'::jsonb, e timestamp DEFAULT now() + '1 day', \
                f numeric(5,1) DEFAULT 1.23456, g bit(3) DEFAULT B'101', h interval DEFAULT '1 day 2 hours', \
                i int DEFAULT f() + 1, j text DEFAULT E'it''s \\\\ \"x\"', k text[] DEFAULT ARRAY['a', NULL])",
            "TABLE t",
        )
        .does(
            "INSERT INTO t (id, b, e) VALUES (1, '2020-01-01 00:00+00', '2020-01-01')",
            "c t [id=1] > a=null b='2020-01-01T00:00:00.000000Z' c=1 d='{}' e=1577836800000000 f='DA==' g='BQ==' \
             h=93600000000 i=8 id=1 j='it's \\ \"x\"' k=[\"a\",null]",
        )
        .silent("ALTER TABLE t ADD l text DEFAULT upper('x') || current_schema")
        .does(
            "UPDATE t SET c = 2",
            "u t [id=1] > a=null b='2020-01-01T00:00:00.000000Z' c=2 d='{}' e=1577836800000000 f='DA==' g='BQ==' \
             h=93600000000 i=8 id=1 j='it's \\ \"x\"' k=[\"a\",null] l='Xpublic'",
        )
    })
    .await;
}

#[tokio::test]
async fn pgc_30_tables_altered_by_another_session_while_a_transaction_is_open() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE TABLE tbl1 (val1 int, val2 int); CREATE TABLE tbl2 (val1 int, val2 int)",
            "ALL TABLES",
        )
        .on(1, "BEGIN; INSERT INTO tbl1 VALUES (1, 1)", "")
        .silent("ALTER TABLE tbl2 ALTER val2 TYPE float")
        .on(1, "INSERT INTO tbl2 VALUES (1, 1.5); COMMIT", "c tbl1 > val1=1 val2=1; c tbl2 > val1=1 val2=1.5")
        .on(1, "BEGIN; INSERT INTO tbl1 VALUES (2, 2)", "")
        .silent("ALTER TABLE tbl2 ADD val3 int")
        .on(
            1,
            "INSERT INTO tbl2 VALUES (2, 2, 2); COMMIT",
            "c tbl1 > val1=2 val2=2; c tbl2 > val1=2 val2=2.0 val3=2",
        )
        .on(1, "BEGIN; INSERT INTO tbl1 VALUES (3, 3)", "")
        .silent("ALTER TABLE tbl2 DROP val3")
        .on(
            1,
            "INSERT INTO tbl2 VALUES (3, 3); COMMIT",
            "c tbl1 > val1=3 val2=3; c tbl2 > val1=3 val2=3.0",
        )
    })
    .await;
}

#[tokio::test]
async fn pgc_31_a_column_added_between_a_subtransaction_and_its_row() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE TABLE dummy (i int); CREATE TABLE harvest (apples int, pears int, plums int)",
            "ALL TABLES",
        )
        .on(1, "BEGIN; SAVEPOINT s0; SELECT txid_current(); INSERT INTO dummy VALUES (1)", "")
        .silent("ALTER TABLE harvest ADD COLUMN mangos int")
        .on(
            1,
            "INSERT INTO harvest VALUES (1, 2, 3); RELEASE s0; COMMIT",
            "c dummy > i=1; c harvest > apples=1 mangos=null pears=2 plums=3",
        )
    })
    .await;
}

#[tokio::test]
async fn pgc_32_rewrites_emit_nothing() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new("CREATE TABLE r (id int PRIMARY KEY, b text)", "TABLE r")
            .does(
                "INSERT INTO r VALUES (1, 'one'), (2, 'two')",
                "c r [id=1] > b='one' id=1; c r [id=2] > b='two' id=2",
            )
            .silent("ALTER TABLE r ADD c int NOT NULL DEFAULT 0")
            .does("INSERT INTO r VALUES (3, 'three', 33)", "c r [id=3] > b='three' c=33 id=3")
            .silent("ALTER TABLE r ADD d float DEFAULT random()")
            .does("INSERT INTO r VALUES (4, 'four', 44, 0.5)", "c r [id=4] > b='four' c=44 d=0.5 id=4")
            .silent("ALTER TABLE r ALTER c TYPE text USING 'c' || c")
            .does("UPDATE r SET b = 'f' WHERE id = 4", "u r [id=4] > b='f' c='c44' d=0.5 id=4")
    })
    .await;
}
