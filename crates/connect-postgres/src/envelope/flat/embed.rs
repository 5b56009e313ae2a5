//! A json or jsonb value as JSON inside the record: checked, and without the blanks between its tokens, so that a
//! record is always one line and always reads back. Numbers, strings and members stay as they are spelt.
//!
//! <https://www.rfc-editor.org/rfc/rfc8259>

use bytes::{BufMut, BytesMut};

use super::super::format::Held;
use crate::types::Malformed;

const NOT_JSON: Malformed = Malformed("not JSON");

/// What may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    /// A value or the end of an array that has none.
    ValueOrEnd,
    /// A member or the end of an object that has none.
    MemberOrEnd,
    Member,
    /// A comma or the end, behind a value.
    AfterValue,
}

/// Appends the text. JSON `null` cannot be told from SQL NULL by the member alone, so it counts as held in part.
pub(super) fn write(out: &mut BytesMut, text: &str) -> Result<Held, Malformed> {
    out.reserve(text.len());
    let mut rest = text.as_bytes();
    // Open objects and arrays, by their closing byte.
    let mut open: Vec<u8> = Vec::new();
    let mut expect = Expect::Value;
    let mut null = false;
    loop {
        rest = skip_blanks(rest);
        if expect == Expect::AfterValue && open.is_empty() {
            break;
        }
        let (&byte, after) = rest.split_first().ok_or(NOT_JSON)?;
        match (expect, byte) {
            (Expect::AfterValue, b',') => {
                out.put_u8(b',');
                expect = if open.last() == Some(&b'}') { Expect::Member } else { Expect::Value };
                rest = after;
            }
            (Expect::AfterValue | Expect::ValueOrEnd | Expect::MemberOrEnd, b'}' | b']') => {
                if open.pop() != Some(byte) {
                    return Err(NOT_JSON);
                }
                out.put_u8(byte);
                expect = Expect::AfterValue;
                rest = after;
            }
            (Expect::Member | Expect::MemberOrEnd, b'"') => {
                rest = skip_blanks(copy_string(out, rest)?).strip_prefix(b":").ok_or(NOT_JSON)?;
                out.put_u8(b':');
                expect = Expect::Value;
            }
            (Expect::Value | Expect::ValueOrEnd, b'{' | b'[') => {
                out.put_u8(byte);
                open.push(if byte == b'{' { b'}' } else { b']' });
                expect = if byte == b'{' { Expect::MemberOrEnd } else { Expect::ValueOrEnd };
                rest = after;
            }
            (Expect::Value | Expect::ValueOrEnd, _) => {
                null = byte == b'n' && open.is_empty();
                rest = copy_scalar(out, rest)?;
                expect = Expect::AfterValue;
            }
            _ => return Err(NOT_JSON),
        }
    }
    match (rest.is_empty(), null) {
        (false, _) => Err(NOT_JSON),
        (true, true) => Ok(Held::InPart),
        (true, false) => Ok(Held::Whole),
    }
}

fn skip_blanks(bytes: &[u8]) -> &[u8] {
    let blanks = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    &bytes[blanks..]
}

/// Copies a string with its quotes.
fn copy_string<'t>(out: &mut BytesMut, bytes: &'t [u8]) -> Result<&'t [u8], Malformed> {
    let mut index = 1;
    loop {
        match bytes.get(index).ok_or(NOT_JSON)? {
            b'"' => break,
            b'\\' => match bytes.get(index + 1).ok_or(NOT_JSON)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => index += 2,
                b'u' if bytes
                    .get(index + 2..index + 6)
                    .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) =>
                {
                    index += 6;
                }
                _ => return Err(NOT_JSON),
            },
            0..0x20 => return Err(NOT_JSON),
            _ => index += 1,
        }
    }
    let (string, rest) = bytes.split_at(index + 1);
    out.put_slice(string);
    Ok(rest)
}

/// Copies a string, a number or one of the three words.
fn copy_scalar<'t>(out: &mut BytesMut, bytes: &'t [u8]) -> Result<&'t [u8], Malformed> {
    if bytes.starts_with(b"\"") {
        return copy_string(out, bytes);
    }
    let length = match ["true", "false", "null"].iter().find(|word| bytes.starts_with(word.as_bytes())) {
        Some(word) => word.len(),
        None => number_len(bytes)?,
    };
    let (scalar, rest) = bytes.split_at(length);
    out.put_slice(scalar);
    Ok(rest)
}

/// `-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?`
fn number_len(bytes: &[u8]) -> Result<usize, Malformed> {
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut length = usize::from(bytes.first() == Some(&b'-'));
    let integer = digits(length);
    if integer == 0 || integer > 1 && bytes[length] == b'0' {
        return Err(NOT_JSON);
    }
    length += integer;
    if bytes.get(length) == Some(&b'.') {
        let fraction = digits(length + 1);
        if fraction == 0 {
            return Err(NOT_JSON);
        }
        length += 1 + fraction;
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + sign);
        if exponent == 0 {
            return Err(NOT_JSON);
        }
        length += 1 + sign + exponent;
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn embedded(text: &str) -> Result<String, Malformed> {
        let mut out = BytesMut::new();
        write(&mut out, text)?;
        Ok(String::from_utf8(out.to_vec()).unwrap())
    }

    #[test]
    fn only_blanks_between_tokens_go() {
        let text =
            " { \"a b\" : [ 1.00 , -0.5e+10,\n null ] , \"a b\":{},\"c\":[ ], \"\\u00e9\\n\": \"x  y\" } ";
        assert_eq!(
            embedded(text).unwrap(),
            r#"{"a b":[1.00,-0.5e+10,null],"a b":{},"c":[],"\u00e9\n":"x  y"}"#
        );
    }

    #[test]
    fn a_null_is_marked() {
        let mut out = BytesMut::new();
        assert!(write(&mut out, " null").unwrap() == Held::InPart);
        assert!(write(&mut out, "[null]").unwrap() == Held::Whole);
    }

    #[test]
    fn deep_nesting_is_no_recursion() {
        let text = "[".repeat(100_000) + &"]".repeat(100_000);
        assert_eq!(embedded(&text).unwrap(), text);
    }

    proptest! {
        #[test]
        fn accepts_what_a_json_parser_accepts(text in "[\\[\\]{}:,\"a0-2.eE+\\-\\\\ \\n tnul]{0,12}") {
            let parsed: Result<serde::de::IgnoredAny, _> = serde_json::from_str(&text);
            prop_assert_eq!(embedded(&text).is_ok(), parsed.is_ok(), "{}", text);
        }

        #[test]
        fn any_value_reads_back(value in json_value()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(embedded(&pretty).unwrap(), serde_json::to_string(&value).unwrap());
        }
    }

    fn json_value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
                proptest::collection::vec((any::<String>(), inner), 0..6)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }
}
