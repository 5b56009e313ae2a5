//! What stands for a value that the server did not send again, and that the old row does not have either.

use bytes::BytesMut;
use crabka_connect::ConnectError;
use md5::{Digest, Md5};

use super::super::json;
use crate::types::{ColumnType, Kind, uuid};

/// Debezium's default placeholder.
pub const DEFAULT_PLACEHOLDER: &str = "__debezium_unavailable_value";

/// Oids of element types whose arrays have a placeholder.
const INT8: u32 = 20;
const INT4: u32 = 23;
const DATE: u32 = 1082;

/// The placeholder in the form each type of column has it, written once.
#[derive(Debug)]
pub(super) struct Placeholders {
    string: BytesMut,
    bytes: BytesMut,
    map: BytesMut,
    strings: BytesMut,
    byte_strings: BytesMut,
    numbers: BytesMut,
    uuids: BytesMut,
}

impl Placeholders {
    /// `configured` is the text, or after `hex:` the bytes.
    pub(super) fn new(configured: &str) -> Result<Self, ConnectError> {
        let bytes = match configured.strip_prefix("hex:") {
            Some(digits) => unhex(digits).ok_or_else(|| {
                ConnectError::configuration(
                    "unavailable value placeholder is not pairs of hexadecimal digits",
                )
            })?,
            None => configured.as_bytes().to_vec(),
        };
        let text = String::from_utf8_lossy(&bytes);
        let written = |write: &dyn Fn(&mut BytesMut)| {
            let mut out = BytesMut::new();
            write(&mut out);
            out
        };
        let string = written(&|out| json::string(out, &text));
        let byte_string = written(&|out| json::base64(out, &bytes));
        let object = format!("{{{0}:{0}}}", String::from_utf8_lossy(&string));
        let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
        let list = |item: &BytesMut| BytesMut::from(&[b"[", &item[..], b"]"].concat()[..]);
        Ok(Self {
            strings: list(&string),
            byte_strings: list(&byte_string),
            numbers: BytesMut::from(format!("[{}]", numbers.join(",")).as_bytes()),
            uuids: list(&written(&|out| {
                out.extend_from_slice(b"\"");
                uuid::write(out, &name_based_uuid(&bytes));
                out.extend_from_slice(b"\"");
            })),
            map: written(&|out| json::string(out, &object)),
            string,
            bytes: byte_string,
        })
    }

    /// The placeholder for a column of this type.
    pub(super) fn get(&self, column_type: &ColumnType) -> &[u8] {
        match column_type.kind() {
            Kind::Text | Kind::Json | Kind::Xml => &self.string,
            Kind::Bytea => &self.bytes,
            Kind::Hstore => &self.map,
            Kind::Array => column_type.element().map_or(b"null", |element| self.for_array_of(element)),
            _ => b"null",
        }
    }

    fn for_array_of(&self, element: &ColumnType) -> &[u8] {
        match (element.kind(), element.base_oid()) {
            (Kind::Text | Kind::Json, _) => &self.strings,
            (Kind::Bytea, _) => &self.byte_strings,
            (Kind::Integer, INT4 | INT8) | (Kind::Date, DATE) => &self.numbers,
            (Kind::Uuid, _) => &self.uuids,
            _ => b"null",
        }
    }
}

/// A version 3 UUID made of the bytes alone, without a name space.
fn name_based_uuid(bytes: &[u8]) -> [u8; 16] {
    let mut uuid: [u8; 16] = Md5::digest(bytes).into();
    uuid[6] = uuid[6] & 0x0F | 0x30;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}
