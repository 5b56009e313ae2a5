//! Lines of JSON into a file or onto standard output.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;

use super::Sink;
use super::line_format::{LINE_START, write_line};
use crate::blocking::{blocking, file_error, lock_error, sync_directory};
use crate::{ConnectError, ConnectRecord, SourceOffset};

/// How much is read at a time while looking backwards for the last line break.
const SCAN_BYTES: usize = 64 * 1024;

/// Writes each record as one line of JSON; [`write_line`] describes the line.
///
/// A batch is encoded in memory and written by `commit`.
///
/// # Durability
///
/// Over a file, `commit` returns after fdatasync. After a crash the file may end in a torn line: it is cut away at the
/// next start, and the records of an unfinished batch are delivered again. Over a writer such as standard output,
/// `commit` returns when the writer took and flushed the lines, and what its reader does with them is not known.
pub struct LineSink {
    /// Taken while a blocking thread writes; gone for good when that failed.
    target: Option<Target>,
    lines: Vec<u8>,
}

enum Target {
    File { file: File, path: PathBuf, length: u64 },
    Writer(Box<dyn Write + Send>),
}

impl LineSink {
    /// Appends to the file, which is created if it is missing and locked against a second writer.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] of the configuration class when the file cannot be opened, is in use by another process, or
    /// ends in something that this sink did not write; of the transient class when reading or writing it failed.
    pub async fn append(path: impl Into<PathBuf>) -> Result<Self, ConnectError> {
        let path = path.into();
        let target = blocking(move || open_file(path)).await?;
        Ok(Self { target: Some(target), lines: Vec::new() })
    }

    /// Writes to standard output.
    pub fn stdout() -> Self {
        Self::writer(io::stdout())
    }

    /// Writes to `writer`, on a blocking thread.
    pub fn writer(writer: impl Write + Send + 'static) -> Self {
        Self { target: Some(Target::Writer(Box::new(writer))), lines: Vec::new() }
    }
}

#[async_trait]
impl Sink<Bytes, Bytes> for LineSink {
    async fn begin(&mut self) -> Result<(), ConnectError> {
        self.lines.clear();
        Ok(())
    }

    async fn put(&mut self, records: &mut Vec<ConnectRecord<Bytes, Bytes>>) -> Result<(), ConnectError> {
        for record in records.drain(..) {
            write_line(&record, &mut self.lines);
        }
        Ok(())
    }

    async fn commit(&mut self, _offset: Option<&SourceOffset>) -> Result<(), ConnectError> {
        let Some(mut target) = self.target.take() else {
            return Err(ConnectError::bug("a line sink was used after it failed"));
        };
        let mut lines = std::mem::take(&mut self.lines);
        let (target, lines) = blocking(move || {
            target.write(&lines)?;
            lines.clear();
            Ok((target, lines))
        })
        .await?;
        self.target = Some(target);
        self.lines = lines;
        Ok(())
    }

    async fn abort(&mut self) -> Result<(), ConnectError> {
        self.lines.clear();
        Ok(())
    }

    fn wants_record_offsets(&self) -> bool {
        true
    }
}

impl Target {
    fn write(&mut self, lines: &[u8]) -> Result<(), ConnectError> {
        match self {
            Self::File { file, path, length } => {
                if let Err(error) = file.write_all(lines).and_then(|()| file.sync_data()) {
                    // Best effort: what stays would be a repetition or a torn line, and both are dealt with.
                    let _stays_longer = file.set_len(*length);
                    return Err(file_error("cannot append to the file", path, error));
                }
                *length = length.saturating_add(u64::try_from(lines.len()).unwrap_or(u64::MAX));
                Ok(())
            }
            Self::Writer(writer) => writer.write_all(lines).and_then(|()| writer.flush()).map_err(|error| {
                let closed = error.kind() == io::ErrorKind::BrokenPipe;
                let message =
                    if closed { "the reader of the lines is gone" } else { "cannot write the lines" };
                ConnectError::configuration(message).with_source(error)
            }),
        }
    }
}

fn open_file(path: PathBuf) -> Result<Target, ConnectError> {
    let failed = |error| file_error("cannot open the file", &path, error);
    let mut file = File::options().read(true).append(true).create(true).open(&path).map_err(failed)?;
    file.try_lock().map_err(|error| lock_error(&path, error))?;
    let length = cut_torn_line(&mut file, &path)?;
    file.sync_all().map_err(failed)?;
    sync_directory(&path).map_err(failed)?;
    Ok(Target::File { file, path, length })
}

/// Cuts away what stands behind the last line break and returns the length that stays.
fn cut_torn_line(file: &mut File, path: &Path) -> Result<u64, ConnectError> {
    let failed = |error| file_error("cannot look for a torn line in the file", path, error);
    let length = file.metadata().map_err(failed)?.len();
    let whole = end_of_last_line(file, length).map_err(failed)?;
    if whole == length {
        return Ok(length);
    }
    let mut start = Vec::new();
    file.seek(SeekFrom::Start(whole)).map_err(failed)?;
    let start_length = u64::try_from(LINE_START.len()).unwrap_or(u64::MAX);
    (&mut *file).take(start_length).read_to_end(&mut start).map_err(failed)?;
    // A file system may also leave zeros where a write was lost in a crash.
    let ours = LINE_START.starts_with(&start) || start.iter().all(|byte| *byte == 0);
    if !ours {
        let error = ConnectError::configuration(format!(
            "the file ends in something that crabka did not write: {}",
            path.display()
        ));
        return Err(error.with_fix("set [sink] path to another file"));
    }
    file.set_len(whole).map_err(failed)?;
    tracing::warn!(
        path = %path.display(),
        bytes = length - whole,
        "cut a torn line from the end of the file: its record will be delivered again"
    );
    Ok(whole)
}

