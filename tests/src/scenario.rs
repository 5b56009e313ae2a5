//! A sequence of statements and what each becomes: read live, and once more afterwards, as text and as binary.
//!
//! What comes is written as text, a line for each transaction and `; ` between its records:
//!
//! ```text
//! c t [id=1] > id=1 v='a'          create; the key in brackets, the row after
//! u t [id=1] id=1 v='a' > id=1 v='b'   update with an old row; without one nothing stands before the >
//! d t [id=1] id=1 v=null           delete; the row before
//! x t [id=1]                       tombstone
//! t t                              truncate
//! ```
//!
//! Columns stand in the order of their names. The schema `public` is left out of a table's name.

use std::ops::RangeInclusive;

use crabka_connect_postgres::{BinaryMode, PostgresSourceConfig, SlotMode};
use crabka_testkit::{PgServer, pg_available_majors};
use serde_json::Value;
use tokio_postgres::Client;

use crate::{Database, Reader, Seen};

/// The prefix of the logical message behind each statement.
const MARK: &str = "crabka-step";

/// Statements with what they become.
#[derive(Debug, Clone, Default)]
pub struct Scenario {
    setup: String,
    publication: String,
    steps: Vec<Step>,
    /// A schema's name that may stand for another one.
    alias: Option<(String, String)>,
}

#[derive(Debug, Clone)]
struct Step {
    session: usize,
    sql: String,
    /// SQLSTATE with which the server refuses the statement.
    refused: Option<&'static str>,
    expected: String,
}

/// When a reader reads, and in which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Live,
    Later,
    LaterInBinary,
}

impl Scenario {
    /// `setup` is run before; `publication` is what follows FOR in CREATE PUBLICATION, or empty.
    pub fn new(setup: &str, publication: &str) -> Self {
        Self { setup: setup.to_owned(), publication: publication.to_owned(), steps: Vec::new(), alias: None }
    }

    /// Statements, in one implicit transaction if there are several, and what they become.
    #[must_use]
    pub fn does(self, sql: &str, expected: &str) -> Self {
        self.on(0, sql, expected)
    }

    /// Statements that become nothing.
    #[must_use]
    pub fn silent(self, sql: &str) -> Self {
        self.on(0, sql, "")
    }

    /// Statements of another session.
    #[must_use]
    pub fn on(mut self, session: usize, sql: &str, expected: &str) -> Self {
        self.steps.push(Step { session, sql: sql.to_owned(), refused: None, expected: lines(expected) });
        self
    }

    /// A statement that the server refuses.
    #[must_use]
    pub fn refused(mut self, sqlstate: &'static str, sql: &str) -> Self {
        self = self.silent(sql);
        if let Some(step) = self.steps.last_mut() {
            step.refused = Some(sqlstate);
        }
        self
    }

    /// Tables may come under `schema` as well as under the one expected.
    #[must_use]
    pub fn or_under(mut self, schema: &str, expected: &str) -> Self {
        self.alias = Some((format!(" {schema}."), format!(" {expected}.")));
        self
    }

    fn named(&self, text: &str) -> String {
        match &self.alias {
            Some((alias, name)) => text.replace(alias, name),
            None => text.to_owned(),
        }
    }

