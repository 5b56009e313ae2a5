//! Which [`ConnectError`] an error of the server or of a connection becomes: the one table that decides who acts.
//!
//! Codes: <https://www.postgresql.org/docs/18/errcodes-appendix.html>.
//!
//! Two codes mean several things and are not decided by this table alone. 57P01 is a restart or the end of a reader
//! whose slot was invalidated, and 55000 is a lost slot, a foreign slot or a wrong setting: read the slot's row
//! ([`crate::catalog::SlotRow::fault`]) before acting on either.

use std::error::Error as StdError;
use std::io;

use crabka_connect::{ConnectError, ErrorClass};

/// The class of a SQLSTATE, as far as the code alone tells.
///
/// A code that is in no line of the table is a bug: it stops the stream rather than being retried for ever.
pub fn class_of(sqlstate: &str) -> ErrorClass {
    use ErrorClass::{Bug, Configuration, Data, LostPosition, Transient};
    match sqlstate {
        // Of the classes below, those codes that differ from the rest of their class.
        "08P01" => Bug,
        "22023" => Configuration,
        "25006" | "25P01" => Configuration,
        "25P03" | "25P04" => Transient,
        "42601" | "42703" | "42883" => Bug,
        "53400" => Configuration,
        "55006" | "55P03" => Transient,
        "57P04" => Configuration,
        "58P01" => LostPosition,
        "XX001" | "XX002" => Configuration,
        _ => match sqlstate.get(..2).unwrap_or_default() {
            // Connection; rollback by serialization or deadlock; out of memory, disk or connections; shutdown,
            // start-up and cancel; I/O of the server.
            "08" | "40" | "53" | "57" | "58" => Transient,
            // Values: not representable, of the wrong form, over a limit of the server, against a constraint.
            "21" | "22" | "23" | "54" => Data,
            // Not supported by this server; credentials; database, schema, object, right; state of an object;
            // configuration file; foreign data; raised by a function (event triggers).
            "0A" | "0L" | "0P" | "28" | "2B" | "3D" | "3F" | "42" | "44" | "55" | "F0" | "HV" | "P0" => {
                Configuration
            }
            _ => Bug,
        },
    }
}

/// An error that the server reported, with what we were doing when it came.
///
/// The message of a class-22 or class-23 error may quote a value, so it is left out, except where the code speaks
/// of parameters.
pub fn server_error(doing: &str, sqlstate: &str, message: &str, hint: Option<&str>) -> ConnectError {
    let class = match class_of(sqlstate) {
        // Poolers report a start-up parameter that they do not pass on with the code of a protocol violation.
        ErrorClass::Bug if message.contains("startup parameter") => ErrorClass::Configuration,
        // The text form of a value of more than half a gigabyte cannot be built by the server.
        ErrorClass::Bug if message.contains("invalid memory alloc request size") => ErrorClass::Data,
        class => class,
    };
    let quotes_values = matches!(sqlstate.get(..2), Some("22" | "23")) && sqlstate != "22023";
    let text = if quotes_values {
        format!("{doing}: {}", value_condition(sqlstate))
    } else {
        format!("{doing}: {message}")
    };
    let error = of_class(class, text).with_sqlstate(sqlstate);
    match fix(sqlstate, message).or(if quotes_values { None } else { hint }) {
        Some(fix) => error.with_fix(fix),
        None => error,
    }
}

/// An error of an ordinary SQL connection, with what we were doing when it came.
pub fn postgres_error(doing: &str, error: tokio_postgres::Error) -> ConnectError {
    if let Some(db) = error.as_db_error() {
        let (sqlstate, message) = (db.code().code().to_owned(), db.message().to_owned());
        let classified = server_error(doing, &sqlstate, &message, db.hint());
        let quotes_values = classified.class() == ErrorClass::Data;
        return if quotes_values { classified } else { classified.with_source(error) };
    }
    let text = match error.source() {
        Some(source) => format!("{doing}: {error}: {source}"),
        None => format!("{doing}: {error}"),
    };
    of_class(client_class(&error), text).with_source(error)
}

