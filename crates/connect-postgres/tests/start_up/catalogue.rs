//! What the catalogue queries read.

use crabka_connect_postgres::catalog::{self, TableName, TablePattern};
use crabka_connect_postgres::types::{TypeEntry, TypeKind};
use crabka_connect_postgres::{ReplicaIdentity, SqlConnection};
use crabka_testkit::{PgServer, pg_available_majors};

use crate::{database, patterns, sql};

fn name(schema: &str, table: &str) -> TableName {
    TableName { schema: schema.into(), table: table.into() }
}

async fn oid(client: &tokio_postgres::Client, what: &str) -> u32 {
    client.query_one(&format!("SELECT {what}::oid"), &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn ops_06_every_query_runs_on_every_version() {
    crabka_testkit::needs!(postgres);
    for major in pg_available_majors() {
        let server = PgServer::shared(major).await.unwrap();
        let database = server.create_database("every").await.unwrap();
        let client = server.connect(&database).await.unwrap();
        client
            .batch_execute(
                "CREATE TABLE t (b int, a int, v text, PRIMARY KEY (a, b)); CREATE PUBLICATION p FOR TABLE t",
            )
            .await
            .unwrap();
        let sql = sql(server, &database).await;

        let info = catalog::server_info(&sql).await.unwrap();
        assert_eq!(info.version_num / 10_000, major);
        assert_eq!((info.database.as_str(), info.in_recovery), (database.as_str(), false));
        assert_eq!((info.wal_level.as_str(), info.server_encoding.as_str()), ("logical", "UTF8"));
        let row =
            client.query_one("SELECT system_identifier::text FROM pg_control_system()", &[]).await.unwrap();
        assert_eq!(info.system_identifier.to_string(), row.get::<_, String>(0));

        let before = catalog::wal_position(&sql).await.unwrap();
        client.batch_execute("INSERT INTO t VALUES (1, 2, 'x')").await.unwrap();
        assert!(catalog::wal_position(&sql).await.unwrap() > before);

        let slot = format!("{database}_slot").replace('-', "_").to_lowercase();
        assert_eq!(catalog::slot(&sql, &slot).await.unwrap(), None);
        client
            .execute("SELECT pg_create_logical_replication_slot($1::text, 'pgoutput')", &[&slot])
            .await
            .unwrap();
        let row = catalog::slot(&sql, &slot).await.unwrap().unwrap();
        assert_eq!(row.fault(&database), None);
        assert!(row.confirmed_flush_lsn.is_some() && row.wal_status.as_deref() == Some("reserved"));
        assert_eq!(row.conflicting.is_some(), major >= 16, "conflicting on {major}");
        assert_eq!(row.failover.is_some() && row.synced.is_some(), major >= 17, "failover on {major}");
        assert_eq!(catalog::slot_holder(&sql, &slot).await.unwrap(), None);
        client.execute("SELECT pg_drop_replication_slot($1::text)", &[&slot]).await.unwrap();

        let publication = catalog::publication(&sql, "p").await.unwrap().unwrap();
        assert!(publication.insert && publication.update && publication.delete && publication.truncate);
        assert_eq!(publication.tables.len(), 1);
        let published = catalog::published_tables(&sql, "p").await.unwrap();
        assert_eq!(published.len(), 1);
        let hints = catalog::relation_hints(&sql, published[0].oid).await.unwrap().unwrap();
        assert_eq!(hints.key(), ["a", "b"], "key order, not column order");
        assert_eq!(hints.name, name("public", "t"));
        assert!(hints.columns["a"].not_null && !hints.columns["v"].not_null);
        assert_eq!(catalog::types(&sql, &[23]).await.unwrap().len(), 1);
        catalog::transactions_with_xid(&sql).await.unwrap();
    }
}

#[tokio::test]
async fn keys_are_chosen_as_the_change_event_spec_says() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("keys").await;
    client
        .batch_execute(
            "CREATE TABLE u (id int NOT NULL, b int NOT NULL, c int, d int NOT NULL, e int NOT NULL);
             CREATE UNIQUE INDEX a1_nullable ON u (c);
             CREATE UNIQUE INDEX a2_partial ON u (id) WHERE id > 0;
             CREATE UNIQUE INDEX a3_expression ON u ((id + 1));
             ALTER TABLE u ADD CONSTRAINT a4_deferrable UNIQUE (id) DEFERRABLE;
             CREATE INDEX a5_not_unique ON u (id);
             CREATE UNIQUE INDEX a6_good ON u (d, b) INCLUDE (c);
             CREATE UNIQUE INDEX a7_later ON u (e);
             CREATE TABLE bare (v text); CREATE TABLE late (id int PRIMARY KEY DEFERRABLE, v int NOT NULL UNIQUE);
             ALTER TABLE bare REPLICA IDENTITY FULL;",
        )
        .await
        .unwrap();
    let sql = sql(server, &db).await;
    let hints = |table: &'static str| {
        let (sql, client) = (&sql, &client);
        async move {
            let oid = oid(client, &format!("'{table}'::regclass")).await;
            catalog::relation_hints(sql, oid).await.unwrap().unwrap()
        }
    };

    let u = hints("u").await;
    assert_eq!((u.key(), u.identity()), (&["d".to_owned(), "b".to_owned()][..], None));
    client.batch_execute("ALTER TABLE u REPLICA IDENTITY USING INDEX a7_later").await.unwrap();
    let u = hints("u").await;
    assert_eq!((u.key(), u.identity()), (&["e".to_owned()][..], Some(vec!["e"])));
    client.batch_execute("ALTER TABLE u ADD PRIMARY KEY (b, id)").await.unwrap();
    let u = hints("u").await;
    assert_eq!((u.key(), u.identity()), (&["b".to_owned(), "id".to_owned()][..], Some(vec!["e"])));
    client.batch_execute("DROP INDEX a7_later").await.unwrap();
    let u = hints("u").await;
    assert_eq!((u.replica_identity, u.identity()), (ReplicaIdentity::Index, None));

    let bare = hints("bare").await;
    assert_eq!((bare.key(), bare.identity()), (&[][..], Some(vec!["v"])));
    let late = hints("late").await;
    assert!(late.primary_key_deferrable);
    assert_eq!((late.key(), late.identity()), (&["id".to_owned()][..], None));
    assert_eq!(catalog::relation_hints(&sql, 1).await.unwrap(), None);
}

