//! What is said of a value that cannot be read: its type and what is wrong, never the value itself.

use std::borrow::Cow;

use crabka_connect::ConnectError;

/// Why the bytes are not a value of their type. The type's name is added where it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Which of the two forms of the wire a value came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The type's output function.
    Text,
    /// The type's send function.
    Binary,
}

impl Form {
    fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Binary => "binary",
        }
    }
}

/// A value that is not of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} form of type {type_name} cannot be read: {reason}", .form.as_str())]
pub struct ValueError {
    /// The type, as the server names it.
    pub type_name: Cow<'static, str>,
    /// The form it came in.
    pub form: Form,
    /// What is wrong.
    pub reason: &'static str,
}

impl From<ValueError> for ConnectError {
    fn from(error: ValueError) -> Self {
        let fix = match error.form {
            Form::Text => None,
            Form::Binary => Some("set source.binary = false to receive values as text"),
        };
        let error = Self::data(error.to_string()).with_source(error);
        match fix {
            Some(fix) => error.with_fix(fix),
            None => error,
        }
    }
}
