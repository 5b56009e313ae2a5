//! Standard output: what a verb answers.

use std::io::{ErrorKind, Write};

use crabka_connect::ConnectError;

use crate::exit::Failure;

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// It was taken.
    Taken,
    /// The reader went away, as in `crabka tail ... | head`.
    NobodyReads,
}

/// Writes `text`. A reader that went away is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(text.as_bytes()).map(drop)
}

fn write(bytes: &[u8]) -> Result<Written, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Written::Taken),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Written::NobodyReads),
        Err(error) => {
            Err(ConnectError::transient("standard output cannot be written").with_source(error).into())
        }
    }
}

/// Lines that are written many at a time.
pub(crate) struct Lines {
    buffer: Vec<u8>,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self { buffer: Vec::new() }
    }

    /// Where lines are put together.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes what was put together.
    pub(crate) fn write(&mut self) -> Result<Written, Failure> {
        if self.buffer.is_empty() {
            return Ok(Written::Taken);
        }
        let written = write(&self.buffer)?;
        self.buffer.clear();
        Ok(written)
    }
}