    async fn run(&self, server: &PgServer) {
        let database = Database::on(server, &self.setup).await;
        let what = format!("PostgreSQL {}", server.major());
        // Slots are named before the publication may be: everything is made by the test, in the order that matters.
        let kind = if self.publication.is_empty() { "" } else { " FOR " };
        database.run(&format!("CREATE PUBLICATION \"{}\"{kind}{}", database.name, self.publication)).await;
        for mode in [Mode::Live, Mode::Later, Mode::LaterInBinary] {
            let slot = slot(&database, mode);
            database.run(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")).await;
        }
        let mut live = Reader::new(config(&database, Mode::Live));
        let mut others: Vec<Client> = Vec::new();
        for step in &self.steps {
            while others.len() < step.session {
                others.push(server.connect(&database.name).await.expect("a session"));
            }
            let session = step.session.checked_sub(1).map_or(&database.sql, |index| &others[index]);
            let outcome = session.batch_execute(&step.sql).await;
            let refused = outcome.as_ref().err().and_then(|error| error.code()).map(|code| code.code());
            assert_eq!(refused, step.refused, "{what}: {}: {outcome:?}", step.sql);
            database.run(&format!("SELECT pg_logical_emit_message(true, '{MARK}', '')")).await;
            self.compare(&mut live, step, &format!("{what}, live")).await;
        }
        live.close().await;
        for mode in [Mode::Later, Mode::LaterInBinary] {
            let mut reader = Reader::new(config(&database, mode));
            for step in &self.steps {
                self.compare(&mut reader, step, &format!("{what}, {mode:?}")).await;
            }
            reader.close().await;
        }
        database.drop_slots().await;
    }

    async fn compare(&self, reader: &mut Reader, step: &Step, what: &str) {
        assert_eq!(self.named(&told(reader).await), self.named(&step.expected), "{what}: {}", step.sql);
    }
}

/// Runs the scenario of each version of this run that is in `majors`.
pub async fn run_scenario(majors: RangeInclusive<u32>, scenario: impl Fn(u32) -> Scenario) {
    for major in pg_available_majors().into_iter().filter(|major| majors.contains(major)) {
        let server = PgServer::shared(major).await.expect("a server");
        scenario(major).run(server).await;
    }
}

fn slot(database: &Database, mode: Mode) -> String {
    format!("{}_{}", database.name, format!("{mode:?}").to_lowercase())
}

fn config(database: &Database, mode: Mode) -> PostgresSourceConfig {
    let mut config = database.config(&[]);
    config.slot = slot(database, mode);
    config.slot_mode = SlotMode::Existing;
    config.truncate_events = true;
    config.binary = if mode == Mode::LaterInBinary { BinaryMode::Binary } else { BinaryMode::Text };
    config
}

/// Without the blanks that a source file adds.
fn lines(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Everything up to the next mark.
async fn told(reader: &mut Reader) -> String {
    let mut told = String::new();
    let mut transaction = Value::Null;
    loop {
        let record = reader.take(1).await.remove(0);
        if record.op() == "m" && record.value["message"]["prefix"] == MARK {
            return told;
        }
        // A tombstone has no value, and is of the transaction of its delete.
        let of = record.value["source"]["txId"].clone();
        if !told.is_empty() {
            told.push_str(if of.is_null() || of == transaction { "; " } else { "\n" });
        }
        if !of.is_null() {
            transaction = of;
        }
        told.push_str(&short(&record));
    }
}

fn short(record: &Seen) -> String {
    let table = record.topic.strip_prefix("t.").unwrap_or(&record.topic);
    let mut text = format!("{} {}", record.op(), table.strip_prefix("public.").unwrap_or(table));
    if record.key.is_object() {
        text.push_str(&format!(" [{}]", members(&record.key)));
    }
    if record.value["before"].is_object() {
        text.push_str(&format!(" {}", members(&record.value["before"])));
    }
    if record.value["after"].is_object() {
        text.push_str(&format!(" > {}", members(&record.value["after"])));
    }
    text
}

fn members(row: &Value) -> String {
    let shown = |value: &Value| match value {
        Value::String(text) => match text.chars().next() {
            // Long values of one character, as tests make them.
            Some(first) if text.len() > 100 && text.chars().all(|c| c == first) => {
                format!("{first}*{}", text.len())
            }
            _ if text == "__debezium_unavailable_value" => "unavailable".to_owned(),
            _ => format!("'{text}'"),
        },
        other => other.to_string(),
    };
    let members = row.as_object().into_iter().flatten();
    members.map(|(name, value)| format!("{name}={}", shown(value))).collect::<Vec<_>>().join(" ")
}
