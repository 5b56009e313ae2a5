//! Keys and replica identities.

use crabka_testkit::needs;
use crabka_tests::{Scenario, run_scenario};

/// Keyed by the relation that a row came with, not by the catalogue of today.
#[tokio::test]
async fn sch_01_a_primary_key_redefined_while_stopped() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE SCHEMA pk; CREATE TABLE pk.t (newpk int, pk2 serial, v text, PRIMARY KEY (newpk, pk2))",
            "TABLE pk.t",
        )
        .does("INSERT INTO pk.t VALUES (4, 20, 'x')", "c pk.t [newpk=4 pk2=20] > newpk=4 pk2=20 v='x'")
        .silent(
            "ALTER TABLE pk.t DROP CONSTRAINT t_pkey; ALTER TABLE pk.t DROP COLUMN pk2; \
             ALTER TABLE pk.t ADD COLUMN pk3 serial; ALTER TABLE pk.t ADD PRIMARY KEY (newpk, pk3)",
        )
        .does("INSERT INTO pk.t VALUES (5, 'y', 10)", "c pk.t [newpk=5 pk3=10] > newpk=5 pk3=10 v='y'")
        .does(
            "DELETE FROM pk.t WHERE newpk = 5",
            "d pk.t [newpk=5 pk3=10] newpk=5 pk3=10 v=null; x pk.t [newpk=5 pk3=10]",
        )
    })
    .await;
}

/// A key follows the identity's index where that index is the only key there is.
#[tokio::test]
async fn pgc_16_the_identity_moves_to_another_index_in_mid_transaction() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE TABLE t (a int NOT NULL, b int NOT NULL); CREATE UNIQUE INDEX ia ON t (a); \
             CREATE UNIQUE INDEX ib ON t (b); ALTER TABLE t REPLICA IDENTITY USING INDEX ia",
            "TABLE t",
        )
        .does("INSERT INTO t VALUES (1, 1), (2, 2)", "c t [a=1] > a=1 b=1; c t [a=2] > a=2 b=2")
        .does(
            "ALTER TABLE t REPLICA IDENTITY USING INDEX ib; UPDATE t SET a = -a WHERE a = 1; DELETE FROM t WHERE a = 2",
            "u t [b=1] > a=-1 b=1; d t [b=2] a=0 b=2; x t [b=2]",
        )
    })
    .await;
}

/// The key of before has fewer columns, and is no longer unique.
#[tokio::test]
async fn pgc_16_the_identity_moves_to_an_index_with_more_columns() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE TABLE t (a int NOT NULL, b int NOT NULL); CREATE UNIQUE INDEX ia ON t (a); \
             ALTER TABLE t REPLICA IDENTITY USING INDEX ia",
            "TABLE t",
        )
        .does("INSERT INTO t VALUES (1, 1)", "c t [a=1] > a=1 b=1")
        .silent(
            "CREATE UNIQUE INDEX iab ON t (a, b); ALTER TABLE t REPLICA IDENTITY USING INDEX iab; DROP INDEX ia",
        )
        .does("INSERT INTO t VALUES (1, 2)", "c t [a=1 b=2] > a=1 b=2")
        .does("DELETE FROM t WHERE b = 2", "d t [a=1 b=2] a=1 b=2; x t [a=1 b=2]")
    })
    .await;
}

#[tokio::test]
async fn pgc_17_the_identitys_index_dropped() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        Scenario::new(
            "CREATE TABLE t (id int NOT NULL, a int); CREATE UNIQUE INDEX tx ON t (id); \
             ALTER TABLE t REPLICA IDENTITY USING INDEX tx",
            "TABLE t",
        )
        .does("INSERT INTO t VALUES (1, 1)", "c t [id=1] > a=1 id=1")
        .silent("DROP INDEX tx")
        .refused("55000", "UPDATE t SET a = 2")
        .does("INSERT INTO t VALUES (2, 2)", "c t > a=2 id=2")
    })
    .await;
}

#[tokio::test]
async fn pgc_20_a_temporal_key() {
    needs!(postgres);
    run_scenario(18..=18, |_| {
        let (first, moved) = (
            "id='[1,2)' valid_at='[2000-01-01,2010-01-01)'",
            "id='[2,3)' valid_at='[2000-01-01,2010-01-01)'",
        );
        Scenario::new(
            "CREATE TABLE tmp (id int4range, valid_at daterange, a text, \
                PRIMARY KEY (id, valid_at WITHOUT OVERLAPS))",
            "TABLE tmp",
        )
        .does(
            "INSERT INTO tmp VALUES ('[1,2)', '[2000-01-01,2010-01-01)', 'a')",
            &format!("c tmp [{first}] > a='a' {first}"),
        )
        .does("UPDATE tmp SET a = 'b' WHERE id = '[1,2)'", &format!("u tmp [{first}] > a='b' {first}"))
        .does(
            "UPDATE tmp SET id = '[2,3)'",
            &format!("d tmp [{first}] a=null {first}; x tmp [{first}]; c tmp [{moved}] > a='b' {moved}"),
        )
        .does("DELETE FROM tmp", &format!("d tmp [{moved}] a=null {moved}; x tmp [{moved}]"))
    })
    .await;
}

/// Only an index that is unique, complete, immediate, valid and over NOT NULL columns stands in for a primary key.
#[tokio::test]
async fn sch_18_unique_indexes_as_a_substitute_key() {
    needs!(postgres);
    run_scenario(14..=18, |_| {
        let table = |name: &str, index: &str| {
            format!("CREATE TABLE {name} (a int NOT NULL, b int NOT NULL, n int); {index}; ")
        };
        let setup = [
            table("nullable", "CREATE UNIQUE INDEX ON nullable (n)"),
            table("partial", "CREATE UNIQUE INDEX ON partial (a) WHERE a > 0"),
            table("expression", "CREATE UNIQUE INDEX ON expression ((a + b))"),
            table("deferrable_one", "ALTER TABLE deferrable_one ADD UNIQUE (a) DEFERRABLE"),
            table(
                "invalid",
                "CREATE UNIQUE INDEX bad ON invalid (a); \
                UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'bad'::regclass",
            ),
            table("good", "CREATE UNIQUE INDEX ON good (b)"),
            table("two", "CREATE UNIQUE INDEX z ON two (a); CREATE UNIQUE INDEX y ON two (b)"),
            table("included", "CREATE UNIQUE INDEX ON included (a) INCLUDE (b)"),
            table(
                "chosen",
                "CREATE UNIQUE INDEX c1 ON chosen (a); CREATE UNIQUE INDEX c2 ON chosen (b, a); \
                ALTER TABLE chosen REPLICA IDENTITY USING INDEX c2",
            ),
        ];
        let mut scenario = Scenario::new(&setup.concat(), "ALL TABLES");
        for (table, key) in [
            ("nullable", ""),
            ("partial", ""),
            ("expression", ""),
            ("deferrable_one", ""),
            ("invalid", ""),
            ("good", "[b=2] "),
            ("two", "[b=2] "),
            ("included", "[a=1] "),
            ("chosen", "[a=1 b=2] "),
        ] {
            let sql = format!("INSERT INTO {table} VALUES (1, 2, 3)");
            scenario = scenario.does(&sql, &format!("c {table} {key}> a=1 b=2 n=3"));
        }
        scenario
    })
    .await;
}