#[tokio::test]
async fn a_not_null_that_is_not_valid_is_none() {
    crabka_testkit::needs!(postgres);
    for major in pg_available_majors().into_iter().filter(|major| *major >= 18) {
        let server = PgServer::shared(major).await.unwrap();
        let db = server.create_database("notvalid").await.unwrap();
        let client = server.connect(&db).await.unwrap();
        client
            .batch_execute(
                "CREATE TABLE t (a int, b int NOT NULL); ALTER TABLE t ADD CONSTRAINT n NOT NULL a NOT VALID",
            )
            .await
            .unwrap();
        let sql = sql(server, &db).await;
        let oid = oid(&client, "'t'::regclass").await;
        let hints = catalog::relation_hints(&sql, oid).await.unwrap().unwrap();
        assert!(!hints.columns["a"].not_null && hints.columns["b"].not_null);
        client.batch_execute("ALTER TABLE t VALIDATE CONSTRAINT n").await.unwrap();
        assert!(catalog::relation_hints(&sql, oid).await.unwrap().unwrap().columns["a"].not_null);
    }
}

#[tokio::test]
async fn types_come_with_everything_they_are_made_of() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("types").await;
    client
        .batch_execute(
            "CREATE TYPE mood AS ENUM ('sad', 'happy'); ALTER TYPE mood ADD VALUE 'so so' BEFORE 'happy';
             CREATE DOMAIN moods AS mood[]; CREATE DOMAIN few_moods AS moods CHECK (cardinality(VALUE) < 9);
             CREATE DOMAIN money4 AS numeric(10, 4);
             CREATE TYPE span AS RANGE (subtype = money4, multirange_type_name = spans);
             CREATE TYPE pair AS (a int, b mood); CREATE EXTENSION IF NOT EXISTS citext SCHEMA public;",
        )
        .await
        .unwrap();
    let sql = sql(server, &db).await;
    let mut wanted = Vec::new();
    for text in ["few_moods", "spans", "pair", "citext[]", "int2vector", "point", "cstring"] {
        wanted.push(oid(&client, &format!("'{text}'::regtype")).await);
    }
    wanted.push(4_000_000_000);
    let entries = catalog::types(&sql, &wanted).await.unwrap();
    let entry = |name: &str| -> &TypeEntry { entries.iter().find(|entry| entry.name == name).unwrap() };
    let oid = |name: &str| entry(name).oid;

    assert_eq!(entry("few_moods").kind, TypeKind::Domain { base: oid("moods"), typmod: -1 });
    assert_eq!(entry("moods").kind, TypeKind::Domain { base: oid("_mood"), typmod: -1 });
    assert_eq!(entry("_mood").kind, TypeKind::Array { element: oid("mood"), delimiter: b',' });
    let labels = ["sad", "so so", "happy"].map(str::to_owned).to_vec();
    assert_eq!(entry("mood").kind, TypeKind::Enum { labels });
    assert_eq!(entry("spans").kind, TypeKind::Multirange { range: oid("span") });
    assert_eq!(entry("span").kind, TypeKind::Range { subtype: oid("money4") });
    assert_eq!(entry("money4").kind, TypeKind::Domain { base: 1700, typmod: (10 << 16 | 4) + 4 });
    assert_eq!(entry("numeric").kind, TypeKind::Base);
    assert_eq!(entry("pair").kind, TypeKind::Composite);
    assert_eq!(entry("_citext").kind, TypeKind::Array { element: oid("citext"), delimiter: b',' });
    assert_eq!(entry("citext").extension.as_deref(), Some("citext"));
    assert_eq!((entry("mood").extension.as_deref(), entry("mood").schema.as_str()), (None, "public"));
    for base in ["int2vector", "point"] {
        assert_eq!(entry(base).kind, TypeKind::Base, "{base}");
    }
    assert_eq!(entry("cstring").kind, TypeKind::Other);
}