/// Length up to and including the last line break.
fn end_of_last_line(file: &mut File, length: u64) -> io::Result<u64> {
    let mut end = length;
    let mut chunk = Vec::with_capacity(SCAN_BYTES);
    while end > 0 {
        let start = end.saturating_sub(u64::try_from(SCAN_BYTES).unwrap_or(u64::MAX));
        chunk.clear();
        file.seek(SeekFrom::Start(start))?;
        (&mut *file).take(end - start).read_to_end(&mut chunk)?;
        if let Some(index) = chunk.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + u64::try_from(index).unwrap_or(u64::MAX) + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::ErrorClass;

    fn records(values: &[&str]) -> Vec<ConnectRecord<Bytes, Bytes>> {
        let record = |value: &&str| ConnectRecord::new(None, Some(Bytes::copy_from_slice(value.as_bytes())));
        values.iter().map(record).collect()
    }

    async fn batch(sink: &mut LineSink, values: &[&str]) -> Result<(), ConnectError> {
        sink.begin().await?;
        sink.put(&mut records(values)).await?;
        sink.commit(None).await
    }

    fn values(file: &[u8]) -> Vec<String> {
        let value =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["value"].to_string();
        std::str::from_utf8(file).unwrap().lines().map(value).collect()
    }

    #[tokio::test]
    async fn committed_batches_are_appended_and_aborted_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let mut sink = LineSink::append(&path).await.unwrap();
        batch(&mut sink, &["1", "2"]).await.unwrap();
        sink.begin().await.unwrap();
        sink.put(&mut records(&["3"])).await.unwrap();
        sink.abort().await.unwrap();
        batch(&mut sink, &["4"]).await.unwrap();
        drop(sink);
        let mut sink = LineSink::append(&path).await.unwrap();
        batch(&mut sink, &["5"]).await.unwrap();
        assert_eq!(values(&std::fs::read(&path).unwrap()), ["1", "2", "4", "5"]);
    }

    #[tokio::test]
    async fn a_line_torn_at_any_byte_is_cut_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let mut sink = LineSink::append(&path).await.unwrap();
        batch(&mut sink, &["1", "2"]).await.unwrap();
        drop(sink);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let mut sink = LineSink::append(&path).await.unwrap();
            batch(&mut sink, &["9"]).await.unwrap();
            drop(sink);
            let kept = whole[..length].iter().filter(|byte| **byte == b'\n').count();
            let mut expected: Vec<&str> = ["1", "2"][..kept].to_vec();
            expected.push("9");
            assert_eq!(values(&std::fs::read(&path).unwrap()), expected, "torn at byte {length}");
        }
    }

    #[tokio::test]
    async fn zeros_left_by_the_file_system_and_long_torn_lines_are_cut_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let mut long = LINE_START.to_vec();
        long.resize(3 * SCAN_BYTES + 7, b'x');
        for tail in [vec![0; 5000], long] {
            let mut content = b"{\"topic\":null,\"value\":1}\n".to_vec();
            content.extend_from_slice(&tail);
            std::fs::write(&path, content).unwrap();
            drop(LineSink::append(&path).await.unwrap());
            assert_eq!(values(&std::fs::read(&path).unwrap()), ["1"]);
        }
    }

    #[tokio::test]
    async fn somebody_elses_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "first\nno line break at the end").unwrap();
        let error = LineSink::append(&path).await.err().unwrap();
        assert_eq!(error.class(), ErrorClass::Configuration);
        assert!(error.to_string().contains("notes.txt"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"first\nno line break at the end");
    }

    #[tokio::test]
    async fn a_second_writer_and_a_missing_folder_are_configuration_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let _first = LineSink::append(&path).await.unwrap();
        let error = LineSink::append(&path).await.err().unwrap();
        assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
        assert!(error.to_string().contains("in use by another process"), "{error}");
        let error = LineSink::append(folder.path().join("no/out.jsonl")).await.err().unwrap();
        assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
        assert!(error.chain().contains("no/out.jsonl"), "{}", error.chain());
    }

    #[tokio::test]
    async fn a_full_disk_is_transient_and_leaves_no_half_batch() {
        if !Path::new("/dev/full").exists() {
            return;
        }
        let full = File::options().append(true).open("/dev/full").unwrap();
        let target = Target::File { file: full, path: PathBuf::from("/dev/full"), length: 0 };
        let mut sink = LineSink { target: Some(target), lines: Vec::new() };
        let error = batch(&mut sink, &["1"]).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Transient, "{}", error.chain());
        assert_eq!(batch(&mut sink, &["1"]).await.unwrap_err().class(), ErrorClass::Bug);
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_writer_gets_the_lines_and_a_closed_one_stops_the_run() {
        let written = Shared::default();
        let mut sink = LineSink::writer(written.clone());
        batch(&mut sink, &["1"]).await.unwrap();
        batch(&mut sink, &["2"]).await.unwrap();
        assert_eq!(values(&written.0.lock().unwrap()), ["1", "2"]);
        let error = batch(&mut LineSink::writer(Closed), &["1"]).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Configuration);
        let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<io::Error>());
        assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::BrokenPipe));
    }
}
