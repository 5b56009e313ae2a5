//! The command line without any server: usage, configuration errors, exit codes, secrets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

mod command;

use command::{Running, Workplace, crabka, last_line, output, stderr, stdout};

const CANARY: &str = "CANARY-pa55";

const CONFIG: &str = r#"
name = "orders"
[source]
url = "postgres://app:${TEST_PASSWORD}@127.0.0.1:1/shop"
tables = ["public.orders"]
[sink]
type = "stdout"
[checkpoint]
store = "memory"
"#;

#[test]
fn ops_25_a_wrong_command_line_is_a_usage_error() {
    for arguments in [
        &["no-such-verb"][..],
        &[],
        &["run"],
        &["tail"],
        &["run", "-c", "x", "--set", "a"],
        &["run", "-c", "x", "--set", "source.=a"],
    ] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    }
    let output = output(&["config", "reference", "--log-level", "no-such-level=="]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        last_line(&output).starts_with("crabka: usage: not a log level or filter: "),
        "{}",
        stderr(&output)
    );
    // As a filter it would show nothing but a target of that name.
    let output = command::output(&["config", "reference", "--log-level", "ifno"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn ops_02_a_configuration_error_has_its_code_and_names_the_nearest_option() {
    let place = Workplace::new(&CONFIG.replace("${TEST_PASSWORD}", "").replace("tables", "tabels"));
    for verb in ["run", "check", "init"] {
        let output = place.output(verb, &[]);
        assert_eq!(output.status.code(), Some(11), "{}", stderr(&output));
        let last = last_line(&output);
        assert!(last.starts_with("crabka: configuration: "), "{last}");
        assert!(
            last.contains("crabka.toml:5: source.tabels unknown option; did you mean source.tables?"),
            "{last}"
        );
        assert!(last.contains("; to do: "), "{last}");
    }
}

#[test]
fn ops_25_with_json_logs_the_last_line_is_json() {
    let place = Workplace::new(CONFIG);
    let output = place.output("run", &["--log-format", "json"]);
    let last: serde_json::Value = serde_json::from_str(&last_line(&output)).unwrap();
    assert_eq!(last["class"], "configuration");
    assert_eq!(last["exit_code"], 11);
    assert!(
        last["message"].as_str().unwrap().ends_with("environment variable is not set: TEST_PASSWORD"),
        "{last}"
    );
}

#[test]
fn a_missing_file_is_a_configuration_error() {
    let output = output(&["run", "-c", "/no/such/file.toml"]);
    assert_eq!(output.status.code(), Some(11));
    assert!(last_line(&output).contains("configuration file cannot be read: /no/such/file.toml"));
}

#[test]
fn ops_25_giving_up_on_a_server_that_is_away_is_transient() {
    let place = Workplace::new(&CONFIG.replace(":${TEST_PASSWORD}", ""));
    let set = ["--set", "runtime.retry_max_attempts=2", "--set", "runtime.retry_first_delay_ms=10"];
    let output = place.output("run", &set);
    assert_eq!(output.status.code(), Some(10), "{}", stderr(&output));
    let last = last_line(&output);
    assert!(last.starts_with("crabka: transient: gave up after 2 attempts"), "{last}");
    assert!(stderr(&output).contains("attempt=1"), "{}", stderr(&output));
}

#[test]
fn ops_25_a_check_that_cannot_connect_could_not_look() {
    let place = Workplace::new(&CONFIG.replace(":${TEST_PASSWORD}", ""));
    let output = place.output("check", &[]);
    assert_eq!(output.status.code(), Some(10), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("0 errors, 1 warnings, 1 could not be looked at"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn a_signal_ends_what_waits_for_a_server_that_is_silent() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let place =
        Workplace::new(&CONFIG.replace(":${TEST_PASSWORD}@127.0.0.1:1", &format!("@127.0.0.1:{port}")));
    let url = format!("postgres://app@127.0.0.1:{port}/shop");
    let folder = place.path("");
    for (arguments, expected) in
        [(["tail", &url, "--log-level=info"], 0), (["init", "-c", &place.config()], 10)]
    {
        let (mut running, _) = Running::start(&folder, &arguments);
        let (connected, _) = silent.accept().unwrap();
        let asked = std::time::Instant::now();
        running.signal("TERM");
        assert_eq!(running.code(), Some(expected), "{}", running.log());
        assert!(asked.elapsed().as_secs() < 5, "{arguments:?}: {:?}", asked.elapsed());
        drop(connected);
    }
}

#[test]
fn names_that_the_server_refuses_or_cuts_off_are_configuration_errors() {
    let place = Workplace::new(&CONFIG.replace(":${TEST_PASSWORD}", ""));
    let long = "n".repeat(64);
    for set in ["source.slot=Bad Slot".to_owned(), format!("source.slot={long}"), format!("name={long}")] {
        for verb in ["check", "init", "run"] {
            let output = place.output(verb, &["--set", &set]);
            assert_eq!(output.status.code(), Some(11), "{verb} {set}: {}", stderr(&output));
            assert!(last_line(&output).contains(" name "), "{}", last_line(&output));
        }
    }
}

#[test]
fn set_works_on_every_verb() {
    let place = Workplace::new(&CONFIG.replace(":${TEST_PASSWORD}", ""));
    for verb in ["run", "check", "init"] {
        let output = place.output(verb, &["--set", "source.binary=maybe"]);
        assert_eq!(output.status.code(), Some(11), "{verb}");
        assert!(
            last_line(&output).contains("--set: source.binary must be one of auto, true, false"),
            "{verb}"
        );
    }
    for arguments in
        [&["tail", "postgres://127.0.0.1:1/x"][..], &["demo", "--pg", "postgres://127.0.0.1:1/x"]]
    {
        let output = crabka().args(arguments).args(["--set", "source.no_such=1"]).output().unwrap();
        // The demo connects before it reads the configuration of its stream.
        assert!([10, 11].contains(&output.status.code().unwrap()), "{}", stderr(&output));
    }
}

#[test]
fn ops_02_tail_refuses_options_that_have_no_effect_on_it() {
    let output = output(&["tail", "postgres://127.0.0.1:1/x", "--set", "runtime.max_batch_records=5"]);
    assert_eq!(output.status.code(), Some(11));
    assert!(last_line(&output).contains("--set: runtime.max_batch_records has no effect on crabka tail"));
}

#[test]
fn config_show_prints_what_is_in_effect_and_no_secret() {
    let place = Workplace::new(CONFIG);
    let output = crabka()
        .args(["config", "show", "-c", &place.config(), "--set", "runtime.max_batch_records=7"])
        .env("TEST_PASSWORD", CANARY)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let shown = stdout(&output);
    assert!(shown.contains("url = \"postgres://app:***@127.0.0.1:1/shop\""), "{shown}");
    assert!(shown.contains("max_batch_records = 7  # --set\n"), "{shown}");
    assert!(!shown.contains(CANARY));
    // What follows from another option is in effect too.
    for line in [
        "slot = \"orders\"  # default: `name`, ",
        "publication = \"orders\"  # default: `name`",
        "topic_prefix = \"orders\"  # default: `name`",
        "heartbeat_topic = \"__debezium-heartbeat.orders\"  # default: ",
        "# retry_max_attempts is not set: never gives up",
    ] {
        assert!(shown.contains(line), "no {line} in:\n{shown}");
    }
}

#[test]
fn config_reference_is_the_generated_page() {
    let output = output(&["config", "reference"]);
    assert_eq!(stdout(&output), include_str!("../../../docs/CONFIG.md"));
}

#[test]
fn ops_05_no_secret_in_any_output_of_any_verb() {
    let place = Workplace::new(CONFIG);
    for verb in [&["run"][..], &["check"], &["check", "--json"], &["init"], &["init", "--dry-run"]] {
        let output = crabka()
            .args([verb[0], "-c", &place.config(), "--log-level", "trace"])
            .args(&verb[1..])
            .args(["--set", "runtime.retry_max_attempts=1"])
            .env("TEST_PASSWORD", CANARY)
            .output()
            .unwrap();
        assert_ne!(output.status.code(), Some(0));
        let text = format!("{}{}", stdout(&output), stderr(&output));
        assert!(!text.contains(CANARY), "{verb:?}:\n{text}");
    }
    // Broken ones as well: whatever is said about them, the text is not repeated.
    for url in [
        format!("postgres://app:{CANARY}@127.0.0.1:port/shop"),
        format!("postgres://app:{CANARY}@127.0.0.1:1/shop?sslmode=no"),
        format!("postgres://app:{CANARY}@[::1/shop"),
        format!("postgres://app:%{CANARY}@127.0.0.1:1/shop"),
        format!("postgres://app@127.0.0.1:1/shop?no_such_parameter={CANARY}"),
    ] {
        let output = crabka().args(["tail", &url, "--log-level", "trace"]).output().unwrap();
        assert_ne!(output.status.code(), Some(0));
        let text = format!("{}{}", stdout(&output), stderr(&output));
        assert!(!text.contains(CANARY), "{text}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    use std::process::Stdio;
    let mut child = crabka().args(["config", "reference"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
