//! The verbs against a real PostgreSQL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

mod command;

use command::database::{Database, ids, until_ids};
use command::{Running, Workplace, get, last_line, output, stderr, stdout};
use crabka_testkit::{PgServer, StopMode, needs};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn init_prints_its_plan_and_a_dry_run_changes_nothing() {
    needs!(postgres);
    let database = Database::new().await;
    let place = database.config();
    let dry = place.output("init", &["--dry-run", "--with", "checkpoint"]);
    assert_eq!(dry.status.code(), Some(0), "{}", stderr(&dry));
    let text = stdout(&dry);
    for part in
        ["CREATE PUBLICATION", "\"public\".\"orders\"", "CREATE_REPLICATION_SLOT", "crabka_checkpoint"]
    {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    assert!(text.ends_with("dry run: nothing was changed\n"), "{text}");
    assert_eq!(database.slots().await, 0);
    assert_eq!(database.count("pg_publication").await, 0);
    assert_eq!(database.count("pg_class WHERE relname = 'crabka_checkpoint'").await, 0);

    let real = place.output("init", &["--with", "checkpoint"]);
    assert_eq!(real.status.code(), Some(0), "{}", stderr(&real));
    assert_eq!(database.slots().await, 1);
    assert_eq!(database.count("pg_publication_tables WHERE tablename = 'orders'").await, 1);
    assert_eq!(database.count("public.crabka_checkpoint").await, 0);

    let again = place.output("init", &["--with", "checkpoint"]);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert!(stdout(&again).contains("nothing to do"), "{}", stdout(&again));
    database.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_01_check_finds_everything_at_once_and_leaves_nothing() {
    needs!(postgres);
    let database = Database::new().await;
    let place = database.config();
    let good = place.output("check", &[]);
    assert_eq!(good.status.code(), Some(0), "{}{}", stdout(&good), stderr(&good));
    assert_eq!(database.slots().await, 0);

    database.run("ALTER TABLE orders DROP CONSTRAINT orders_pkey").await;
    let bad = place.output(
        "check",
        &["--json", "--set", "source.create=false", "--set", "sink.path=/no/such/folder/out"],
    );
    assert_eq!(bad.status.code(), Some(11), "{}", stderr(&bad));
    assert!(last_line(&bad).starts_with("crabka: configuration: "), "{}", last_line(&bad));
    let report: Value = serde_json::from_str(&stdout(&bad)).unwrap();
    let findings = report["findings"].as_array().unwrap();
    for id in ["publication_missing", "slot_state", "sink_file"] {
        let finding = findings
            .iter()
            .find(|finding| finding["id"] == id)
            .unwrap_or_else(|| panic!("no {id}: {report}"));
        assert_eq!(finding["severity"], "error", "{finding}");
        assert!(finding["fix"].is_string(), "{finding}");
    }
    // The same content for people.
    let human =
        place.output("check", &["--set", "source.create=false", "--set", "sink.path=/no/such/folder/out"]);
    for finding in findings.iter().filter(|finding| finding["severity"] != "ok") {
        assert!(stdout(&human).contains(finding["message"].as_str().unwrap()), "{finding}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_streams_into_a_file_and_goes_on_where_it_stopped() {
    needs!(postgres);
    let database = Database::new().await;
    let place = database.config();
    assert!(place.output("init", &[]).status.success());
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    database.run("INSERT INTO other VALUES (7)").await;
    let mut running = place.run(&[]);
    until_ids(&mut running, &place, &[1]);
    running.terminate();

    database.run("INSERT INTO orders VALUES (2, 'b')").await;
    let mut running = place.run(&[]);
    until_ids(&mut running, &place, &[1, 2]);
    // Acknowledged: the server has nothing of it any more.
    running.terminate();
    let line = &place.lines("out")[0];
    assert_eq!(line["topic"], format!("{}.public.orders", database.name));
    assert_eq!(line["value"]["after"], json!({"id": 1, "v": "a"}));
    assert_eq!(line["offset"]["partition"]["slot"], json!(database.name));
    database.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_25_a_lost_slot_has_its_exit_code() {
    needs!(postgres);
    let database = Database::new().await;
    let place = database.config();
    assert!(place.output("init", &[]).status.success());
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    let mut running = place.run(&[]);
    until_ids(&mut running, &place, &[1]);
    running.terminate();
    database.drop_slot().await;

    let mut running = place.run(&[]);
    assert_eq!(running.code(), Some(13), "{}", running.log());
    let log = running.log();
    let last = log.lines().last().unwrap();
    assert!(last.starts_with("crabka: lost_position: "), "{last}");
    assert!(last.contains("; checkpointed at: {") && last.contains("\"lsn\":\""), "{last}");
    assert_eq!(database.slots().await, 0, "nothing is made anew without being told");
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_25_sigterm_ends_the_wait_for_the_first_slot() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let database = Database::on(&server).await;
    let place = database.config();
    let writer = server.connect(&database.name).await.unwrap();
    writer.batch_execute("BEGIN; INSERT INTO other VALUES (1)").await.unwrap();
    let mut running = place.run(&[]);
    running.until_log("creation of the replication slot is");
    assert_eq!(database.slots().await, 1, "half made");
    let began = std::time::Instant::now();
    running.signal("TERM");
    assert_eq!(running.code(), Some(0), "{}", running.log());
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}\n{}", began.elapsed(), running.log());
    assert_eq!(database.slots().await, 0, "{}", running.log());
    writer.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_25_a_second_sigint_ends_at_once() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let database = Database::on(&server).await;
    let place = database.config();
    let config = format!(
        "name = {:?}\n[source]\nurl = {:?}\n[sink]\ntype = \"stdout\"\n[checkpoint]\nstore = \"memory\"\n",
        database.name, database.url
    );
    std::fs::write(place.path("crabka.toml"), config).unwrap();
    // A sink that never finishes a batch: nobody reads the pipe.
    let pipe = place.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let held = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let mut running = {
        let log = place.path("stderr.log");
        let child = command::crabka()
            .args(["run", "-c", &place.config(), "--set", "runtime.drain_timeout_ms=600000"])
            .stdout(held.try_clone().unwrap())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Running::of(child, log)
    };
    running.until_log("streaming");
    database.run("INSERT INTO orders SELECT i, repeat('x', 1000) FROM generate_series(1, 2000) i").await;
    std::thread::sleep(std::time::Duration::from_millis(500));
    running.signal("INT");
    running.until_log("ending: what was read is finished first");
    running.signal("INT");
    assert_eq!(running.code(), Some(130), "{}", running.log());
    assert!(running.log().lines().last().unwrap().starts_with("crabka: interrupted: "), "{}", running.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoints_tell_what_the_run_does() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let database = Database::on(&server).await;
    let place = database.config();
    let mut running = place.run(&["--set", "http.listen=127.0.0.1:0", "--log-format", "json"]);
    let address = running.http_address();
    running.until_log("\"streaming\"");
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    until_ids(&mut running, &place, &[1]);
    running.until("progress", || {
        (get(address, "/status").1["records_acknowledged"].as_u64()? > 0).then_some(())
    });
    assert_eq!(get(address, "/live"), (200, json!({"live": true, "phase": "running"})));
    let (code, ready) = get(address, "/ready");
    assert_eq!((code, &ready["ready"], &ready["phase"]), (200, &true.into(), &"running".into()), "{ready}");

    server.stop(StopMode::Fast).await.unwrap();
    let (_, why) =
        running.until("not ready", || Some(get(address, "/ready")).filter(|(status, _)| *status == 503));
    assert_eq!(why["ready"], false);
    assert!(why["reason"].as_str().unwrap().contains("transient: "), "{why}");
    assert_eq!(get(address, "/live").0, 200);
    server.start_again().await.unwrap();
    running.until("ready again", || (get(address, "/ready").0 == 200).then_some(()));
    running.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checkpoint_can_be_kept_in_a_table() {
    needs!(postgres);
    let database = Database::new().await;
    let place = database.config();
    let table = ["--set", "checkpoint.store=postgres"];
    let text = std::fs::read_to_string(place.path("crabka.toml")).unwrap();
    let end = text.find("store = \"file\"").unwrap();
    std::fs::write(place.path("crabka.toml"), format!("{}store = \"memory\"\n", &text[..end])).unwrap();

    let mut missing = place.run(&table);
    assert_eq!(missing.code(), Some(11), "{}", missing.log());
    assert!(
        missing.log().contains("CREATE TABLE IF NOT EXISTS public.crabka_checkpoint"),
        "{}",
        missing.log()
    );
    let check = place.output("check", &[&table[..], &["--json"]].concat());
    assert!(stdout(&check).contains("checkpoint_table"), "{}", stdout(&check));
    assert_eq!(check.status.code(), Some(11));

    assert!(place.output("init", &["--with", "checkpoint"]).status.success());
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    let mut running = place.run(&table);
    until_ids(&mut running, &place, &[1]);
    running.terminate();
    assert_eq!(database.count(&format!("crabka_checkpoint WHERE connector = '{}'", database.name)).await, 1);
    database.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_table_in_the_captured_database_does_not_feed_itself() {
    needs!(postgres);
    for tables in ["[]", "[\"public.*\"]"] {
        let database = Database::new().await;
        let place = database.config();
        let config = format!(
            "name = {:?}\n[source]\nurl = {:?}\ntables = {tables}\nheartbeat_interval_ms = 1000\n\
             [sink]\ntype = \"file\"\npath = {:?}\n[checkpoint]\nstore = \"postgres\"\n",
            database.name,
            database.url,
            place.path("out"),
        );
        std::fs::write(place.path("crabka.toml"), config).unwrap();
        database.run(include_str!("../../../migrations/003_checkpoint.sql")).await;
        assert!(place.output("init", &[]).status.success());
        let published = "pg_publication_tables WHERE tablename = 'crabka_checkpoint'";
        assert_eq!(database.count(published).await, 1, "the server sends its changes");
        let mut running = place.run(&[]);
        database.run("INSERT INTO orders VALUES (1, 'a')").await;
        until_ids(&mut running, &place, &[1]);
        let saved = || async {
            let saves =
                "SELECT n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE relname = 'crabka_checkpoint'";
            database.sql.query_one(saves, &[]).await.unwrap().get::<_, i64>(0)
        };
        let before = saved().await;
        tokio::time::sleep(std::time::Duration::from_secs(4)).await;
        let saves = saved().await - before;
        assert!(saves <= 6, "{saves} saves in 4 s with nothing to stream");
        assert_eq!(ids(&place), [1], "nothing but the row, and heartbeats");
        running.terminate();
        database.drop_slot().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_prints_lines_from_a_temporary_slot_and_leaves_nothing() {
    needs!(postgres);
    let database = Database::new().await;
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["tail", &database.url, "--table", "public.orders", "--log-level", "info"];
    let (mut running, out) = Running::start(directory.path(), &arguments);
    running.until_log("streaming");
    assert_eq!(database.slots().await, 1);
    database.run("INSERT INTO orders VALUES (1, 'a'); INSERT INTO other VALUES (1)").await;
    database.run("DELETE FROM orders").await;
    let lines = running.until("lines", || {
        let text = std::fs::read_to_string(&out).unwrap();
        (text.lines().count() >= 3).then_some(text)
    });
    running.terminate();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<(&Value, &Value)> = lines.iter().map(|line| (&line["key"], &line["value"]["op"])).collect();
    let key = json!({"id": 1});
    assert_eq!(seen, [(&key, &json!("c")), (&key, &json!("d")), (&key, &Value::Null)]);
    let line = lines[0].as_object().unwrap();
    let mut members: Vec<&str> = line.keys().map(String::as_str).collect();
    members.sort_unstable();
    assert_eq!(members, ["headers", "key", "offset", "timestamp", "topic", "value"]);
    assert!(line["offset"]["position"]["lsn"].is_string(), "{line:?}");
    assert!(line["timestamp"].is_i64(), "{line:?}");
    assert_eq!(database.count("pg_publication").await, 0);
    // A temporary slot goes when the server sees that the connection is gone: a moment after the process has ended.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while database.slots().await > 0 {
        assert!(std::time::Instant::now() < deadline, "the temporary slot stays");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_ends_when_it_has_caught_up_and_a_slot_stays_where_it_is() {
    needs!(postgres);
    let database = Database::new().await;
    database.run("CREATE PUBLICATION p FOR TABLE orders").await;
    database
        .run(&format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", database.name))
        .await;
    database.run("INSERT INTO orders VALUES (1, 'a'), (2, 'b')").await;
    // What follows is not published: its end must be found all the same.
    database.run("INSERT INTO other SELECT i FROM generate_series(1, 1000) i").await;
    let position = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1";
    let before: String = database.sql.query_one(position, &[&database.name]).await.unwrap().get(0);
    for round in 0..2 {
        let arguments = [
            "tail",
            &database.url,
            "--from-slot",
            &database.name,
            "--publication",
            "p",
            "--exit-when-caught-up",
            "--envelope",
            "flat",
        ];
        let output = output(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let lines: Vec<Value> =
            stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let values: Vec<&Value> = lines.iter().map(|line| &line["value"]["v"]).collect();
        assert_eq!(values, ["a", "b"], "round {round}");
        assert_eq!(lines[0]["value"]["__op"], "c");
        assert_eq!(lines[0]["value"]["__table"], "public.orders");
        let after: String = database.sql.query_one(position, &[&database.name]).await.unwrap().get(0);
        assert_eq!(after, before, "the slot has moved");
    }
    assert_eq!(database.count("pg_publication").await, 1);
    database.drop_slot().await;

    let nothing = output(&["tail", &database.url, "--exit-when-caught-up"]);
    assert_eq!(nothing.status.code(), Some(0), "{}", stderr(&nothing));
    assert_eq!(stdout(&nothing), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_ends_on_a_server_where_nothing_happens() {
    needs!(postgres);
    // One of its own: on a shared one the other tests write WAL, which carries the position on.
    let server = PgServer::start().await.unwrap();
    for round in 0..4 {
        let started = std::time::Instant::now();
        let output = output(&["tail", &server.url("postgres"), "--exit-when-caught-up"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        // Without an end of its own it would wait for the background writer, which writes WAL every 15 seconds.
        assert!(started.elapsed().as_secs() < 8, "round {round}: {:?}", started.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_warns_of_a_configured_table_that_is_not_published() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let database = Database::on(&server).await;
    let place = database.config();
    assert_eq!(place.output("init", &[]).status.code(), Some(0));
    let mut running = place.run(&["--set", "source.tables=public.orders,public.other"]);
    running.until_log("streaming");
    let log = running.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains(" WARN ")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    assert!(warnings[0].contains("public.other") && warnings[0].contains("crabka check"), "{log}");
    running.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_refuses_what_would_make_an_applications_update_fail() {
    needs!(postgres);
    let database = Database::new().await;
    database.run("CREATE TABLE keyless (v text)").await;
    let refused = output(&["tail", &database.url, "--table", "public.keyless", "--exit-when-caught-up"]);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(11), "{said}");
    assert!(said.contains("REPLICA IDENTITY"), "{said}");
    assert_eq!(database.count("pg_publication").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ops_05_a_refused_password_is_not_repeated() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    server.set_hba(&["local all all trust", "host all all 127.0.0.1/32 scram-sha-256"]).await.unwrap();
    server.reload().await.unwrap();
    let url = format!("postgres://postgres:CANARY-pa55@127.0.0.1:{}/postgres", server.port());
    let output = output(&["tail", &url, "--log-level", "trace"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(11), "{said}");
    assert!(said.contains("28P01"), "{said}");
    assert!(!said.contains("CANARY"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_migrations_apply_and_apply_again() {
    needs!(postgres);
    let server = PgServer::start().await.unwrap();
    let database = Database::on(&server).await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/");
    for round in 0..2 {
        for file in ["001_role.sql", "003_checkpoint.sql"] {
            let sql = std::fs::read_to_string(format!("{folder}{file}")).unwrap();
            database
                .sql
                .batch_execute(&sql)
                .await
                .unwrap_or_else(|error| panic!("{file}, round {round}: {error}"));
        }
    }
    database.run(&std::fs::read_to_string(format!("{folder}002_publication.sql")).unwrap()).await;
    assert_eq!(
        database.count("pg_roles WHERE rolname = 'crabka' AND rolreplication AND NOT rolsuper").await,
        1
    );
    assert_eq!(
        database
            .count(
                "pg_roles WHERE pg_has_role('crabka', 'pg_read_all_stats', 'USAGE') AND rolname = 'crabka'"
            )
            .await,
        1
    );
    // With the role, the publication and the grants of the README, the role can stream and keep its checkpoint.
    database.run("GRANT SELECT, INSERT, UPDATE ON crabka_checkpoint TO crabka").await;
    let place = Workplace::new(&format!(
        "name = \"orders\"\n[source]\nurl = {:?}\nheartbeat_interval_ms = 200\n[sink]\ntype = \"file\"\npath = \"OUT\"\n\
         [checkpoint]\nstore = \"postgres\"\n",
        server.url_as("crabka", &database.name)
    ));
    let text = std::fs::read_to_string(place.path("crabka.toml")).unwrap();
    let out = place.path("out").display().to_string();
    std::fs::write(place.path("crabka.toml"), text.replace("OUT", &out)).unwrap();
    let init = place.output("init", &[]);
    assert_eq!(init.status.code(), Some(0), "{}{}", stdout(&init), stderr(&init));
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    let mut running = place.run(&[]);
    until_ids(&mut running, &place, &[1]);
    running.terminate();
}
