//! What `check` finds beside the database's names, and fixes that can be followed.

use crabka_testkit::{PgServer, needs};
use serde_json::Value;

use crate::command::database::{Database, until_ids};
use crate::command::{Workplace, stderr, stdout};

/// The findings of that id, and the exit code.
fn findings(place: &Workplace, id: &str, arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = place.output("check", &[&["--json"], arguments].concat());
    let report: Value =
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    let all = report["findings"].as_array().unwrap().clone();
    (output.status.code(), all.into_iter().filter(|finding| finding["id"] == id).collect())
}

fn fix(finding: &Value) -> &str {
    finding["fix"].as_str().unwrap_or_else(|| panic!("no fix: {finding}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_checkpoint_file_is_found() {
    needs!(postgres);
    let database = Database::new().await;
    let place = database.config();
    let (code, found) = findings(&place, "checkpoint_position", &[]);
    assert_eq!((code, &found[0]["severity"]), (Some(0), &"ok".into()), "{found:?}");
    std::fs::write(place.path("offset"), "{\"format\":\"crabka-checkpoint\",\"vers").unwrap();
    let (code, found) = findings(&place, "checkpoint_position", &[]);
    assert_eq!((code, &found[0]["severity"]), (Some(11), &"error".into()), "{found:?}");
    assert!(fix(&found[0]).contains("mv "), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_http_address_is_found_and_our_own_run_is_no_fault() {
    needs!(postgres);
    let database = Database::new().await;
    let place = database.config();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("http.listen={}", taken.local_addr().unwrap());
    let (code, found) = findings(&place, "http_listen", &["--set", &listen]);
    assert_eq!((code, &found[0]["severity"]), (Some(11), &"error".into()), "{found:?}");
    assert!(fix(&found[0]).contains("another address"), "{found:?}");

    drop(taken);
    let (code, found) = findings(&place, "http_listen", &["--set", &listen]);
    assert_eq!((code, &found[0]["severity"]), (Some(0), &"ok".into()), "{found:?}");
    let mut running = place.run(&["--set", &listen]);
    running.until_log("http endpoints");
    let (code, found) = findings(&place, "http_listen", &["--set", &listen]);
    assert_eq!((code, &found[0]["severity"]), (Some(0), &"ok".into()), "{found:?}");
    assert!(found[0]["message"].as_str().unwrap().contains("a run of this connector"), "{found:?}");
    running.until_log("streaming");
    running.terminate();
    database.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_system_table_is_to_be_removed_and_not_published() {
    needs!(postgres);
    let database = Database::new().await;
    let place = database.config();
    assert!(place.output("init", &[]).status.success());
    for table in ["pg_catalog.pg_class", "information_schema.sql_features"] {
        let tables = format!("source.tables=public.orders,{table}");
        let (code, found) = findings(&place, "table_missing", &["--set", &tables]);
        assert_eq!(code, Some(11), "{found:?}");
        assert_eq!(
            (&found[0]["severity"], &found[0]["subject"]),
            (&"error".into(), &table.into()),
            "{found:?}"
        );
        assert!(fix(&found[0]).contains("remove it"), "{found:?}");
        let (_, others) = findings(&place, "publication_table_missing", &["--set", &tables]);
        assert!(
            others.iter().all(|finding| finding["severity"] == "ok"),
            "the server refuses that: {others:?}"
        );
    }
    database.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fix_of_a_vanished_publication_can_be_followed_to_a_running_stream() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let database = Database::on(&server).await;
    let place = database.config();
    assert!(place.output("init", &[]).status.success());
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    let mut running = place.run(&[]);
    until_ids(&mut running, &place, &[1]);
    running.terminate();
    database.run(&format!("DROP PUBLICATION {:?}; INSERT INTO orders VALUES (2, 'b')", database.name)).await;

    let (code, found) = findings(&place, "publication_missing", &[]);
    assert_eq!(code, Some(11), "{found:?}");
    let fix = fix(&found[0]);
    let create = &fix[..fix.find(';').unwrap()];
    let advance = &fix[fix.find("SELECT pg_replication_slot_advance").unwrap()..];
    let advance = &advance[..advance.find(", or drop it").unwrap()];
    database.run(create).await;
    database.run(advance).await;
    let remove = fix.rsplit(": ").next().unwrap();
    assert!(remove.starts_with("rm "), "{fix}");
    let mut stopped = place.run(&[]);
    assert_eq!(stopped.code(), Some(13), "without the last step: {}", stopped.log());
    assert!(std::process::Command::new("sh").args(["-c", remove]).status().unwrap().success());
    let mut running = place.run(&[]);
    running.until_log("streaming");
    database.run("INSERT INTO orders VALUES (3, 'c')").await;
    until_ids(&mut running, &place, &[1, 3]);
    running.terminate();
}
