//! A source's position, opaque to everything but the source.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A JSON scalar inside a [`SourceOffset`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// JSON `null`.
    Null,
    /// JSON boolean.
    Bool(bool),
    /// JSON number without sign or fraction.
    U64(u64),
    /// Negative JSON number without fraction.
    I64(i64),
    /// JSON string.
    Text(String),
}

impl Scalar {
    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The unsigned number, if it is one.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::U64(number) => Some(*number),
            _ => None,
        }
    }
}

impl From<&str> for Scalar {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Scalar {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Scalar {
    fn from(number: u64) -> Self {
        Self::U64(number)
    }
}

impl From<bool> for Scalar {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// What a source needs to resume: *which* stream (`partition`) and *where* in it (`position`).
///
/// Its JSON is byte-stable: the same offset always gives the same bytes, members sorted by name, no blanks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceOffset {
    /// Names the stream, for example system identifier, database and slot.
    pub partition: BTreeMap<String, Scalar>,
    /// Names the place in the stream.
    pub position: BTreeMap<String, Scalar>,
}

impl SourceOffset {
    /// An offset from its members.
    pub fn new<'a>(
        partition: impl IntoIterator<Item = (&'a str, Scalar)>,
        position: impl IntoIterator<Item = (&'a str, Scalar)>,
    ) -> Self {
        let map = |(name, scalar): (&str, Scalar)| (name.to_owned(), scalar);
        Self {
            partition: partition.into_iter().map(map).collect(),
            position: position.into_iter().map(map).collect(),
        }
    }

    /// Byte-stable JSON.
    pub fn to_json(&self) -> String {
        // Maps with string keys and scalar values cannot fail to serialise.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Offset`](crate::ConnectError::Offset) when the text is not such JSON.
    pub fn from_json(json: &[u8]) -> Result<Self, crate::ConnectError> {
        serde_json::from_slice(json)
            .map_err(|error| crate::ConnectError::offset("stored offset is not readable").with_source(error))
    }
}

impl fmt::Display for SourceOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}
