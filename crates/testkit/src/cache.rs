//! Where things that are dear to make are kept between runs: database templates, jars, server binaries.
//!
//! The directory is `CRABKA_TEST_CACHE`, or `test-servers` in cargo's target directory. An entry is made beside its
//! place and renamed into it, under a lock file, so that several test processes may want the same entry at once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The cache's root, which is created.
///
/// # Errors
///
/// [`Error::File`] when it cannot be created.
pub fn cache_dir() -> Result<PathBuf, Error> {
    let dir = match std::env::var_os("CRABKA_TEST_CACHE") {
        Some(dir) => PathBuf::from(dir),
        None => target_dir().join("test-servers"),
    };
    fs::create_dir_all(&dir).map_err(Error::file(&dir))?;
    Ok(dir)
}

/// Cargo marks its target directory with a tag file, and every test binary lies inside it.
fn target_dir() -> PathBuf {
    let tagged = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file()).map(Path::to_owned));
    tagged
        .or_else(|| std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from))
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"))
}

/// The directory `name` of the cache, filled by `make` when it is not there. A `make` that fails leaves nothing.
pub(crate) fn entry(name: &str, make: impl FnOnce(&Path) -> Result<(), Error>) -> Result<PathBuf, Error> {
    let root = cache_dir()?;
    let place = root.join(name);
    if place.is_dir() {
        return Ok(place);
    }
    let lock_path = root.join(format!("{name}.lock"));
    if let Some(parent) = lock_path.parent() {
        fs::create_dir_all(parent).map_err(Error::file(parent))?;
    }
    let lock = File::create(&lock_path).map_err(Error::file(&lock_path))?;
    lock.lock().map_err(Error::file(&lock_path))?;
    if place.is_dir() {
        return Ok(place);
    }
    let draft = tempfile::Builder::new().prefix(".making-").tempdir_in(&root).map_err(Error::file(&root))?;
    let inner = draft.path().join("entry");
    fs::create_dir(&inner).map_err(Error::file(&inner))?;
    make(&inner)?;
    fs::rename(&inner, &place).map_err(Error::file(&place))?;
    Ok(place)
}

/// From this size on a file is looked at for zeros at its end: a new WAL segment is 16 MiB of them.
const SPARSE_BYTES_MIN: u64 = 1 << 20;

/// Copies a file and its mode; zeros at its end become a hole.
fn copy_without_zeros(from: &Path, to: &Path) -> Result<(), Error> {
    let bytes = fs::read(from).map_err(Error::file(from))?;
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    fs::write(to, &bytes[..end]).map_err(Error::file(to))?;
    let file = fs::OpenOptions::new().write(true).open(to).map_err(Error::file(to))?;
    file.set_len(bytes.len() as u64).map_err(Error::file(to))?;
    let mode = fs::metadata(from).map_err(Error::file(from))?.permissions();
    fs::set_permissions(to, mode).map_err(Error::file(to))
}

/// Copies a directory with its modes and symbolic links.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to).map_err(Error::file(to))?;
    let mode = fs::metadata(from).map_err(Error::file(from))?.permissions();
    fs::set_permissions(to, mode).map_err(Error::file(to))?;
    for entry in fs::read_dir(from).map_err(Error::file(from))? {
        let entry = entry.map_err(Error::file(from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(Error::file(&source))?;
        if kind.is_dir() {
            copy_tree(&source, &target)?;
        } else if kind.is_symlink() {
            let pointee = fs::read_link(&source).map_err(Error::file(&source))?;
            std::os::unix::fs::symlink(pointee, &target).map_err(Error::file(&target))?;
        } else if entry.metadata().map_err(Error::file(&source))?.len() >= SPARSE_BYTES_MIN {
            copy_without_zeros(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(Error::file(&target))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_tree_is_the_same_with_holes_for_zeros() {
        let scratch = tempfile::tempdir().unwrap();
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        fs::create_dir_all(from.join("inner")).unwrap();
        let mut segment = vec![7; 5000];
        segment.resize(4 << 20, 0);
        fs::write(from.join("inner/segment"), &segment).unwrap();
        fs::write(from.join("small"), "text").unwrap();
        std::os::unix::fs::symlink("small", from.join("link")).unwrap();
        copy_tree(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("inner/segment")).unwrap(), segment);
        assert_eq!(fs::read_to_string(to.join("link")).unwrap(), "text");
        assert!(fs::symlink_metadata(to.join("link")).unwrap().is_symlink());
    }
}
