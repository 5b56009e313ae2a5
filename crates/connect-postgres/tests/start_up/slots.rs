//! Slots in odd states, and dropping them.

use std::time::Duration;

use crabka_connect::ErrorClass;
use crabka_connect_postgres::catalog::{self, SlotFault};
use crabka_connect_postgres::check::{CheckRequest, Severity, check, id};
use crabka_connect_postgres::setup::DropSlot;
use crabka_pgrepl::{Lsn, ReplicationClient, StartReplication};
use crabka_testkit::{PgServer, pg_available_majors};

use crate::requests::{GOOD, the};
use crate::{config, drop_slot, patterns, sql};

fn request(slot: &str) -> CheckRequest<'static> {
    CheckRequest::new(slot, "p", patterns(&["public.orders"]))
}

async fn server() -> (PgServer, tokio_postgres::Client) {
    let server = PgServer::start().await.unwrap();
    let client = server.connect("postgres").await.unwrap();
    client.batch_execute(GOOD).await.unwrap();
    (server, client)
}

#[tokio::test]
async fn del_28_slot_in_an_odd_state() {
    crabka_testkit::needs!(postgres);
    let (server, client) = server().await;
    client.batch_execute("CREATE DATABASE other").await.unwrap();
    server
        .connect("other")
        .await
        .unwrap()
        .batch_execute("SELECT pg_create_logical_replication_slot('elsewhere', 'pgoutput')")
        .await
        .unwrap();
    client.batch_execute("SELECT pg_create_physical_replication_slot('physical')").await.unwrap();
    client
        .batch_execute("SELECT pg_create_logical_replication_slot('foreign', 'test_decoding')")
        .await
        .unwrap();
    let sql = sql(&server, "postgres").await;
    for (slot, fault, word) in [
        ("physical", SlotFault::Physical, "physical"),
        ("elsewhere", SlotFault::Database("other".into()), ": other"),
        ("foreign", SlotFault::Plugin("test_decoding".into()), ": test_decoding"),
    ] {
        let row = catalog::slot(&sql, slot).await.unwrap().unwrap();
        assert_eq!(row.fault("postgres"), Some(fault.clone()));
        let error = fault.to_error(&row);
        assert_eq!(error.class(), ErrorClass::Configuration);
        assert!(error.message().contains(word) && error.fix().is_some(), "{error}");
        let report = check(&sql, &request(slot)).await;
        assert_eq!(the(&report, id::SLOT_STATE).severity, Severity::Error, "{report}");
    }
}

