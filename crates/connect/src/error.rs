//! Errors that say who must act.

use std::error::Error as StdError;
use std::fmt;

type Source = Box<dyn StdError + Send + Sync + 'static>;

/// Who must act on an error, and so what the runtime does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Nobody: the same attempt may succeed later. Retried with back-off, the position kept.
    Transient,
    /// The operator: a setting, a grant, an option. Stops at once.
    Configuration,
    /// The owner of the data: a value or record that cannot be delivered. Stops or dead-letters, by policy.
    Data,
    /// The operator decides: the stored position cannot be honoured. Stops; nothing is skipped or re-created.
    LostPosition,
    /// Nobody: another instance took over. Stops.
    Fenced,
    /// Us: an invariant broke. Stops.
    Bug,
}

impl ErrorClass {
    /// The name used in logs, metrics and `--json` output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Configuration => "configuration",
            Self::Data => "data",
            Self::LostPosition => "lost_position",
            Self::Fenced => "fenced",
            Self::Bug => "bug",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The part of a run that an error comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// What is read from.
    Source,
    /// What is written to.
    Sink,
    /// Where the position is kept.
    Checkpoint,
    /// What makes bytes of records.
    Converter,
}

impl Part {
    /// The name used in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Sink => "sink",
            Self::Checkpoint => "checkpoint",
            Self::Converter => "converter",
        }
    }
}

/// What happened, and what fixes it.
#[derive(Debug)]
pub struct ErrorDetail {
    part: Option<Part>,
    message: String,
    fix: Option<String>,
    sqlstate: Option<String>,
    source: Option<Source>,
}

/// The one error type of the SPI: each variant is a different act for the user.
///
/// Messages carry names, counts and positions, never row values or secrets.
#[derive(Debug)]
pub enum ConnectError {
    /// See [`ErrorClass::Transient`].
    Transient(Box<ErrorDetail>),
    /// See [`ErrorClass::Configuration`].
    Configuration(Box<ErrorDetail>),
    /// See [`ErrorClass::Data`].
    Data(Box<ErrorDetail>),
    /// The offset does not name a position the source can resume from; see [`ErrorClass::LostPosition`].
    Offset(Box<ErrorDetail>),
    /// See [`ErrorClass::Fenced`].
    Fenced(Box<ErrorDetail>),
    /// See [`ErrorClass::Bug`].
    Bug(Box<ErrorDetail>),
}

fn detail(message: impl Into<String>) -> Box<ErrorDetail> {
    Box::new(ErrorDetail { part: None, message: message.into(), fix: None, sqlstate: None, source: None })
}

impl ConnectError {
    /// An error that may go away by itself.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::Transient(detail(message))
    }

    /// An error that the operator must fix.
    pub fn configuration(message: impl Into<String>) -> Self {
        Self::Configuration(detail(message))
    }

    /// A value or record that cannot be delivered.
    pub fn data(message: impl Into<String>) -> Self {
        Self::Data(detail(message))
    }

    /// A position that cannot be honoured.
    pub fn offset(message: impl Into<String>) -> Self {
        Self::Offset(detail(message))
    }

    /// Another instance took over.
    pub fn fenced(message: impl Into<String>) -> Self {
        Self::Fenced(detail(message))
    }

    /// A broken invariant.
    pub fn bug(message: impl Into<String>) -> Self {
        Self::Bug(detail(message))
    }

    /// Adds the SQL, setting or command that fixes it; printed after the message.
    #[must_use]
    pub fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.detail_mut().fix = Some(fix.into());
        self
    }

    /// Adds the SQLSTATE that PostgreSQL reported.
    #[must_use]
    pub fn with_sqlstate(mut self, sqlstate: impl Into<String>) -> Self {
        self.detail_mut().sqlstate = Some(sqlstate.into());
        self
    }

    /// Names the part that it comes from, if nothing closer to it has named one.
    #[must_use]
    pub fn in_part(mut self, part: Part) -> Self {
        self.detail_mut().part.get_or_insert(part);
        self
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.detail_mut().source = Some(source.into());
        self
    }

    /// Puts `context` and a colon before the message.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        let detail = self.detail_mut();
        detail.message = format!("{context}: {}", detail.message);
        self
    }

    /// Who must act.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Transient(_) => ErrorClass::Transient,
            Self::Configuration(_) => ErrorClass::Configuration,
            Self::Data(_) => ErrorClass::Data,
            Self::Offset(_) => ErrorClass::LostPosition,
            Self::Fenced(_) => ErrorClass::Fenced,
            Self::Bug(_) => ErrorClass::Bug,
        }
    }

    /// The part of the run that it comes from, as far as the runtime has named it.
    pub fn part(&self) -> Option<Part> {
        self.detail().part
    }

    /// Whether a later attempt may succeed without anybody acting.
    pub fn is_transient(&self) -> bool {
        self.class() == ErrorClass::Transient
    }

    /// What happened, without cause and fix.
    pub fn message(&self) -> &str {
        &self.detail().message
    }

    /// The SQL, setting or command that fixes it, if there is one.
    pub fn fix(&self) -> Option<&str> {
        self.detail().fix.as_deref()
    }

    /// The SQLSTATE that PostgreSQL reported, if it came from there.
    pub fn sqlstate(&self) -> Option<&str> {
        self.detail().sqlstate.as_deref()
    }

    /// The error, its causes and what fixes it, in one line for logs.
    pub fn chain(&self) -> String {
        let mut text = self.with_causes();
        if let Some(fix) = self.fix() {
            text.push_str("; to fix: ");
            text.push_str(fix);
        }
        text
    }

    /// The error and its causes in one line, without the fix. What the message or a cause has told already is not
    /// told again: many messages end with that of their cause.
    pub fn with_causes(&self) -> String {
        let mut text = self.message().to_owned();
        if let Some(sqlstate) = self.sqlstate() {
            text.push_str(&format!(" (SQLSTATE {sqlstate})"));
        }
        let first = StdError::source(self);
        let causes: Vec<String> = std::iter::successors(first, |error| (*error).source())
            .map(|error| error.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        // A cause that only wraps one that was told says nothing new either.
        let mut told = self.message().to_owned();
        let wrappers =
            causes.iter().rposition(|cause| is_told(&told, cause)).map_or(0, |deepest| deepest + 1);
        for cause in causes.into_iter().skip(wrappers) {
            if !is_told(&told, &cause) {
                text.push_str(&format!(": {cause}"));
                told.push_str(&format!(": {cause}"));
            }
        }
        text
    }

    fn detail(&self) -> &ErrorDetail {
        match self {
            Self::Transient(detail)
            | Self::Configuration(detail)
            | Self::Data(detail)
            | Self::Offset(detail)
            | Self::Fenced(detail)
            | Self::Bug(detail) => detail,
        }
    }

    fn detail_mut(&mut self) -> &mut ErrorDetail {
        match self {
            Self::Transient(detail)
            | Self::Configuration(detail)
            | Self::Data(detail)
            | Self::Offset(detail)
            | Self::Fenced(detail)
            | Self::Bug(detail) => detail,
        }
    }
}

