//! Throw-away brokers: each promise of `KafkaBroker`, against real Apache Kafka.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crabka_testkit::{Error, KafkaBroker, needs};

#[tokio::test]
async fn a_broker_stops_dies_and_comes_back_on_its_port() {
    needs!(kafka);
    let began = Instant::now();
    let broker = KafkaBroker::start().await.unwrap();
    println!("kafka {} started in {} ms", broker.version().unwrap(), began.elapsed().as_millis());
    assert!(!broker.is_external());
    let address = broker.bootstrap_servers();
    assert!(TcpStream::connect(&address).is_ok());
    assert!(matches!(broker.start_again().await, Err(Error::State(_))));

    let stopped = broker.stop().await.unwrap();
    assert_eq!(stopped.code, 143, "an orderly shutdown");
    assert!(TcpStream::connect(&address).is_err());
    assert!(matches!(broker.stop().await, Err(Error::State(_))));
    broker.start_again().await.unwrap();
    assert_eq!(broker.bootstrap_servers(), address);
    assert!(TcpStream::connect(&address).is_ok());

    assert_eq!(broker.kill9().await.unwrap().code, 137);
    assert!(TcpStream::connect(&address).is_err());
    broker.start_again().await.unwrap();
    assert!(broker.log().contains("Kafka Server started"));
}

#[tokio::test]
async fn a_broker_that_cannot_start_shows_its_log() {
    needs!(kafka);
    let error = KafkaBroker::builder().setting("num.io.threads", "many").start().await.unwrap_err();
    assert!(error.to_string().contains("num.io.threads"), "{error}");
}

#[test]
fn the_shared_broker_outlives_the_runtime_that_started_it() {
    needs!(kafka);
    let mut addresses = Vec::new();
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let broker = runtime.block_on(KafkaBroker::shared()).unwrap();
        addresses.push(broker.bootstrap_servers());
        drop(runtime);
        let first = broker.bootstrap_servers().split(',').next().unwrap().to_owned();
        assert!(TcpStream::connect(first).is_ok());
    }
    assert_eq!(addresses[0], addresses[1]);
}

/// Run by the next test in a process of its own.
#[tokio::test]
async fn child_with_a_named_broker() {
    if std::env::var_os("CRABKA_TESTKIT_CHILD").is_none() {
        return;
    }
    let broker = KafkaBroker::shared().await.unwrap();
    assert!(broker.is_external());
    assert_eq!(broker.bootstrap_servers(), std::env::var("CRABKA_TEST_KAFKA").unwrap());
    assert!(matches!(broker.stop().await, Err(Error::State(_))));
    assert!(matches!(broker.kill9().await, Err(Error::State(_))));
}

fn child(test: &str, kafka: &str) -> std::process::Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("CRABKA_TESTKIT_CHILD", "1")
        .env("CRABKA_TEST_KAFKA", kafka)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[tokio::test]
async fn a_broker_named_in_the_environment_is_used_and_never_stopped() {
    needs!(kafka);
    let broker = KafkaBroker::shared().await.unwrap();
    let address = broker.bootstrap_servers();
    let output = child("child_with_a_named_broker", &address);
    assert!(output.status.success(), "{output:?}");
    assert!(TcpStream::connect(address.split(',').next().unwrap()).is_ok());

    let output = child("child_with_a_named_broker", "127.0.0.1:1");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("CRABKA_TEST_KAFKA"), "{text}");
}

/// Run by the next test in a process of its own, which is then killed.
#[tokio::test]
async fn child_that_is_killed() {
    let Some(note) = std::env::var_os("CRABKA_TESTKIT_NOTE") else { return };
    let broker = KafkaBroker::start().await.unwrap();
    let draft = std::path::Path::new(&note).with_extension("draft");
    std::fs::write(&draft, broker.bootstrap_servers()).unwrap();
    std::fs::rename(&draft, &note).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
}

#[test]
fn a_test_process_killed_with_sigkill_takes_its_broker_along() {
    needs!(kafka);
    let scratch = tempfile::tempdir().unwrap();
    let note = scratch.path().join("note");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_is_killed", "--nocapture"])
        .env("CRABKA_TESTKIT_NOTE", &note)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !note.exists() && began.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let address = std::fs::read_to_string(&note).unwrap();
    assert!(TcpStream::connect(&address).is_ok());
    child.kill().unwrap();
    child.wait().unwrap();
    let began = Instant::now();
    while TcpStream::connect(&address).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(15), "the broker still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
}