async fn published(sql: &SqlConnection) -> Vec<String> {
    let tables = catalog::published_tables(sql, "p").await.unwrap();
    tables.iter().map(|table| table.name.to_string()).collect()
}

#[tokio::test]
async fn published_tables_follow_partitions_and_roots() {
    crabka_testkit::needs!(postgres);
    let (server, db, client) = database("published").await;
    client
        .batch_execute(
            "CREATE TABLE m (id int, region text) PARTITION BY LIST (region);
             CREATE TABLE m_eu PARTITION OF m FOR VALUES IN ('de');
             CREATE TABLE m_us PARTITION OF m FOR VALUES IN ('us') PARTITION BY RANGE (id);
             CREATE TABLE m_us1 PARTITION OF m_us FOR VALUES FROM (0) TO (9);
             CREATE TABLE \"Plain\" (id int); CREATE TABLE child () INHERITS (\"Plain\"); CREATE VIEW w AS SELECT 1; CREATE UNLOGGED TABLE fast (id int);
             CREATE PUBLICATION p FOR TABLE m, \"Plain\"",
        )
        .await
        .unwrap();
    let sql = sql(server, &db).await;
    assert_eq!(published(&sql).await, ["public.\"Plain\"", "public.child", "public.m_eu", "public.m_us1"]);
    client.batch_execute("ALTER PUBLICATION p SET (publish_via_partition_root = true)").await.unwrap();
    assert_eq!(published(&sql).await, ["public.\"Plain\"", "public.child", "public.m"]);
    let published = catalog::published_tables(&sql, "p").await.unwrap();
    assert!(published[1].is_covered_by(&patterns(&["public.\"Plain\""])) && !published[1].is_partition);

    let found = catalog::tables_matching(&sql, &patterns(&["public.m_us1", "public.w", "public.none"]))
        .await
        .unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].ancestors, [name("public", "m_us"), name("public", "m")]);
    assert!(found[0].is_publishable() && !found[1].is_publishable());
    assert!(
        found[0].is_covered_by(&patterns(&["public.m"])) && !found[0].is_covered_by(&patterns(&["public.w"]))
    );

    let all = catalog::tables_matching(&sql, &[TablePattern::All]).await.unwrap();
    assert_eq!(all, catalog::tables_matching(&sql, &patterns(&["public.*"])).await.unwrap());
    assert_eq!(all, catalog::tables_matching(&sql, &[]).await.unwrap());
    assert_eq!(all.len(), 7, "tables only, those of the system left out");
    let root = all.iter().find(|table| table.name.table == "m").unwrap();
    let leaves = catalog::leaf_partitions(&sql, &[root.oid]).await.unwrap();
    let names: Vec<_> = leaves.iter().map(|table| table.name.table.as_str()).collect();
    assert_eq!(names, ["m_eu", "m_us1"]);
}

#[tokio::test]
async fn a_publication_tells_its_columns_filters_and_schemas() {
    crabka_testkit::needs!(postgres(15));
    let server = PgServer::shared(15).await.unwrap();
    let db = server.create_database("publication").await.unwrap();
    let client = server.connect(&db).await.unwrap();
    client
        .batch_execute(
            "CREATE SCHEMA app; CREATE TABLE app.x (id int); CREATE TABLE t (id int PRIMARY KEY, a int, b int);
             CREATE PUBLICATION \"We\"\"ird.Näme\" FOR TABLE t (id, b) WHERE (id > 10)
                 WITH (publish = 'insert, update');
             CREATE PUBLICATION schemas FOR TABLES IN SCHEMA app",
        )
        .await
        .unwrap();
    let sql = sql(server, &db).await;
    let row = catalog::publication(&sql, "We\"ird.Näme").await.unwrap().unwrap();
    assert_eq!((row.insert, row.update, row.delete, row.truncate), (true, true, false, false));
    assert_eq!(row.tables[0].columns.as_deref(), Some(&["id".to_owned(), "b".to_owned()][..]));
    assert_eq!(row.tables[0].row_filter.as_deref(), Some("(id > 10)"));
    let row = catalog::publication(&sql, "schemas").await.unwrap().unwrap();
    assert_eq!((row.schemas, row.tables.len()), (vec!["app".to_owned()], 0));
    assert_eq!(catalog::publication(&sql, "none").await.unwrap(), None);
}
