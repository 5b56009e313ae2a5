//! Answers of a check: each has a name, says what was looked at, and how to fix it.

use std::fmt;

use serde::Serialize;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Looked at, and as it should be.
    Ok,
    /// Works, but not as configured or not for long.
    Warning,
    /// Could not be looked at: neither good nor bad.
    Unknown,
    /// Will not work.
    Error,
}

/// One answer of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable name of the check, as `topic_partitions`.
    pub name: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What was looked at: a topic, the brokers.
    pub subject: String,
    /// What was found.
    pub message: String,
    /// The command or setting that fixes it.
    pub fix: Option<String>,
}

impl Finding {
    pub(crate) fn new(
        name: &'static str,
        severity: Severity,
        subject: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { name, severity, subject: subject.into(), message: message.into(), fix: None }
    }

    pub(crate) fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name, self.subject, self.message)?;
        if let Some(fix) = &self.fix {
            write!(f, "; to fix: {fix}")?;
        }
        Ok(())
    }
}
