//! A sink of your own: the newest row of each key in one JSON file, with the position in the same file.
//!
//! ```sh
//! cargo run -p crabka-examples --example custom_sink -- postgres://app@localhost/shop /tmp/orders.json
//! ```
//!
//! Rows and position are replaced by one rename, so each change counts exactly once, whatever crashes: a sink that
//! stores the offset itself needs no checkpoint store. A third argument ends it after so many records.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use crabka_connect::{ConnectError, ConnectRecord, ConnectorRuntime, Sink, Source, SourceOffset};
use crabka_connect_postgres::envelope::{FlatConverter, FlatOptions};
use crabka_connect_postgres::{PostgresSource, PostgresSourceConfig, SourceFigures};
use serde_json::{Value, json};

/// Rows by key. A heartbeat is a record too: it carries an idle position, and has a topic of its own.
struct NewestRows {
    path: PathBuf,
    rows: BTreeMap<String, Value>,
    offset: Option<SourceOffset>,
}

fn failed(doing: &str, path: &Path, error: impl Error + Send + Sync + 'static) -> ConnectError {
    ConnectError::transient(format!("{doing}: {}", path.display())).with_source(error)
}

impl NewestRows {
    fn open(path: PathBuf) -> Result<Self, ConnectError> {
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self { path, rows: BTreeMap::new(), offset: None });
            }
            Err(error) => return Err(failed("cannot be read", &path, error)),
        };
        // A file that is not ours is an error and never a fresh start.
        let (rows, offset) = serde_json::from_slice(&text).map_err(|error| {
            ConnectError::offset(format!("not a file of this sink: {}", path.display())).with_source(error)
        })?;
        Ok(Self { path, rows, offset })
    }
}

#[async_trait]
impl Sink<Bytes, Bytes> for NewestRows {
    async fn put(&mut self, records: &mut Vec<ConnectRecord<Bytes, Bytes>>) -> Result<(), ConnectError> {
        for record in records.drain(..) {
            let is_row = record.topic.as_deref().is_some_and(|topic| topic.ends_with(".public.orders"));
            let (true, Some(key)) = (is_row, record.key) else { continue };
            let key = String::from_utf8_lossy(&key).into_owned();
            match record.value {
                Some(value) => {
                    let row = serde_json::from_slice(&value)
                        .map_err(|error| ConnectError::data("a row is not JSON").with_source(error))?;
                    self.rows.insert(key, row);
                }
                // A tombstone: the row is gone.
                None => drop(self.rows.remove(&key)),
            }
        }
        Ok(())
    }

    async fn commit(&mut self, offset: Option<&SourceOffset>) -> Result<(), ConnectError> {
        self.offset = offset.cloned().or(self.offset.take());
        let text = json!([self.rows, self.offset]).to_string();
        let (path, temporary) = (self.path.clone(), self.path.with_extension("tmp"));
        let written = tokio::task::spawn_blocking(move || {
            let mut file = std::fs::File::create(&temporary)?;
            std::io::Write::write_all(&mut file, text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&temporary, &path)?;
            // The rename counts once the folder is synced too.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        });
        match written.await {
            Ok(written) => written.map_err(|error| failed("cannot be written", &self.path, error)),
            Err(error) => Err(ConnectError::bug("the writing thread ended").with_source(error)),
        }
    }

    fn stores_offset(&self) -> bool {
        true
    }

    async fn restore_offset(&mut self) -> Result<Option<SourceOffset>, ConnectError> {
        Ok(self.offset.clone())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("first argument: the server's URL")?;
    let path = PathBuf::from(arguments.next().ok_or("second argument: the file")?);
    let end_after: u64 = arguments.next().map_or(Ok(u64::MAX), |number| number.parse())?;

    let mut config = PostgresSourceConfig::new("custom_sink", url.parse()?)?;
    config.tables = vec!["public.orders".parse()?];
    // For how long another instance reads the slot is kept in them, over all sources of the run.
    let figures = Arc::<SourceFigures>::default();
    let runtime = ConnectorRuntime::builder("custom_sink")
        .source(move || {
            let source = PostgresSource::new(config.clone());
            let source = source.map(|source| source.with_figures(Arc::clone(&figures)));
            std::future::ready(source.map(|source| Box::new(source) as Box<dyn Source<_, _>>))
        })
        .sink(move || {
            std::future::ready(
                NewestRows::open(path.clone()).map(|sink| Box::new(sink) as Box<dyn Sink<_, _>>),
            )
        })
        .converter(FlatConverter::new(FlatOptions::default()))
        .build()?;

    let handle = runtime.handle();
    let run = tokio::spawn(runtime.run());
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = handle.until(|status| status.records_acknowledged >= end_after) => {}
    }
    handle.stop();
    run.await??;
    Ok(())
}
