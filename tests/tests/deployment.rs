//! What docker-compose.yml is made of: its services, the SQL it gives to the database, the worker's configuration.
//!
//! The SQL runs in a real server, in the order in which the image's entry point runs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crabka_testkit::{PgServer, needs};
use crabka_tests::crabka;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn compose() -> String {
    std::fs::read_to_string(root().join("docker-compose.yml")).unwrap()
}

/// The text of each service. Enough YAML for a file that is indented by two spaces.
fn services(compose: &str) -> BTreeMap<String, String> {
    let mut services: BTreeMap<String, String> = BTreeMap::new();
    let mut current = None;
    let body = compose.split_once("\nservices:\n").expect("services").1;
    for line in body.lines().take_while(|line| line.is_empty() || line.starts_with(' ')) {
        match line.strip_prefix("  ") {
            Some(name) if !name.starts_with(' ') && name.ends_with(':') => {
                current = Some(name.trim_end_matches(':').to_owned());
            }
            _ => {
                let Some(name) = &current else { continue };
                let text = services.entry(name.clone()).or_default();
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    services
}

/// The SQL files mounted for the image's entry point, in its order: by the name inside the container.
fn init_files(service: &str) -> Vec<PathBuf> {
    let mounted: BTreeMap<&str, &str> = service
        .lines()
        .filter_map(|line| {
            let (file, target) = line.trim().strip_prefix("- ")?.split_once(':')?;
            Some((target.strip_prefix("/docker-entrypoint-initdb.d/")?, file))
        })
        .collect();
    mounted.into_values().map(|file| root().join(file)).collect()
}

#[test]
fn the_services_are_there_with_health_checks_and_logical_decoding() {
    let services = services(&compose());
    assert_eq!(services.keys().collect::<Vec<_>>(), ["crabka", "kafka", "postgres"]);
    for (name, text) in &services {
        assert!(text.contains("    healthcheck:\n") && text.contains("      test: ["), "{name}");
    }
    assert!(services["postgres"].contains("\"wal_level=logical\""));
    assert!(services["kafka"].contains("KAFKA_PROCESS_ROLES: broker,controller"));
    assert!(
        services["crabka"].contains("build: .") && services["crabka"].contains("condition: service_healthy")
    );
    assert!(root().join("Dockerfile").is_file());
}

#[test]
fn the_image_does_not_run_as_root() {
    let dockerfile = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    let last_stage = dockerfile.rsplit("\nFROM ").next().unwrap();
    let user = last_stage.lines().find_map(|line| line.strip_prefix("USER ")).expect("a USER line");
    assert_ne!(user, "0");
    assert_ne!(user, "root");
}

#[test]
fn the_workers_configuration_is_accepted() {
    let output = Command::new(crabka())
        .args(["config", "show", "-c"])
        .arg(root().join("docker/crabka.toml"))
        .env("CRABKA_PG_PASSWORD", "a-secret")
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("kafka:19092") && !text.contains("a-secret"), "{text}");
}

#[tokio::test]
async fn the_sql_makes_what_the_worker_needs() {
    needs!(postgres);
    let files = init_files(&services(&compose())["postgres"]);
    assert_eq!(files.len(), 4);
    let server = PgServer::builder().hba("host all crabka 127.0.0.1/32 scram-sha-256").start().await.unwrap();
    server.connect("postgres").await.unwrap().batch_execute("CREATE DATABASE shop").await.unwrap();
    let owner = server.connect("shop").await.unwrap();
    for file in files {
        let sql = std::fs::read_to_string(&file).unwrap();
        owner.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{}: {error:?}", file.display()));
    }

    assert!(server.connect_as("crabka", "shop").await.is_err(), "a password is asked for");
    let url = format!("postgres://crabka:crabka@127.0.0.1:{}/shop", server.port());
    let (worker, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    worker.batch_execute("SELECT * FROM public.orders").await.unwrap();
    worker.batch_execute("SELECT pg_create_logical_replication_slot('orders', 'pgoutput')").await.unwrap();
    owner.batch_execute("INSERT INTO orders (item, amount) VALUES ('tea', 4.20)").await.unwrap();
    let changes = "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('orders', NULL, NULL, \
                   'proto_version', '1', 'publication_names', 'orders')";
    let count: i64 = worker.query_one(changes, &[]).await.unwrap().get(0);
    assert!(count >= 4, "begin, relation, insert, commit: {count}");
    assert!(worker.batch_execute("DELETE FROM orders").await.is_err(), "it may only read");
}