#[tokio::test]
async fn del_28_slot_that_is_being_created() {
    crabka_testkit::needs!(postgres);
    let (server, client) = server().await;
    let writer = server.connect("postgres").await.unwrap();
    writer.batch_execute("BEGIN; INSERT INTO orders VALUES (1, 'x')").await.unwrap();
    let pid: i32 = writer.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let creator = server.connect("postgres").await.unwrap();
    let creator_pid: i32 = creator.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let creation = tokio::spawn(async move {
        creator.batch_execute("SELECT pg_create_logical_replication_slot('half', 'pgoutput')").await
    });
    let sql = sql(&server, "postgres").await;
    let row = loop {
        match catalog::slot(&sql, "half").await.unwrap() {
            Some(row) => break row,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let fault = row.fault("postgres").unwrap();
    assert_eq!(fault, SlotFault::InCreation(Some(creator_pid)));
    let error = fault.to_error(&row);
    assert_eq!(error.class(), ErrorClass::Transient);
    assert!(error.message().contains(&format!("pid {creator_pid}")), "{error}");
    let report = check(&sql, &request("half")).await;
    let finding = the(&report, id::SLOT_STATE);
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.message.contains(&format!("[pid {pid}, user postgres")), "{finding}");

    writer.batch_execute("COMMIT").await.unwrap();
    creation.await.unwrap().unwrap();
    assert_eq!(catalog::slot(&sql, "half").await.unwrap().unwrap().fault("postgres"), None);
    drop(client);
}

#[tokio::test]
async fn del_27_slot_lost() {
    crabka_testkit::needs!(postgres);
    for major in pg_available_majors() {
        let builder = PgServer::builder().major(major).setting("max_slot_wal_keep_size", "1MB");
        let server = builder.setting("max_wal_size", "32MB").start().await.unwrap();
        let client = server.connect("postgres").await.unwrap();
        client.batch_execute(GOOD).await.unwrap();
        client.batch_execute("SELECT pg_create_logical_replication_slot('lost', 'pgoutput')").await.unwrap();
        for _ in 0..4 {
            client
                .batch_execute(
                    "INSERT INTO orders SELECT 1, 'x' WHERE false; SELECT pg_switch_wal(); CHECKPOINT",
                )
                .await
                .unwrap();
            client
                .batch_execute("CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 17000); DROP TABLE filler")
                .await
                .unwrap();
        }
        client.batch_execute("CHECKPOINT").await.unwrap();
        let sql = sql(&server, "postgres").await;
        let row = catalog::slot(&sql, "lost").await.unwrap().unwrap();
        assert_eq!(row.fault("postgres"), Some(SlotFault::Lost("wal_removed".into())), "on {major}: {row:?}");
        let error = row.fault("postgres").unwrap().to_error(&row);
        assert_eq!(error.class(), ErrorClass::LostPosition);
        assert!(
            error.message().contains("wal_status lost") && error.message().contains("wal_removed"),
            "{error}"
        );
        assert!(error.fix().unwrap().contains("SELECT pg_drop_replication_slot('lost')"), "{error}");
        let report = check(&sql, &request("lost")).await;
        assert_eq!(the(&report, id::SLOT_STATE).severity, Severity::Error, "{report}");
    }
}

#[tokio::test]
async fn del_65_a_slot_that_is_two_phase() {
    crabka_testkit::needs!(postgres);
    for major in pg_available_majors().into_iter().filter(|major| *major >= 15) {
        let server = PgServer::builder().major(major).start().await.unwrap();
        let client = server.connect("postgres").await.unwrap();
        client.batch_execute(GOOD).await.unwrap();
        client
            .batch_execute("SELECT pg_create_logical_replication_slot('two', 'pgoutput', false, true)")
            .await
            .unwrap();
        let sql = sql(&server, "postgres").await;
        let mut request = request("two");
        let report = check(&sql, &request).await;
        let finding = the(&report, id::TWO_PHASE_SLOT);
        assert_eq!(
            (finding.severity, finding.subject.as_deref()),
            (Severity::Error, Some("two")),
            "{report}"
        );
        request.two_phase = true;
        assert_eq!(the(&check(&sql, &request).await, id::TWO_PHASE_SLOT).severity, Severity::Ok);
        if major >= 18 {
            let fix = finding.fix.as_deref().unwrap().split_once(": ").unwrap().1;
            let mut replication = ReplicationClient::connect(&config(&server, "postgres")).await.unwrap();
            replication.query(fix).await.unwrap();
            request.two_phase = false;
            assert_eq!(the(&check(&sql, &request).await, id::TWO_PHASE_SLOT).severity, Severity::Ok);
        }
    }
}

#[tokio::test]
async fn del_29_who_holds_the_slot() {
    crabka_testkit::needs!(postgres);
    let (server, client) = server().await;
    client.batch_execute("SELECT pg_create_logical_replication_slot('held', 'pgoutput')").await.unwrap();
    let holder = config(&server, "postgres").with_application_name("the other one");
    let replication = ReplicationClient::connect(&holder).await.unwrap();
    let pid = replication.backend_pid().unwrap();
    let start = StartReplication::new("held", Lsn::ZERO).publications(["p"]);
    let stream = replication.start_replication(&start).await.unwrap();

    let sql = sql(&server, "postgres").await;
    let mut request = request("held");
    request.application = Some("crabka".to_owned());
    let report = check(&sql, &request).await;
    let finding = the(&report, id::SLOT_OWNER);
    assert_eq!(finding.severity, Severity::Warning, "{report}");
    let expected = format!("pid {pid}, application the other one, user postgres, from 127.0.0.1");
    assert!(finding.message.ends_with(&expected), "{finding}");
    request.application = Some("the other one".to_owned());
    assert_eq!(the(&check(&sql, &request).await, id::SLOT_OWNER).severity, Severity::Ok, "it is ours");

    // DEL-31: only when told.
    let error = drop_slot(&sql, "held", false).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Configuration);
    assert!(error.message().contains(&expected), "{error}");
    assert!(catalog::slot(&sql, "held").await.unwrap().unwrap().active);
    let listed = catalog::slots(&sql).await.unwrap();
    assert_eq!(listed[0].holder.as_ref().map(|holder| holder.pid), Some(pid));
    let dropped = drop_slot(&sql, "held", true).await.unwrap();
    assert_eq!(dropped.ended.map(|holder| holder.pid), Some(pid), "ended, and not in silence");
    assert_eq!(catalog::slot(&sql, "held").await.unwrap(), None);
    drop(stream);
}

