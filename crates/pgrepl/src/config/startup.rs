//! What the session is told when it starts.
//!
//! The text of a value depends on settings that a role or a database may carry (`ALTER ROLE ... SET datestyle`).
//! Settings in the startup packet's `options` beat those, so the text form is the same whoever connects.
//!
//! <https://www.postgresql.org/docs/18/libpq-connect.html#LIBPQ-CONNECT-OPTIONS>

use std::fmt::Write;

use super::Config;

/// Settings that decide how values are written, and those that could end a long session.
pub const PINNED_SETTINGS: [(&str, &str); 13] = [
    ("datestyle", "ISO"),
    ("intervalstyle", "postgres"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("timezone", "UTC"),
    ("lc_monetary", "C"),
    ("search_path", "pg_catalog"),
    ("quote_all_identifiers", "off"),
    // PostgreSQL 18 tells of a missing publication by a warning only.
    ("client_min_messages", "warning"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
];

impl Config {
    /// The `options` startup parameter: the user's own, then the pinned settings, which win.
    ///
    /// For a connection of another library that must see values in the same text form.
    pub fn session_options(&self) -> String {
        let mut options = self.options.clone().unwrap_or_default();
        let mut set = |name: &str, value: &str| {
            let separator = if options.is_empty() { "" } else { " " };
            // Infallible: a String grows.
            let _ = write!(options, "{separator}-c {name}={}", escape(value));
        };
        for (name, value) in PINNED_SETTINGS {
            set(name, value);
        }
        if let Some(timeout) = self.wal_sender_timeout {
            set("wal_sender_timeout", &timeout.as_millis().to_string());
        }
        options
    }

    /// Names and values of the startup packet of a logical replication connection.
    pub(crate) fn startup_parameters(&self) -> Vec<(&'static str, String)> {
        vec![
            ("user", self.user.clone()),
            ("database", self.dbname.clone()),
            ("replication", "database".into()),
            ("client_encoding", "UTF8".into()),
            ("application_name", self.application_name.clone()),
            ("options", self.session_options()),
        ]
    }
}

/// The server splits `options` at blanks; a backslash keeps the next character.
fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        if c.is_ascii_whitespace() || c == '\\' {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
