//! Quoting for replication commands. Their grammar knows `""` inside quoted names and `''` inside strings, and no
//! backslash escapes.
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

fn check(name: &str, what: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::config(format!("{what} is empty")));
    }
    if name.contains('\0') {
        return Err(Error::config(format!("{what} contains a zero byte")));
    }
    Ok(())
}
