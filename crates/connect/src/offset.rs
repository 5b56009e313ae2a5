//! A source's position, opaque to everything but the source.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A JSON scalar inside a [`SourceOffset`]. There are no fractions: their text is not byte-stable everywhere.
#[derive(Debug, Clone, Serialize, Deserialize)]
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

/// Equal when their JSON is equal: a number has one text, whichever variant holds it.
impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::U64(a), Self::U64(b)) => a == b,
            (Self::I64(a), Self::I64(b)) => a == b,
            (Self::U64(a), Self::I64(b)) | (Self::I64(b), Self::U64(a)) => i128::from(*a) == i128::from(*b),
            _ => false,
        }
    }
}

impl Eq for Scalar {}

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

impl From<i64> for Scalar {
    fn from(number: i64) -> Self {
        u64::try_from(number).map_or(Self::I64(number), Self::U64)
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
///
/// ```
/// use crabka_connect::SourceOffset;
///
/// let offset = SourceOffset::new([("slot", "orders".into())], [("lsn", 42_u64.into()), ("done", true.into())]);
/// assert_eq!(offset.to_json(), r#"{"partition":{"slot":"orders"},"position":{"done":true,"lsn":42}}"#);
/// assert_eq!(SourceOffset::from_json(offset.to_json().as_bytes())?, offset);
/// # Ok::<(), crabka_connect::ConnectError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::ErrorClass;

    #[test]
    fn the_json_is_sorted_and_has_no_blanks() {
        let offset = SourceOffset::new(
            [("slot", "a\"b".into()), ("database", "shop".into())],
            [
                ("z", u64::MAX.into()),
                ("a", Scalar::Null),
                ("m", i64::MIN.into()),
                ("b", true.into()),
                ("n", 7_i64.into()),
            ],
        );
        let json = "{\"partition\":{\"database\":\"shop\",\"slot\":\"a\\\"b\"},\"position\":{\"a\":null,\"b\":true,\"m\":-9223372036854775808,\"n\":7,\"z\":18446744073709551615}}";
        assert_eq!(offset.to_json(), json);
        assert_eq!(offset.to_string(), json);
        assert_eq!(offset.position["z"].as_u64(), Some(u64::MAX));
        assert_eq!(offset.partition["slot"].as_str(), Some("a\"b"));
        assert_eq!((offset.position["m"].as_u64(), offset.position["m"].as_str()), (None, None));
    }

    #[test]
    fn what_is_not_an_offset_is_a_lost_position() {
        for json in [
            "",
            "null",
            "[]",
            "{}",
            r#"{"partition":{}}"#,
            r#"{"partition":{},"position":{},"more":1}"#,
            r#"{"partition":{},"position":{"a":[1]}}"#,
            r#"{"partition":{},"position":{"a":{}}}"#,
            r#"{"partition":{},"position":{"a":1.5}}"#,
            r#"{"partition":{},"position":{"a":18446744073709551616}}"#,
            r#"{"partition":{},"position":{}} x"#,
        ] {
            let error = SourceOffset::from_json(json.as_bytes()).unwrap_err();
            assert_eq!(error.class(), ErrorClass::LostPosition, "{json}");
        }
    }

    fn scalar() -> impl Strategy<Value = Scalar> {
        prop_oneof![
            Just(Scalar::Null),
            any::<bool>().prop_map(Scalar::Bool),
            any::<u64>().prop_map(Scalar::U64),
            any::<i64>().prop_map(Scalar::I64),
            any::<String>().prop_map(Scalar::Text),
        ]
    }

    proptest! {
        #[test]
        fn offsets_come_back_and_their_json_is_byte_stable(
            partition in proptest::collection::btree_map(any::<String>(), scalar(), 0..5),
            position in proptest::collection::hash_map(any::<String>(), scalar(), 0..5),
        ) {
            let sorted = |map: &HashMap<String, Scalar>| map.clone().into_iter().collect();
            let offset = SourceOffset { partition: partition.clone(), position: sorted(&position) };
            let json = offset.to_json();
            let read = SourceOffset::from_json(json.as_bytes()).unwrap();
            prop_assert_eq!(&read, &offset);
            prop_assert_eq!(read.to_json(), json.clone());
            // Blanks and the order of members in what is read make no difference.
            let pretty = serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(&json).unwrap());
            prop_assert_eq!(SourceOffset::from_json(pretty.unwrap().as_bytes()).unwrap().to_json(), json);
        }
    }
}