/// An error of a replication connection, with what we were doing when it came.
pub fn replication_error(doing: &str, error: crabka_pgrepl::Error) -> ConnectError {
    if let crabka_pgrepl::Error::Server(message) = &error {
        let classified = server_error(doing, message.sqlstate(), message.message(), message.hint());
        let quotes_values = classified.class() == ErrorClass::Data;
        return if quotes_values { classified } else { classified.with_source(error) };
    }
    let class = replication_class(&error);
    let classified = of_class(class, format!("{doing}: {error}"));
    let sqlstate = error.sqlstate().map(str::to_owned);
    let fix = error.server().and_then(|message| fix(message.sqlstate(), message.message()));
    let classified = match sqlstate {
        Some(sqlstate) => classified.with_sqlstate(sqlstate),
        None => classified,
    };
    let classified = match fix {
        Some(fix) => classified.with_fix(fix),
        None => classified,
    };
    classified.with_source(error)
}

fn replication_class(error: &crabka_pgrepl::Error) -> ErrorClass {
    use crabka_pgrepl::Error;
    match error {
        Error::Server(message) => class_of(message.sqlstate()),
        Error::Io { source, .. } => io_class(source.kind()),
        // A server that is not of the wanted kind may be promoted.
        Error::TimedOut { .. }
        | Error::PeerSilent { .. }
        | Error::Closed { .. }
        | Error::WrongServer { .. } => ErrorClass::Transient,
        Error::Config { .. } | Error::Tls { .. } | Error::Auth { .. } | Error::FrameTooLarge { .. } => {
            ErrorClass::Configuration
        }
        // One host that may come back is enough to try again.
        Error::Hosts { failures } => {
            let mut classes = failures.iter().map(|(_, error)| replication_class(error));
            let first = classes.next().unwrap_or(ErrorClass::Configuration);
            if classes.any(|class| class == ErrorClass::Transient) { ErrorClass::Transient } else { first }
        }
        // What was received or asked for broke a rule that is ours to keep; so does a kind added later, until it is
        // given a line here.
        Error::Protocol { .. } | Error::AcknowledgeAhead { .. } | Error::Ended | _ => ErrorClass::Bug,
    }
}

/// An input or output error of a connection, with what we were doing when it came.
pub fn io_error(doing: &str, error: io::Error) -> ConnectError {
    of_class(io_class(error.kind()), format!("{doing}: {error}")).with_source(error)
}

/// The class of an error that did not come from the server. The kind of a `tokio_postgres::Error` is private, so
/// what its text begins with has to tell the few kinds apart that have no cause of a known type.
fn client_class(error: &tokio_postgres::Error) -> ErrorClass {
    if error.is_closed() {
        return ErrorClass::Transient;
    }
    let text = error.to_string();
    let operator = [
        "authentication error",
        "invalid configuration",
        "invalid connection string",
        "error performing TLS",
    ];
    if operator.iter().any(|start| text.starts_with(start)) {
        return ErrorClass::Configuration;
    }
    if text.starts_with("timeout") {
        return ErrorClass::Transient;
    }
    match error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(cause) => io_class(cause.kind()),
        None => ErrorClass::Bug,
    }
}

fn io_class(kind: io::ErrorKind) -> ErrorClass {
    match kind {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => ErrorClass::Bug,
        io::ErrorKind::PermissionDenied => ErrorClass::Configuration,
        _ => ErrorClass::Transient,
    }
}

fn of_class(class: ErrorClass, message: String) -> ConnectError {
    match class {
        ErrorClass::Transient => ConnectError::transient(message),
        ErrorClass::Configuration => ConnectError::configuration(message),
        ErrorClass::Data => ConnectError::data(message),
        ErrorClass::LostPosition => ConnectError::offset(message),
        ErrorClass::Fenced => ConnectError::fenced(message),
        ErrorClass::Bug => ConnectError::bug(message),
    }
}

fn value_condition(sqlstate: &str) -> &'static str {
    match sqlstate {
        "22021" => "a value holds bytes that are not characters of its encoding",
        "22P05" => "a value holds a character that UTF-8 or the database's encoding does not have",
        "22003" => "a value is out of the range of its type",
        code if code.starts_with("23") => "a constraint was violated",
        _ => "a value has no valid form",
    }
}

