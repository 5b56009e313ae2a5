//! The offset of one connector in one file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::CheckpointStore;
use crate::blocking::{blocking, file_error, lock_error, sync_directory};
use crate::{ConnectError, SourceOffset};

/// Format version written, and the only one read.
const VERSION: u64 = 1;
/// Says whose file it is.
const FORMAT: &str = "crabka-checkpoint";
/// What stands between the content and its checksum.
const CHECKSUM_MEMBER: &str = ",\"crc32\":\"";

/// Keeps the offset of one connector in a file that is replaced as a whole.
///
/// The content is one line of JSON: format name, version, connector name, offset and a CRC-32 of all that. The file
/// is written beside its place (`PATH.tmp`), synced, renamed, and its folder synced. A lock on `PATH.lock` keeps a
/// second process out for as long as the store lives; the lock file stays behind.
///
/// A file that is torn, damaged, or of another connector is an error and never a fresh start. Only a missing file
/// means that nothing was ever saved.
#[derive(Debug, Clone)]
pub struct FileCheckpointStore {
    /// Locked by the blocking thread, so that a save whose future was dropped is through before the next call.
    place: Arc<Mutex<Place>>,
}

#[derive(Debug)]
struct Place {
    path: PathBuf,
    temporary: PathBuf,
    /// Holds the lock.
    _lock: File,
}

#[derive(Serialize)]
struct Written<'a> {
    format: &'a str,
    version: u64,
    connector: &'a str,
    offset: &'a SourceOffset,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: String,
    version: u64,
    connector: String,
    offset: SourceOffset,
}

impl FileCheckpointStore {
    /// Locks the file, which need not exist.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] of the configuration class when another process uses the file, or the folder is missing or
    /// cannot be written; of the transient class when the disk failed.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, ConnectError> {
        let path = path.into();
        let place = blocking(move || {
            let lock_path = with_suffix(&path, ".lock");
            let lock = File::options().write(true).create(true).truncate(false).open(&lock_path);
            let lock = lock.map_err(|error| file_error("cannot open the lock file", &lock_path, error))?;
            lock.try_lock().map_err(|error| lock_error(&path, error))?;
            Ok(Place { temporary: with_suffix(&path, ".tmp"), path, _lock: lock })
        })
        .await?;
        Ok(Self { place: Arc::new(Mutex::new(place)) })
    }
}

impl FileCheckpointStore {
    /// What the file holds, read without its lock: also while a run uses it, which replaces it as a whole.
    ///
    /// # Errors
    ///
    /// As [`load`](CheckpointStore::load).
    pub async fn peek(
        path: impl Into<PathBuf>,
        connector: &str,
    ) -> Result<Option<SourceOffset>, ConnectError> {
        let (path, connector) = (path.into(), connector.to_owned());
        blocking(move || read(&path, &connector)).await
    }
}

#[async_trait]
impl CheckpointStore for FileCheckpointStore {
    async fn load(&mut self, connector: &str) -> Result<Option<SourceOffset>, ConnectError> {
        let place = Arc::clone(&self.place);
        let connector = connector.to_owned();
        blocking(move || read(&place.lock().unwrap_or_else(PoisonError::into_inner).path, &connector)).await
    }

    async fn save(&mut self, connector: &str, offset: &SourceOffset) -> Result<(), ConnectError> {
        let place = Arc::clone(&self.place);
        let content = encode(connector, offset)?;
        blocking(move || {
            let place = place.lock().unwrap_or_else(PoisonError::into_inner);
            place
                .replace(&content)
                .map_err(|error| file_error("cannot write the checkpoint file", &place.path, error))
        })
        .await
    }
}

impl Place {
    fn replace(&self, content: &[u8]) -> io::Result<()> {
        let mut file = File::create(&self.temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&self.temporary, &self.path)?;
        sync_directory(&self.path)
    }
}