#[tokio::test]
async fn del_31_only_our_slot_and_only_when_told() {
    crabka_testkit::needs!(postgres);
    let (server, client) = server().await;
    client.batch_execute("CREATE DATABASE other").await.unwrap();
    client.batch_execute("SELECT pg_create_physical_replication_slot('physical')").await.unwrap();
    client.batch_execute("SELECT pg_create_logical_replication_slot('ours', 'pgoutput')").await.unwrap();
    let sql = sql(&server, "postgres").await;
    let elsewhere = crate::sql(&server, "other").await;
    for (connection, slot, word) in
        [(&sql, "physical", "physical"), (&elsewhere, "ours", "database postgres")]
    {
        let error = drop_slot(connection, slot, false).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Configuration);
        assert!(error.message().contains(word), "{error}");
    }
    let not_this = DropSlot { name: "ours".to_owned(), ours: Some("another".to_owned()), force: false };
    let error = not_this.carry_out(&sql).await.unwrap_err();
    assert!(error.message().contains("not the slot of this connector, which is \"another\""), "{error}");
    drop_slot(&sql, "ours", false).await.unwrap();
    drop_slot(&sql, "physical", true).await.unwrap();
    let error = drop_slot(&sql, "ours", false).await.unwrap_err();
    assert!(error.message().contains("does not exist"), "{error}");
}

#[tokio::test]
async fn ops_24_slots_are_listed_with_what_they_cost() {
    crabka_testkit::needs!(postgres);
    for major in pg_available_majors() {
        let server = PgServer::builder().major(major).start().await.unwrap();
        let client = server.connect("postgres").await.unwrap();
        client
            .batch_execute(
                "SELECT pg_create_logical_replication_slot('b', 'pgoutput'), pg_create_physical_replication_slot('a'); \
                 SELECT pg_logical_emit_message(true, 'test', repeat('x', 100000))",
            )
            .await
            .unwrap();
        let sql = sql(&server, "postgres").await;
        let listed = catalog::slots(&sql).await.unwrap();
        let names: Vec<&str> = listed.iter().map(|state| state.slot.name.as_str()).collect();
        assert_eq!(names, ["a", "b"], "on {major}");
        assert_eq!(listed[0].retained_bytes, None, "a physical slot that nobody has read keeps nothing");
        assert!(listed[1].retained_bytes >= Some(100_000), "on {major}: {listed:?}");
        let since = listed[1].inactive_since.as_deref();
        assert_eq!(since.is_some_and(|since| since.ends_with('Z') && since.starts_with("20")), major >= 17);
        assert_eq!(
            catalog::slot_state(&sql, "b").await.unwrap().map(|state| state.slot),
            catalog::slot(&sql, "b").await.unwrap()
        );
        assert_eq!(catalog::slot_state(&sql, "c").await.unwrap(), None);
    }
}