/// Whether the end of a cause, its most specific part, stands among the parts of a text.
fn is_told(text: &str, cause: &str) -> bool {
    let end = cause.rsplit(": ").next().unwrap_or_default();
    text.split(": ").any(|part| part == end)
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = self.detail();
        f.write_str(&detail.message)?;
        if let Some(sqlstate) = &detail.sqlstate {
            write!(f, " (SQLSTATE {sqlstate})")?;
        }
        if let Some(fix) = &detail.fix {
            write!(f, "; to fix: {fix}")?;
        }
        Ok(())
    }
}

impl StdError for ConnectError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.detail().source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Make = fn(String) -> ConnectError;

    fn all() -> [(Make, ErrorClass, &'static str); 6] {
        [
            (ConnectError::transient, ErrorClass::Transient, "transient"),
            (ConnectError::configuration, ErrorClass::Configuration, "configuration"),
            (ConnectError::data, ErrorClass::Data, "data"),
            (ConnectError::offset, ErrorClass::LostPosition, "lost_position"),
            (ConnectError::fenced, ErrorClass::Fenced, "fenced"),
            (ConnectError::bug, ErrorClass::Bug, "bug"),
        ]
    }

    #[test]
    fn every_error_says_who_must_act_and_keeps_its_details() {
        for (make, class, name) in all() {
            let error = make("connection lost".to_owned())
                .with_sqlstate("57P01")
                .with_fix("restart it")
                .with_source(std::io::Error::other("reset"))
                .context("opening the source");
            assert_eq!(error.class(), class);
            assert_eq!((class.as_str(), class.to_string().as_str()), (name, name));
            assert_eq!(error.is_transient(), class == ErrorClass::Transient);
            assert_eq!(error.message(), "opening the source: connection lost");
            assert_eq!((error.sqlstate(), error.fix()), (Some("57P01"), Some("restart it")));
            assert_eq!(
                error.to_string(),
                "opening the source: connection lost (SQLSTATE 57P01); to fix: restart it"
            );
            assert_eq!(
                error.chain(),
                "opening the source: connection lost (SQLSTATE 57P01): reset; to fix: restart it"
            );
            let cause = StdError::source(&error).unwrap();
            assert!(cause.downcast_ref::<std::io::Error>().is_some());
        }
    }

    #[test]
    fn a_bare_error_is_its_message() {
        for (make, ..) in all() {
            let error = make("no".to_owned());
            assert_eq!((error.to_string(), error.chain()), ("no".to_owned(), "no".to_owned()));
            assert!(
                StdError::source(&error).is_none() && error.sqlstate().is_none() && error.fix().is_none()
            );
        }
    }

    #[test]
    fn the_whole_chain_of_causes_is_shown() {
        let cause = ConnectError::transient("middle").with_source(std::io::Error::other("inner"));
        let error = ConnectError::data("outer").with_source(cause);
        assert_eq!(error.chain(), "outer: middle: inner");
    }

    #[test]
    fn no_cause_is_told_twice() {
        let reset =
            || ConnectError::transient("talking to it: reset").with_source(std::io::Error::other("reset"));
        let error = ConnectError::transient("reading: talking to it: reset").with_source(reset());
        assert_eq!(error.chain(), "reading: talking to it: reset");
        let error = ConnectError::transient("reading failed").with_source(reset()).with_sqlstate("57P01");
        assert_eq!(error.chain(), "reading failed (SQLSTATE 57P01): talking to it: reset");
        // Deeper than what was told there is something new.
        let error = ConnectError::transient("reading: reset");
        let error =
            error.with_source(ConnectError::data("reset").with_source(std::io::Error::other("by peer")));
        assert_eq!(error.chain(), "reading: reset: by peer");
        // A part of a word is not the word.
        let error = ConnectError::transient("nothing").with_source(std::io::Error::other("no"));
        assert_eq!(error.chain(), "nothing: no");
    }
}
