//! The server as the oracle: random values of each type, read as text and as binary from a real server. The binary
//! form must give the server's own text, and both forms the same output in each envelope.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod literals;
mod rows;

use std::collections::BTreeSet;
use std::error::Error;

use crabka_connect_postgres::types::{ColumnType, Form, Kind, TypeRegistry};
use crabka_connect_postgres::{SqlConnection, catalog};
use crabka_testkit::PgServer;
use literals::{Random, samples};
use rows::{b, t, written};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::{FromSql, Type};

/// The bytes of a column, whatever its type.
struct Raw(Vec<u8>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

async fn connect(server: &PgServer, name: &str) -> SqlConnection {
    let database = server.create_database(name).await.unwrap();
    let sql = SqlConnection::connect_url(&server.url(&database)).await.unwrap();
    let objects = "CREATE EXTENSION hstore SCHEMA public; CREATE EXTENSION ltree SCHEMA public; \
        CREATE EXTENSION citext SCHEMA public; CREATE EXTENSION cube SCHEMA public; \
        CREATE TYPE public.mood AS ENUM ('sad', 'it''s, \"ok\"'); \
        CREATE DOMAIN public.price AS numeric(8,3); CREATE DOMAIN public.prices AS public.price[]; \
        CREATE TYPE public.floatrange AS RANGE (subtype = float8); \
        CREATE TYPE public.pair AS (a int, b text); \
        CREATE TEMP TABLE literals (id int, literal text)";
    sql.simple("making objects", objects).await.unwrap();
    sql
}

/// The type's oid, its modifier and what the catalogue knows of it.
async fn resolve(sql: &SqlConnection, sql_type: &str) -> (u32, i32, TypeRegistry) {
    sql.simple(
        "making a column",
        &format!("DROP TABLE IF EXISTS public.t; CREATE TABLE public.t (v {sql_type})"),
    )
    .await
    .unwrap();
    let column = "SELECT atttypid, atttypmod FROM pg_attribute \
        WHERE attrelid = 'public.t'::regclass AND attname = 'v'";
    let row = sql.query_one("reading the column", column, &[]).await.unwrap();
    let (oid, typmod) = (row.get::<_, u32>(0), row.get::<_, i32>(1));
    let mut registry = TypeRegistry::default();
    for entry in catalog::types(sql, &[oid]).await.unwrap() {
        registry.insert(entry);
    }
    // The stream reports no modifier for a column of a domain; the one of the domain counts.
    (oid, typmod, registry)
}

async fn check(sql: &SqlConnection, sql_type: &str, literals: &[String]) {
    let (oid, typmod, registry) = resolve(sql, sql_type).await;
    let column_type = ColumnType::resolve(oid, typmod, &registry);
    sql.simple("emptying", "TRUNCATE literals").await.unwrap();
    let insert =
        "INSERT INTO literals SELECT id, literal FROM unnest($1::text[]) WITH ORDINALITY l(literal, id)";
    sql.query("inserting", insert, &[(&literals, Type::TEXT_ARRAY)]).await.unwrap();
    let select = format!("SELECT literal::{sql_type} FROM literals ORDER BY id");
    let answer =
        sql.simple("reading text", &select).await.unwrap_or_else(|error| panic!("{sql_type}: {error}"));
    let texts: Vec<String> = answer
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap().to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(texts.len(), literals.len());
    if column_type.binary_is_known() {
        let binaries = sql.query("reading binary", &select, &[]).await.unwrap();
        for (text, row) in texts.iter().zip(&binaries) {
            let Raw(binary) = row.get(0);
            let rendered = column_type.server_text(Form::Binary, &binary);
            assert_eq!(rendered.as_deref(), Ok(text.as_str()), "{sql_type}");
            let from_text = written(oid, typmod, &registry, t(text)).unwrap();
            assert_eq!(written(oid, typmod, &registry, b(&binary)).unwrap(), from_text, "{sql_type} {text}");
        }
    } else {
        for text in &texts {
            assert!(written(oid, typmod, &registry, t(text)).is_ok(), "{sql_type} {text}");
        }
    }
}

#[tokio::test]
async fn random_values_agree_with_the_server() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let sql = connect(server, "types").await;
    let mut random = Random::new(0x5EED);
    for (sql_type, literals) in samples(&mut random) {
        check(&sql, sql_type, &literals).await;
    }
}

/// Types of the catalogue that a table can have and that have no line in our table: their text is streamed.
const TEXT_ONLY: [&str; 4] =
    ["pg_brin_bloom_summary", "pg_brin_minmax_multi_summary", "pg_dependencies", "pg_mcv_list"];

#[tokio::test]
async fn the_table_of_built_in_types_is_the_servers() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let sql = connect(server, "registry").await;
    let types = "SELECT oid, typname::text, typarray, typdelim::text, typtype::text FROM pg_type \
        WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype IN ('b', 'r', 'm') AND typcategory <> 'A'";
    let nothing = TypeRegistry::default();
    let mut unknown = BTreeSet::new();
    for row in sql.query("reading types", types, &[]).await.unwrap() {
        let (oid, name, array): (u32, String, u32) = (row.get(0), row.get(1), row.get(2));
        let known = ColumnType::resolve(oid, -1, &nothing);
        if known.name().starts_with("oid ") {
            unknown.insert(name);
            continue;
        }
        assert_eq!(known.name().trim_matches('"'), name);
        let known_array = ColumnType::resolve(array, -1, &nothing);
        assert_eq!(known_array.element().map(ColumnType::oid), Some(oid), "{name}[]");
        assert_eq!(known_array.kind(), Kind::Array);
        let delimiter: String = row.get(3);
        let two = format!("{{a{delimiter}b}}");
        if known.kind() == Kind::ServerText {
            let list = written(array, -1, &nothing, t(&two)).unwrap().debezium;
            assert_eq!(list, "[\"a\",\"b\"]", "{name}[]");
        }
    }
    let expected: BTreeSet<String> = TEXT_ONLY
        .iter()
        .map(|&name| name.to_owned())
        .chain(["pg_ndistinct", "pg_node_tree"].map(str::to_owned))
        .collect();
    assert_eq!(unknown, expected);
}