/// What fixes an error, where the code tells more than the server's own hint.
fn fix(sqlstate: &str, message: &str) -> Option<&'static str> {
    Some(match sqlstate {
        "08P01" if message.contains("startup parameter") => {
            "connect to the server itself, or let the pooler pass start-up parameters (pgbouncer: ignore_startup_parameters)"
        }
        "28P01" => "check user and password (connection URL, PGPASSWORD, .pgpass)",
        "28000" if message.contains("role") => {
            "CREATE ROLE the user of the connection URL, WITH LOGIN REPLICATION"
        }
        "28000" => "allow user, database and address in pg_hba.conf, then SELECT pg_reload_conf()",
        "3D000" => "check the database of the connection URL",
        "25006" => "connect to the primary: this server or session is read-only",
        "42501" => "run `crabka check`: it lists the missing rights with their GRANT",
        "53300" => "raise max_connections or the role's CONNECTION LIMIT if this lasts",
        "53400" => "raise max_replication_slots or max_wal_senders, or drop a slot that nobody uses",
        "XX001" | "XX002" => "the server reports corrupted data: check the server before streaming on",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn del_40_each_code_ends_in_its_class() {
        use ErrorClass::{Bug, Configuration, Data, LostPosition, Transient};
        let table = [
            ("57P01", Transient),
            ("57P02", Transient),
            ("57P03", Transient),
            ("57P05", Transient),
            ("57014", Transient),
            ("53300", Transient),
            ("53100", Transient),
            ("55006", Transient),
            ("55P03", Transient),
            ("40001", Transient),
            ("40P01", Transient),
            ("08006", Transient),
            ("58030", Transient),
            ("25P03", Transient),
            ("28P01", Configuration),
            ("28000", Configuration),
            ("42501", Configuration),
            ("42704", Configuration),
            ("42P01", Configuration),
            ("42710", Configuration),
            ("42602", Configuration),
            ("55000", Configuration),
            ("0A000", Configuration),
            ("22023", Configuration),
            ("25006", Configuration),
            ("3D000", Configuration),
            ("53400", Configuration),
            ("57P04", Configuration),
            ("P0001", Configuration),
            ("XX001", Configuration),
            ("22021", Data),
            ("22P05", Data),
            ("23505", Data),
            ("54000", Data),
            ("58P01", LostPosition),
            ("08P01", Bug),
            ("42601", Bug),
            ("42703", Bug),
            ("25001", Bug),
            ("XX000", Bug),
            ("ZZ999", Bug),
            ("", Bug),
            ("é", Bug),
        ];
        for (code, class) in table {
            assert_eq!(class_of(code), class, "SQLSTATE {code}");
            let error = server_error("reading", code, "text", None);
            assert_eq!((error.class(), error.sqlstate()), (class, Some(code)));
        }
    }

    #[test]
    fn a_message_that_may_quote_a_value_is_left_out() {
        for code in ["22021", "22P02", "23505"] {
            let error = server_error("reading", code, "bad value: secret-4711", Some("try secret-4711"));
            assert!(!error.to_string().contains("4711"), "{error}");
            assert_eq!(error.class(), ErrorClass::Data);
        }
        let error = server_error("starting", "22023", "publication_names parameter missing", None);
        assert_eq!(error.message(), "starting: publication_names parameter missing");
    }

    #[test]
    fn the_servers_hint_is_the_fix_where_we_have_no_better_one() {
        let error = server_error("creating", "0A000", "no", Some("do that"));
        assert_eq!(error.fix(), Some("do that"));
        let error = server_error("connecting", "28P01", "no", Some("do that"));
        assert!(error.fix().is_some_and(|fix| fix.contains("PGPASSWORD")));
    }

    #[test]
    fn two_codes_are_told_apart_by_their_message() {
        let pooler = server_error("connecting", "08P01", "unsupported startup parameter: options", None);
        assert_eq!(pooler.class(), ErrorClass::Configuration);
        let pill = server_error("streaming", "XX000", "invalid memory alloc request size 1040000004", None);
        assert_eq!(pill.class(), ErrorClass::Data);
    }

    #[test]
    fn input_and_output_errors_are_transient_unless_the_bytes_are_wrong() {
        for (kind, class) in [
            (io::ErrorKind::ConnectionRefused, ErrorClass::Transient),
            (io::ErrorKind::UnexpectedEof, ErrorClass::Transient),
            (io::ErrorKind::NotFound, ErrorClass::Transient),
            (io::ErrorKind::PermissionDenied, ErrorClass::Configuration),
            (io::ErrorKind::InvalidData, ErrorClass::Bug),
        ] {
            assert_eq!(io_error("reading", io::Error::from(kind)).class(), class, "{kind:?}");
        }
    }
}
