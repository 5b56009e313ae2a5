//! File work off the async threads, and its errors by who must act.

use std::fs::{File, TryLockError};
use std::io;
use std::panic::resume_unwind;
use std::path::Path;

use crate::ConnectError;

/// Runs `work` on a blocking thread. When the returned future is dropped, the work still goes on to its end.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ConnectError> + Send + 'static,
) -> Result<T, ConnectError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Err(ConnectError::transient("the process is shutting down")),
        },
    }
}

/// An error of a file by its kind: what only a change of path or permissions cures is the operator's, the rest (disk
/// full, I/O) may pass.
pub(crate) fn file_error(what: &str, path: &Path, error: io::Error) -> ConnectError {
    use io::ErrorKind::{
        InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied,
        ReadOnlyFilesystem,
    };
    let message = format!("{what}: {}", path.display());
    let fix = match error.kind() {
        NotFound => "create its folder",
        PermissionDenied => "give this user the right to read and write the file and its folder",
        ReadOnlyFilesystem | IsADirectory | NotADirectory | InvalidFilename | InvalidInput => {
            "choose another path"
        }
        _ => return ConnectError::transient(message).with_source(error),
    };
    ConnectError::configuration(message).with_source(error).with_fix(fix)
}

/// Why a file could not be locked.
pub(crate) fn lock_error(path: &Path, error: TryLockError) -> ConnectError {
    match error {
        TryLockError::WouldBlock => {
            ConnectError::configuration(format!("the file is in use by another process: {}", path.display()))
                .with_fix("stop that process, or choose another path")
        }
        TryLockError::Error(error) => file_error("cannot lock the file", path, error),
    }
}

/// Makes the entry of `path` in its folder durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}
