//! Server text of tsvector and tsquery from their binary forms.
//!
//! <https://www.postgresql.org/docs/17/datatype-textsearch.html>

use bytes::{BufMut, BytesMut};

use super::error::Malformed;
use super::read::{Reader, utf8};
use super::write;

/// `'lexeme':1A,3` separated by blanks.
pub(super) fn render_tsvector(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    for index in 0..reader.count(3)? {
        if index > 0 {
            out.put_u8(b' ');
        }
        write_lexeme(out, reader.cstring()?)?;
        for position in 0..reader.u16()? {
            out.put_u8(if position == 0 { b':' } else { b',' });
            let word = reader.u16()?;
            write::integer(out, word & 0x3FFF);
            match word >> 14 {
                3 => out.put_u8(b'A'),
                2 => out.put_u8(b'B'),
                1 => out.put_u8(b'C'),
                _ => {}
            }
        }
    }
    reader.finish()
}

/// In quotes; quotes and backslashes inside are doubled.
fn write_lexeme(out: &mut BytesMut, lexeme: &[u8]) -> Result<(), Malformed> {
    out.put_u8(b'\'');
    let start = out.len();
    out.put_slice(utf8(lexeme)?.as_bytes());
    write::insert_before(out, start, |byte| matches!(byte, b'\'' | b'\\').then_some(byte));
    out.put_u8(b'\'');
    Ok(())
}

/// A part of a query that is printed already.
struct Part {
    text: BytesMut,
    priority: u8,
}

const OR_PRIORITY: u8 = 1;
const AND_PRIORITY: u8 = 2;
const PHRASE_PRIORITY: u8 = 3;
const NOT_PRIORITY: u8 = 4;
const VALUE_PRIORITY: u8 = 5;

enum Item<'a> {
    Value { lexeme: &'a [u8], weight: u8, prefix: bool },
    Not,
    And,
    Or,
    Phrase { distance: u16 },
}

/// Infix form. The items are in prefix order with the right operand before the left one, so reading them
/// backwards builds the parts from a stack, however deep the query is.
pub(super) fn render_tsquery(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    let count = reader.count(2)?;
    let mut items = Vec::with_capacity(count.min(1024));
    for _ in 0..count {
        items.push(read_item(&mut reader)?);
    }
    reader.finish()?;
    let malformed = Malformed("operands and operators do not match");
    let mut stack: Vec<Part> = Vec::new();
    for item in items.iter().rev() {
        let part = match item {
            Item::Value { lexeme, weight, prefix } => value_part(lexeme, *weight, *prefix)?,
            Item::Not => {
                let operand = stack.pop().ok_or(malformed)?;
                let mut text = BytesMut::from(&b"!"[..]);
                text.unsplit(parenthesised(operand, NOT_PRIORITY, false));
                Part { text, priority: NOT_PRIORITY }
            }
            Item::And | Item::Or | Item::Phrase { .. } => {
                let right = stack.pop().ok_or(malformed)?;
                let left = stack.pop().ok_or(malformed)?;
                binary_part(item, left, right)
            }
        };
        stack.push(part);
    }
    match (stack.pop(), stack.is_empty()) {
        (Some(query), true) => out.put_slice(&query.text),
        (None, _) => {}
        (Some(_), false) => return Err(malformed),
    }
    Ok(())
}

fn read_item<'a>(reader: &mut Reader<'a>) -> Result<Item<'a>, Malformed> {
    match reader.u8()? {
        1 => {
            let (weight, prefix) = (reader.u8()?, reader.u8()? != 0);
            Ok(Item::Value { lexeme: reader.cstring()?, weight, prefix })
        }
        2 => match reader.u8()? {
            1 => Ok(Item::Not),
            2 => Ok(Item::And),
            3 => Ok(Item::Or),
            4 => Ok(Item::Phrase { distance: reader.u16()? }),
            _ => Err(Malformed("unknown operator")),
        },
        _ => Err(Malformed("unknown kind of item")),
    }
}

fn value_part(lexeme: &[u8], weight: u8, prefix: bool) -> Result<Part, Malformed> {
    let mut text = BytesMut::new();
    write_lexeme(&mut text, lexeme)?;
    if weight != 0 || prefix {
        text.put_u8(b':');
    }
    if prefix {
        text.put_u8(b'*');
    }
    for (bit, letter) in [(8, b'A'), (4, b'B'), (2, b'C'), (1, b'D')] {
        if weight & bit != 0 {
            text.put_u8(letter);
        }
    }
    Ok(Part { text, priority: VALUE_PRIORITY })
}

fn binary_part(operator: &Item<'_>, left: Part, right: Part) -> Part {
    let (priority, symbol) = match operator {
        Item::Or => (OR_PRIORITY, "|".to_owned()),
        Item::Phrase { distance: 1 } => (PHRASE_PRIORITY, "<->".to_owned()),
        Item::Phrase { distance } => (PHRASE_PRIORITY, format!("<{distance}>")),
        _ => (AND_PRIORITY, "&".to_owned()),
    };
    let mut text = parenthesised(left, priority, false);
    text.put_u8(b' ');
    text.put_slice(symbol.as_bytes());
    text.put_u8(b' ');
    text.put_slice(&parenthesised(right, priority, priority == PHRASE_PRIORITY));
    Part { text, priority }
}

fn parenthesised(part: Part, parent_priority: u8, right_of_phrase: bool) -> BytesMut {
    if part.priority >= parent_priority && !(right_of_phrase && part.priority == PHRASE_PRIORITY) {
        return part.text;
    }
    let mut text = BytesMut::with_capacity(part.text.len() + 4);
    text.put_slice(b"( ");
    text.put_slice(&part.text);
    text.put_slice(b" )");
    text
}
