//! OPS-24, DEL-31: slots are listed with what they cost, and dropped only when told.

use crabka_testkit::needs;
use serde_json::Value;

use crate::command::database::{Database, until_ids};
use crate::command::{Workplace, crabka, last_line, stderr, stdout};

fn slots(place: &Workplace, arguments: &[&str]) -> std::process::Output {
    crabka().arg("slots").args(arguments).args(["-c", &place.config()]).output().unwrap()
}

fn listed(place: &Workplace, name: &str) -> Option<Value> {
    let output = slots(place, &["list", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    report["slots"].as_array().unwrap().iter().find(|slot| slot["name"] == name).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_24_slots_are_listed_with_what_they_keep_and_whose_they_are() {
    needs!(postgres);
    let database = Database::new().await;
    let place = database.config();
    assert!(place.output("init", &[]).status.success());
    let foreign = format!("{}_foreign", database.name);
    database.run(&format!("SELECT pg_create_logical_replication_slot('{foreign}', 'test_decoding')")).await;
    database.run("INSERT INTO orders SELECT i, repeat('x', 1000) FROM generate_series(1, 200) i").await;

    let ours = listed(&place, &database.name).unwrap();
    assert_eq!((&ours["ours"], &ours["plugin"]), (&true.into(), &"pgoutput".into()), "{ours}");
    assert_eq!(
        (&ours["database"], &ours["active"]),
        (&database.name.clone().into(), &false.into()),
        "{ours}"
    );
    assert!(ours["retained_bytes"].as_i64().unwrap() > 200_000, "{ours}");
    assert!(ours["restart_lsn"].is_string() && ours["confirmed_flush_lsn"].is_string(), "{ours}");
    let other = listed(&place, &foreign).unwrap();
    assert_eq!((&other["ours"], &other["plugin"]), (&false.into(), &"test_decoding".into()), "{other}");

    let table = slots(&place, &["list"]);
    let text = stdout(&table);
    let line = |name: &str| text.lines().find(|line| line.contains(&format!(" {name} "))).unwrap().to_owned();
    assert!(line(&database.name).starts_with("*  "), "{text}");
    assert!(line(&foreign).starts_with("   "), "{text}");
    assert!(text.contains("iB  ") && text.contains("reserved"), "{text}");

    for name in [&foreign, &database.name] {
        database.run(&format!("SELECT pg_drop_replication_slot('{name}')")).await;
    }
    let gone = slots(&place, &["list"]);
    let expected = format!("the slot of this configuration does not exist: {}\n", database.name);
    assert!(stdout(&gone).ends_with(&expected), "{}", stdout(&gone));
}

#[tokio::test(flavor = "multi_thread")]
async fn del_31_no_slot_is_dropped_unasked_in_use_or_foreign() {
    needs!(postgres);
    let database = Database::new().await;
    let place = database.config();
    let foreign = format!("{}_foreign", database.name);
    let neighbour = format!("{}_neighbour", database.name);
    for (name, plugin) in [(&foreign, "test_decoding"), (&neighbour, "pgoutput")] {
        database.run(&format!("SELECT pg_create_logical_replication_slot('{name}', '{plugin}')")).await;
    }
    let mut running = place.run(&[]);
    database.slots_become(3).await;
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    until_ids(&mut running, &place, &[1]);
    let reader = listed(&place, &database.name).unwrap()["holder"]["pid"].as_i64().unwrap();

    let unasked = slots(&place, &["drop", &neighbour, "--force"]);
    assert_eq!(unasked.status.code(), Some(2), "{}", stderr(&unasked));
    assert!(stdout(&unasked).contains("keeps "), "it is shown first: {}", stdout(&unasked));
    for (name, why) in [
        (&database.name, format!("in use by pid {reader}")),
        (&foreign, "output plugin test_decoding".to_owned()),
        (&neighbour, "not the slot of this connector".to_owned()),
    ] {
        let refused = slots(&place, &["drop", name, "--yes"]);
        assert_eq!(refused.status.code(), Some(11), "{}", stderr(&refused));
        assert!(last_line(&refused).contains(&why), "{}", last_line(&refused));
        assert!(last_line(&refused).contains("--force"), "{}", last_line(&refused));
        assert!(listed(&place, name).is_some());
    }
    assert_eq!(listed(&place, &database.name).unwrap()["holder"]["pid"], reader, "the run was disturbed");

    for name in [&foreign, &neighbour] {
        let forced = slots(&place, &["drop", name, "--yes", "--force"]);
        assert_eq!(forced.status.code(), Some(0), "{}", stderr(&forced));
        assert!(!stdout(&forced).contains("still there"), "nothing of ours: {}", stdout(&forced));
        assert_eq!(listed(&place, name), None);
    }
    let forced = slots(&place, &["drop", &database.name, "--yes", "--force"]);
    assert_eq!(forced.status.code(), Some(0), "{}", stderr(&forced));
    let text = stdout(&forced);
    assert!(text.contains(&format!("ended the session that read it: pid {reader}")), "{text}");
    assert_eq!(running.code(), Some(13), "{}", running.log());

    let missing = slots(&place, &["drop", &database.name, "--yes"]);
    assert_eq!(missing.status.code(), Some(11), "{}", stderr(&missing));
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_24_what_stays_behind_is_told_with_what_removes_it() {
    needs!(postgres);
    let database = Database::new().await;
    let place = database.config();
    assert!(place.output("init", &[]).status.success());
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    let mut running = place.run(&[]);
    until_ids(&mut running, &place, &[1]);
    running.terminate();

    let dropped = slots(&place, &["drop", &database.name, "--yes"]);
    assert_eq!(dropped.status.code(), Some(0), "{}", stderr(&dropped));
    let text = stdout(&dropped);
    assert!(text.contains("last confirmed position: "), "{text}");
    assert!(text.contains(&format!("dropped the replication slot {}", database.name)), "{text}");
    let told: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("it is removed by: ")).map(|(_, told)| told).collect();
    let [publication, offset] = told[..] else { panic!("publication and offset: {text}") };

    // As was said: the offset that stays behind stops the next start.
    let mut stopped = place.run(&[]);
    assert_eq!(stopped.code(), Some(13), "{}", stopped.log());
    database.run(publication).await;
    assert_eq!(database.count("pg_publication").await, 0);
    let removed = std::process::Command::new("sh").args(["-c", offset]).status().unwrap();
    assert!(removed.success(), "{offset}");
    let mut running = place.run(&[]);
    database.slots_become(1).await;
    database.run("INSERT INTO orders VALUES (2, 'b')").await;
    until_ids(&mut running, &place, &[1, 2]);
    running.terminate();
    let again = slots(&place, &["drop", &database.name, "--yes"]);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
}
