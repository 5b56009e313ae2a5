//! What is said once is enough.

use crabka_testkit::needs;

use crate::command::database::Database;
use crate::command::{Workplace, stderr, stdout};

#[tokio::test(flavor = "multi_thread")]
async fn init_tells_a_warning_once() {
    needs!(postgres);
    let database = Database::new().await;
    let place = database.config();
    database.run("ALTER TABLE orders DROP CONSTRAINT orders_pkey").await;
    let output = place.output("init", &["--set", "source.allow_refused_updates=true"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = format!("{}{}", stdout(&output), stderr(&output));
    assert_eq!(text.matches("has no replica identity").count(), 1, "{text}");
    database.drop_slot().await;
}

#[test]
fn a_broker_that_is_away_is_told_at_once_and_not_at_every_attempt() {
    let place = Workplace::new(
        "name = \"orders\"\n[source]\nurl = \"postgres://app@127.0.0.1:1/shop\"\n[sink]\ntype = \"kafka\"\n\
         bootstrap_servers = \"127.0.0.1:1\"\n[checkpoint]\nstore = \"memory\"\n\
         [runtime]\nretry_first_delay_ms = 10\nretry_max_delay_ms = 10\nretry_max_attempts = 4\n",
    );
    let output = place.output("run", &["--log-format", "json", "--set", "sink.request_timeout_ms=2000"]);
    assert_eq!(output.status.code(), Some(10), "{}", stderr(&output));
    let log = stderr(&output);
    let told = log.lines().filter(|line| line.contains("\"target\":\"librdkafka\"")).count();
    assert!((1..=2).contains(&told), "{told} lines:\n{log}");
    assert!(log.contains("\"attempt\":3"), "{log}");
}

#[test]
fn the_causes_of_an_error_do_not_repeat_it() {
    let place = Workplace::new(
        "name = \"orders\"\n[source]\nurl = \"postgres://app@127.0.0.1:1/shop\"\n[sink]\ntype = \"null\"\n\
         [checkpoint]\nstore = \"memory\"\n[runtime]\nretry_max_attempts = 2\nretry_first_delay_ms = 10\n",
    );
    let output = place.output("run", &[]);
    let log = stderr(&output);
    let line = log.lines().find(|line| line.contains("attempt=1")).unwrap_or_else(|| panic!("{log}"));
    assert_eq!(line.matches("Connection refused").count(), 1, "{line}");
}