fn read(path: &Path, connector: &str) -> Result<Option<SourceOffset>, ConnectError> {
    match std::fs::read(path) {
        Ok(bytes) => decode(&bytes, connector, path).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error("cannot read the checkpoint file", path, error)),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn encode(connector: &str, offset: &SourceOffset) -> Result<Vec<u8>, ConnectError> {
    let written = Written { format: FORMAT, version: VERSION, connector, offset };
    let mut content = serde_json::to_vec(&written)
        .map_err(|error| ConnectError::bug("the offset cannot be written as JSON").with_source(error))?;
    content.pop();
    let checksum = crc32(&content);
    content.extend_from_slice(format!("{CHECKSUM_MEMBER}{checksum:08x}\"}}\n").as_bytes());
    Ok(content)
}

fn decode(bytes: &[u8], connector: &str, path: &Path) -> Result<SourceOffset, ConnectError> {
    let shown = path.display();
    let damaged = |what: &str| {
        ConnectError::offset(format!("the checkpoint file is {what}: {shown}")).with_fix(format!(
            "restore it from a backup; or, to start from the source's default position instead, move it away: mv '{shown}' '{shown}.bad'"
        ))
    };
    let mut content =
        checked(bytes).ok_or_else(|| damaged("damaged, torn or not a checkpoint file"))?.to_vec();
    content.push(b'}');
    let content: Content = serde_json::from_slice(&content)
        .map_err(|error| damaged("whole but not of a known form").with_source(error))?;
    if content.format != FORMAT {
        return Err(damaged("of another program"));
    }
    if content.version != VERSION {
        let message = format!("the checkpoint file has format version {}: {shown}", content.version);
        let fix = "run the crabka version that wrote it, or a newer one";
        return Err(ConnectError::configuration(message).with_fix(fix));
    }
    if content.connector != connector {
        let message = format!(
            "the checkpoint file is of connector {:?} and not of {connector:?}: {shown}",
            content.connector
        );
        return Err(ConnectError::configuration(message).with_fix("set [checkpoint] path to another file"));
    }
    Ok(content.offset)
}

/// The content before its checksum member, if the checksum holds.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_suffix(b"\"}\n")?;
    let (rest, checksum) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
    let content = rest.strip_suffix(CHECKSUM_MEMBER.as_bytes())?;
    (format!("{:08x}", crc32(content)).as_bytes() == checksum).then_some(content)
}

