//! The screen: the JSON of a status in words.

use crabka_connect::ConnectError;
use serde_json::Value;

use crate::output::{bytes_in_words, duration_in_words};

/// Lines of a label and a text.
struct Screen(String);

impl Screen {
    fn line(&mut self, label: &str, text: impl AsRef<str>) {
        self.0.push_str(format!("  {label:<12}{}", text.as_ref()).trim_end());
        self.0.push('\n');
    }
}

/// What the worker says it does, or why nothing moves.
pub(super) fn reason(status: &Value) -> String {
    match (status["reason"]["code"].as_str(), status["reason"]["text"].as_str()) {
        (Some(code), Some(text)) => format!("{code}: {text}"),
        (Some(code), None) => code.to_owned(),
        _ => text(&status["phase"]),
    }
}

/// The screen of a running worker.
pub(super) fn of_worker(status: &Value) -> String {
    let ready = if status["ready"] == true { "ready" } else { "not ready" };
    let mut screen = Screen(format!("{}: {}, {ready}\n", text(&status["connector"]), text(&status["phase"])));
    screen.line("why", reason(status));
    let positions = &status["positions"];
    let named: Vec<String> = ["received", "delivered", "checkpointed", "acknowledged", "server"]
        .iter()
        .map(|name| format!("{name} {}", text(&positions[name])))
        .collect();
    screen.line("positions", named.join("  "));
    screen.line("behind", format!("{}, {}", size(&status["bytes_behind"]), oldest(status)));
    let records: Vec<String> = ["received", "delivered", "checkpointed", "acknowledged"]
        .iter()
        .map(|name| format!("{name} {}", text(&status[format!("records_{name}")])))
        .collect();
    screen.line("records", records.join("  "));
    of_slot(&mut screen, &status["slot"]);
    of_attempts(&mut screen, status);
    of_error(&mut screen, status);
    screen.0
}

/// The screen without a worker: why there is none, and what server and store tell.
pub(super) fn of_server(connector: &str, why: &ConnectError, server: &Value) -> String {
    let mut screen = Screen(format!("{connector}: {}\n", why.message()));
    screen.line("", "what the server and the checkpoint store tell:");
    if let Some(error) = server["error"].as_str() {
        screen.line("server", format!("cannot be looked at: {error}"));
    }
    let stored = &server["stored_position"];
    screen.line(
        "stored",
        match (stored["lsn"].as_str(), stored["error"].as_str()) {
            (Some(lsn), _) => lsn.to_owned(),
            (None, Some(error)) => format!("cannot be read: {error}"),
            (None, None) => "nothing".to_owned(),
        },
    );
    let slot = &server["slot"];
    if slot["exists"] == true {
        screen.line("read by", slot["holder"].as_str().unwrap_or("nobody"));
        let since = slot["inactive_since"].as_str().map(|since| format!(", unused since {since}"));
        screen.line("behind", format!("{}{}", size(&slot["bytes_behind"]), since.unwrap_or_default()));
        screen.line("server", text(&slot["server_lsn"]));
    }
    of_slot(&mut screen, slot);
    screen.0
}

fn of_slot(screen: &mut Screen, slot: &Value) {
    if slot.is_null() {
        return screen.line("slot", "not looked at yet");
    }
    let name = text(&slot["name"]);
    if let Some(error) = slot["error"].as_str() {
        screen.line("slot", format!("{name} cannot be looked at: {error}"));
    }
    match slot["exists"].as_bool() {
        Some(true) => {}
        Some(false) => return screen.line("slot", format!("{name} does not exist")),
        None => return,
    }
    screen.line(
        "slot",
        format!(
            "{name}, wal_status {}, restart {}, confirmed {}",
            text(&slot["wal_status"]),
            text(&slot["restart_lsn"]),
            text(&slot["confirmed_flush_lsn"])
        ),
    );
    let lost = ["lost_because", "invalidation_reason"].iter().find_map(|name| slot[name].as_str());
    if let Some(reason) = lost {
        screen.line("lost", format!("{reason}: changes since the stored position cannot be read any more"));
    }
    screen.line("WAL kept", retained(slot));
    let held = &slot["held_by"];
    if held.is_object() {
        screen.line("held by", format!("{}; to end it: {}", holder(held), text(&held["ended_by"])));
    } else if let Some(hidden) = slot["held_by_hidden"].as_str() {
        screen.line("held by", format!("not known: {hidden}"));
    }
}

