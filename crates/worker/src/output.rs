//! Standard output: what a verb answers.

use std::io::{ErrorKind, Write};

use crabka_connect::ConnectError;

use crate::exit::Failure;

/// Writes `text`. A reader that went away (`crabka ... | head`) ends the program quietly.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            Err(ConnectError::transient("standard output cannot be written").with_source(error).into())
        }
    }
}