/// CRC-32 as in zlib and PNG.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
    };
    !bytes.iter().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorClass;

    fn at(n: u64) -> SourceOffset {
        SourceOffset::new([("slot", "orders".into())], [("lsn", n.into())])
    }

    async fn load(path: &Path, connector: &str) -> Result<Option<SourceOffset>, ConnectError> {
        FileCheckpointStore::open(path).await?.load(connector).await
    }

    #[test]
    fn the_checksum_is_the_common_crc32() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn the_content_is_readable_and_byte_stable() {
        let content = String::from_utf8(encode("orders", &at(7)).unwrap()).unwrap();
        assert_eq!(
            content,
            "{\"format\":\"crabka-checkpoint\",\"version\":1,\"connector\":\"orders\",\"offset\":{\"partition\":{\"slot\":\"orders\"},\"position\":{\"lsn\":7}},\"crc32\":\"114b9c02\"}\n"
        );
    }

    #[tokio::test]
    async fn a_missing_file_is_none_and_a_saved_offset_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("orders.checkpoint");
        assert_eq!(load(&path, "orders").await.unwrap(), None);
        let mut store = FileCheckpointStore::open(&path).await.unwrap();
        for n in 1..4 {
            store.save("orders", &at(n)).await.unwrap();
        }
        assert_eq!(store.load("orders").await.unwrap(), Some(at(3)));
        drop(store);
        assert_eq!(load(&path, "orders").await.unwrap(), Some(at(3)));
        assert!(!folder.path().join("orders.checkpoint.tmp").exists());
    }

    #[tokio::test]
    async fn a_crash_before_the_rename_leaves_the_old_offset() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        let mut store = FileCheckpointStore::open(&path).await.unwrap();
        store.save("orders", &at(1)).await.unwrap();
        let newer = encode("orders", &at(2)).unwrap();
        for length in [0, newer.len() / 2, newer.len()] {
            std::fs::write(folder.path().join("checkpoint.tmp"), &newer[..length]).unwrap();
            assert_eq!(store.load("orders").await.unwrap(), Some(at(1)));
        }
        store.save("orders", &at(3)).await.unwrap();
        assert_eq!(store.load("orders").await.unwrap(), Some(at(3)));
    }

    #[tokio::test]
    async fn truncation_at_every_byte_is_an_error_and_no_fresh_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        let whole = encode("orders", &at(7)).unwrap();
        let mut store = FileCheckpointStore::open(&path).await.unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = store.load("orders").await.unwrap_err();
            assert_eq!(error.class(), ErrorClass::LostPosition, "{length}: {error}");
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
            assert!(error.fix().unwrap().contains("mv "), "{error}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(store.load("orders").await.unwrap(), Some(at(7)));
    }

    #[tokio::test]
    async fn every_flipped_bit_is_an_error() {
        let whole = encode("orders", &at(7)).unwrap();
        for index in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[index] ^= 1 << bit;
                decode(&bytes, "orders", Path::new("c")).unwrap_err();
            }
        }
    }

    #[tokio::test]
    async fn foreign_content_is_an_error_that_names_the_file() {
        let sealed = |text: &str| {
            let mut content = text.as_bytes().to_vec();
            let checksum = crc32(&content);
            content.extend_from_slice(format!("{CHECKSUM_MEMBER}{checksum:08x}\"}}\n").as_bytes());
            content
        };
        let offset = r#""offset":{"partition":{},"position":{}}"#;
        let foreign = [
            (b"hello\n".to_vec(), ErrorClass::LostPosition),
            (b"{}\n".to_vec(), ErrorClass::LostPosition),
            (vec![0; 300], ErrorClass::LostPosition),
            (sealed(r#"{"a":1"#), ErrorClass::LostPosition),
            (
                sealed(&format!(r#"{{"format":"other","version":1,"connector":"orders",{offset}"#)),
                ErrorClass::LostPosition,
            ),
            (
                sealed(&format!(r#"{{"format":"{FORMAT}","version":2,"connector":"orders",{offset}"#)),
                ErrorClass::Configuration,
            ),
            (encode("parts", &at(1)).unwrap(), ErrorClass::Configuration),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        for (content, class) in foreign {
            std::fs::write(&path, &content).unwrap();
            let error = load(&path, "orders").await.unwrap_err();
            assert_eq!(error.class(), class, "{error}");
            assert!(error.message().contains(&path.display().to_string()), "{error}");
            assert!(error.fix().is_some(), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), content, "the file was touched");
        }
    }

    #[tokio::test]
    async fn unreadable_places_are_configuration_errors() {
        let folder = tempfile::tempdir().unwrap();
        let error = load(&folder.path().join("missing/checkpoint"), "orders").await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
        let directory = folder.path().join("directory");
        std::fs::create_dir(&directory).unwrap();
        let error = load(&directory, "orders").await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
    }

    #[tokio::test]
    async fn a_second_store_on_the_same_file_is_refused_until_the_first_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        let first = FileCheckpointStore::open(&path).await.unwrap();
        let error = FileCheckpointStore::open(&path).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Configuration);
        assert!(error.to_string().contains("in use by another process"), "{error}");
        let peeked = FileCheckpointStore::peek(&path, "orders").await.unwrap();
        assert_eq!(peeked, None, "reading needs no lock");
        drop(first);
        FileCheckpointStore::open(&path).await.unwrap();
    }
}