/// What the slot keeps, and how long that may go on.
fn retained(slot: &Value) -> String {
    let mut words = size(&slot["wal_retained_bytes"]);
    if let Some(rate) = number(&slot["retained_bytes_per_second"]) {
        words.push_str(&format!(", {}{}/s", if rate > 0 { "+" } else { "" }, bytes_in_words(rate)));
    }
    match number(&slot["max_slot_wal_keep_size_bytes"]) {
        None => words.push_str("; no max_slot_wal_keep_size: the disk is the limit"),
        Some(limit) => {
            words.push_str(&format!("; max_slot_wal_keep_size {}", bytes_in_words(limit)));
            match (number(&slot["lost_in_ms"]), number(&slot["safe_wal_size_bytes"])) {
                (Some(ms), _) => {
                    words.push_str(&format!(", reached in {} at this rate", duration_in_words(ms)))
                }
                (None, Some(safe)) => words.push_str(&format!(", {} to go", bytes_in_words(safe))),
                (None, None) => {}
            }
        }
    }
    words
}

fn holder(held: &Value) -> String {
    let mut words = match (held["gid"].as_str(), number(&held["pid"])) {
        (Some(gid), _) => format!("the prepared transaction {gid:?}"),
        (None, Some(pid)) => format!("the transaction of pid {pid}"),
        (None, None) => "a transaction".to_owned(),
    };
    for name in ["user", "database", "application"] {
        if let Some(value) = held[name].as_str().filter(|value| !value.is_empty()) {
            words.push_str(&format!(", {name} {value}"));
        }
    }
    match number(&held["age_ms"]) {
        Some(age) => words.push_str(&format!(", open for {}", duration_in_words(age))),
        None => words.push_str(", age unknown"),
    }
    words
}

fn oldest(status: &Value) -> String {
    match (number(&status["oldest_unacknowledged_at_ms"]), number(&status["lag_ms"])) {
        (Some(_), Some(lag)) => format!("oldest unacknowledged change {} ago", duration_in_words(lag)),
        (Some(_), None) => "a change is not acknowledged yet".to_owned(),
        (None, _) => "nothing read is unacknowledged".to_owned(),
    }
}

fn of_attempts(screen: &mut Screen, status: &Value) {
    let failed = number(&status["attempts"]).unwrap_or(0);
    if failed == 0 {
        return;
    }
    let next = match (number(&status["next_attempt_at_ms"]), number(&status["at_ms"])) {
        (Some(next), Some(now)) => format!(", next in {}", duration_in_words((next - now).max(0))),
        _ => String::new(),
    };
    screen.line("attempts", format!("{failed} failed in a row{next}"));
}

fn of_error(screen: &mut Screen, status: &Value) {
    let error = &status["last_error"];
    if !error.is_object() {
        return screen.line("last error", "none");
    }
    let part = error["part"].as_str().map(|part| format!(" ({part})")).unwrap_or_default();
    let ago = match (number(&status["at_ms"]), number(&error["at_ms"])) {
        (Some(now), Some(at)) => format!(", {} ago", duration_in_words((now - at).max(0))),
        _ => String::new(),
    };
    screen.line("last error", format!("{}{part}{ago}: {}", text(&error["class"]), text(&error["message"])));
    if let Some(fix) = error["fix"].as_str() {
        screen.line("to fix", fix);
    }
}

/// A whole number; rates have fractions.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_f64().map(|number| number as i64))
}

fn size(value: &Value) -> String {
    number(value).map_or_else(|| "unknown".to_owned(), bytes_in_words)
}

/// A member as it is; a dash for one that is not known.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
