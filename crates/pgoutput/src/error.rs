//! What a decoding error says.

use core::fmt;

/// Input that is not a pgoutput message: which message and field, and where.
///
/// Never carries row values; `found` is one byte that decides a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Message name, for example `Insert`; `message` when the tag did not tell.
    pub message: &'static str,
    /// Field name, for example `relation oid`.
    pub field: &'static str,
    /// Byte offset from the start of the message.
    pub offset: usize,
    /// What was wrong.
    pub reason: &'static str,
    /// The byte found, where one byte decides (message tag, tuple kind, cell kind, flags).
    pub found: Option<u8>,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pgoutput {}: {} at byte {}: {}", self.message, self.field, self.offset, self.reason)?;
        match self.found {
            Some(byte) if byte.is_ascii_graphic() => write!(f, ": '{}' (0x{byte:02x})", char::from(byte)),
            Some(byte) => write!(f, ": 0x{byte:02x}"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for DecodeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_message_field_offset_and_byte() {
        let mut error = DecodeError {
            message: "Insert",
            field: "relation oid",
            offset: 1,
            reason: "the input ends inside the field",
            found: None,
        };
        assert_eq!(
            error.to_string(),
            "pgoutput Insert: relation oid at byte 1: the input ends inside the field"
        );
        error.found = Some(b'Z');
        assert!(error.to_string().ends_with(": 'Z' (0x5a)"), "{error}");
        error.found = Some(7);
        assert!(error.to_string().ends_with(": 0x07"), "{error}");
    }
}
