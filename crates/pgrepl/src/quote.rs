//! Names and texts inside replication commands. Their grammar knows `''` inside strings, no backslash escapes, and no
//! quote inside a quoted name; publication names are a list of SQL names inside such a string, where `""` is a quote.
//!
//! <https://www.postgresql.org/docs/18/protocol-replication.html>

use crate::Error;

/// `"name"`, so that the name survives as it is.
pub(crate) fn identifier(name: &str, what: &str) -> Result<String, Error> {
    check(name, what)?;
    Ok(format!("\"{}\"", name.replace('"', "\"\"")))
}

/// `'text'`.
pub(crate) fn literal(text: &str, what: &str) -> Result<String, Error> {
    if text.contains('\0') {
        return Err(Error::config(format!("{what} contains a zero byte")));
    }
    Ok(format!("'{}'", text.replace('\'', "''")))
}

/// A slot's name, quoted; what the server accepts needs no escapes.
///
/// <https://www.postgresql.org/docs/18/warm-standby.html#STREAMING-REPLICATION-SLOTS-MANIPULATION>
pub(crate) fn slot(name: &str) -> Result<String, Error> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if name.is_empty() || name.len() > 63 || !name.bytes().all(allowed) {
        return Err(Error::config(format!(
            "a slot name is made of 1 to 63 lower-case letters, digits and underscores, not: {name:?}"
        )));
    }
    Ok(format!("\"{name}\""))
}

/// An output plugin's name, quoted.
pub(crate) fn plugin(name: &str) -> Result<String, Error> {
    if name.contains('"') {
        return Err(Error::config(format!("an output plugin's name cannot contain a quote: {name:?}")));
    }
    identifier(name, "the output plugin")
}

fn check(name: &str, what: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::config(format!("{what} is empty")));
    }
    if name.contains('\0') {
        return Err(Error::config(format!("{what} contains a zero byte")));
    }
    Ok(())
}
