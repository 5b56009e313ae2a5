//! What can go wrong while a test's servers are brought up or down.

use std::path::PathBuf;
use std::time::Duration;

/// A server, or something it is made from, could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing on this machine can run the server that was asked for; `help` is what to do about it.
    #[error("no {what} on this machine; {help}")]
    Missing {
        /// The server, with its major version where one was asked for.
        what: String,
        /// The command or setting that brings it.
        help: String,
    },
    /// A quick run (`CRABKA_TEST_SERVERS=none`) reached a test that starts a server.
    #[error(
        "this run leaves servers out (CRABKA_TEST_SERVERS=none): begin the test with crabka_testkit::needs!({what})"
    )]
    LeftOut {
        /// What the test asked for, as `needs!` takes it.
        what: &'static str,
    },
    /// The server ended, or did not become ready in time. `log` is the end of what it wrote.
    #[error("{what} did not start: {reason}\n--- end of its log ---\n{log}")]
    NotReady {
        /// The server.
        what: String,
        /// What was waited for, or how it ended.
        reason: String,
        /// Last lines of the server's log.
        log: String,
    },
    /// The server was still running when the time to stop was over. It is left running.
    #[error("{what} still runs {} ms after it was told to stop\n--- end of its log ---\n{log}", waited.as_millis())]
    StillRunning {
        /// The server.
        what: String,
        /// How long it was given.
        waited: Duration,
        /// Last lines of the server's log.
        log: String,
    },
    /// The call does not fit the server's state, such as a second start.
    #[error("{0}")]
    State(String),
    /// A program that prepares a server failed.
    #[error("{program} failed: {reason}")]
    Program {
        /// Name of the program.
        program: String,
        /// Exit status and what it printed.
        reason: String,
    },
    /// A file or directory could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// The operating system refused something that names no file.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// PostgreSQL answered a statement of the testkit itself with an error.
    #[error("postgresql: {}", describe(.0))]
    Sql(#[from] tokio_postgres::Error),
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// tokio-postgres prints "db error" alone; the server's own message is what a reader needs.
fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                text.push_str(": ");
                text.push_str(&cause.to_string());
                source = cause.source();
            }
            text
        }
    }
}
