//! What can go wrong on a connection, and who has to act on it.
//!
//! A server error keeps its SQLSTATE: what a code means for a slot or a publication is decided by the caller, who
//! knows what it asked for. Passwords and row values never become part of a message here.
//!
//! <https://www.postgresql.org/docs/18/protocol-error-fields.html>

use std::fmt;
use std::io;
use std::time::Duration;

use crate::Lsn;

/// An error of a replication connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The network, the socket or the name service failed; trying again may help.
    #[error("{context}: {source}")]
    Io {
        /// What was being done, with the host.
        context: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// Something did not happen in its time.
    #[error("{context}: no answer within {limit:?}")]
    TimedOut {
        /// What was being done, with the host.
        context: String,
        /// The limit that passed.
        limit: Duration,
    },
    /// The server sent nothing for the whole silence limit although a reply was asked for.
    #[error("the server went silent although a reply was requested, seconds without a byte: {}", silent_for.as_secs())]
    PeerSilent {
        /// Time since the last byte.
        silent_for: Duration,
    },
    /// The server closed the connection without saying why.
    #[error("the server closed the connection while {during}")]
    Closed {
        /// What was being done.
        during: &'static str,
    },
    /// The server works, but is not of the kind that `target_session_attrs` asks for; a promotion may change that.
    #[error("the server is not what target_session_attrs asks for: {wanted}")]
    WrongServer {
        /// The kind asked for.
        wanted: &'static str,
    },
    /// The connection settings are wrong, or ask for what the server does not have.
    #[error("{message}")]
    Config {
        /// What is wrong and what to change.
        message: String,
    },
    /// The TLS session could not be set up.
    #[error("{message}")]
    Tls {
        /// What failed, and for certificates what to change.
        message: String,
    },
    /// The server and this client do not agree on who the user is, or on how to prove it.
    #[error("{message}")]
    Auth {
        /// What failed and what to change.
        message: String,
    },
    /// The bytes received are not the protocol.
    #[error("protocol violation by the server: {message}")]
    Protocol {
        /// What was expected and what came.
        message: String,
    },
    /// A message is longer than the limit; nothing of it was buffered.
    #[error(
        "message {tag:?} of {length} bytes is over the frame limit of {limit} bytes; raise the frame limit if the \
         server really holds rows that large"
    )]
    FrameTooLarge {
        /// The message's type byte.
        tag: char,
        /// Its announced length in bytes, header included.
        length: u64,
        /// The limit in bytes.
        limit: usize,
    },
    /// The server reported an error.
    #[error("{0}")]
    Server(Box<ServerMessage>),
    /// A position was acknowledged that this server has not sent.
    #[error("refused to acknowledge {position}: the server has sent no more than {received}")]
    AcknowledgeAhead {
        /// The position given.
        position: Lsn,
        /// The highest position received, or the start position.
        received: Lsn,
    },
    /// The stream has ended; nothing can be sent on it.
    #[error("the replication stream has ended")]
    Ended,
    /// None of several hosts could be used.
    #[error("no host could be used: {}", join_failures(failures))]
    Hosts {
        /// Each address tried with its error, in the order of the attempts.
        failures: Vec<(String, Error)>,
    },
}

fn join_failures(failures: &[(String, Error)]) -> String {
    failures.iter().map(|(host, error)| format!("{host}: {error}")).collect::<Vec<_>>().join("; ")
}

/// Who has to act on an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// Nobody: connect again, with back-off.
    Transient,
    /// The operator: settings, certificates, or what the server offers.
    Configuration,
    /// The operator: user, password, `pg_hba.conf`.
    Authentication,
    /// A broken peer, or a bug here: the connection is unusable.
    Protocol,
    /// The server refused a request: look at [`Error::sqlstate`].
    Server,
    /// The calling program: a position never received, a stream already ended.
    Caller,
}

impl Error {
    pub(crate) fn io(context: impl Into<String>, source: io::Error) -> Self {
        Self::Io { context: context.into(), source }
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::Config { message: message.into() }
    }

    pub(crate) fn tls(message: impl Into<String>) -> Self {
        Self::Tls { message: message.into() }
    }

    pub(crate) fn auth(message: impl Into<String>) -> Self {
        Self::Auth { message: message.into() }
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::Protocol { message: message.into() }
    }

    /// Who has to act.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Io { .. }
            | Self::TimedOut { .. }
            | Self::PeerSilent { .. }
            | Self::Closed { .. }
            | Self::WrongServer { .. } => ErrorClass::Transient,
            Self::Config { .. } | Self::Tls { .. } | Self::FrameTooLarge { .. } => ErrorClass::Configuration,
            Self::Auth { .. } => ErrorClass::Authentication,
            Self::Protocol { .. } => ErrorClass::Protocol,
            Self::Server(message) => message.class(),
            Self::AcknowledgeAhead { .. } | Self::Ended => ErrorClass::Caller,
            Self::Hosts { failures } => {
                let classes = failures.iter().map(|(_, error)| error.class());
                // One host that may come back is enough to try again.
                classes
                    .clone()
                    .find(|class| *class == ErrorClass::Transient)
                    .or(classes.into_iter().next())
                    .unwrap_or(ErrorClass::Configuration)
            }
        }
    }

    /// Whether connecting again may help, without anybody acting.
    pub fn is_transient(&self) -> bool {
        self.class() == ErrorClass::Transient
    }

    /// The server's message, when the server reported the error.
    pub fn server(&self) -> Option<&ServerMessage> {
        match self {
            Self::Server(message) => Some(message),
            Self::Hosts { failures } => failures.iter().find_map(|(_, error)| error.server()),
            _ => None,
        }
    }

    /// The five characters of the SQLSTATE, when the server reported the error.
    pub fn sqlstate(&self) -> Option<&str> {
        self.server().map(ServerMessage::sqlstate)
    }
}

/// An ErrorResponse or a NoticeResponse of the server.
///
/// `Display` and `Debug` leave out the detail: the server puts row values there.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ServerMessage {
    pub(crate) severity: String,
    pub(crate) sqlstate: String,
    pub(crate) message: String,
    pub(crate) detail: Option<String>,
    pub(crate) hint: Option<String>,
}

impl ServerMessage {
    /// A message that another library received.
    pub fn new(
        severity: impl Into<String>,
        sqlstate: impl Into<String>,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> Self {
        Self {
            severity: severity.into(),
            sqlstate: sqlstate.into(),
            message: message.into(),
            detail: None,
            hint,
        }
    }

    /// `ERROR`, `FATAL`, `PANIC`, `WARNING`, `NOTICE` ...; never translated.
    pub fn severity(&self) -> &str {
        &self.severity
    }

    /// The five characters of the SQLSTATE.
    pub fn sqlstate(&self) -> &str {
        &self.sqlstate
    }

    /// The primary message, in the server's language.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The detail, which may carry row values: not for logs.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// The hint.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    fn class(&self) -> ErrorClass {
        match self.sqlstate.as_str() {
            // admin shutdown, crash shutdown, cannot connect now, too many connections, slot in use
            "57P01" | "57P02" | "57P03" | "53300" | "55006" => ErrorClass::Transient,
            state if state.starts_with("08") => ErrorClass::Transient,
            state if state.starts_with("28") => ErrorClass::Authentication,
            _ => ErrorClass::Server,
        }
    }
}

impl fmt::Display for ServerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity, self.sqlstate, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for ServerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerMessage")
            .field("severity", &self.severity)
            .field("sqlstate", &self.sqlstate)
            .field("message", &self.message)
            .field("hint", &self.hint)
            .finish_non_exhaustive()
    }
}
