//! What a decoding error says.

use std::fmt;

/// Input that is not a pgoutput message: which message and field, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Message name, for example `Insert`.
    pub message: &'static str,
    /// Field name, for example `relation oid`.
    pub field: &'static str,
    /// Byte offset from the start of the message.
    pub offset: usize,
    /// What was wrong.
    pub reason: &'static str,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pgoutput {}: {} at byte {}: {}", self.message, self.field, self.offset, self.reason)
    }
}

impl std::error::Error for DecodeError {}
