//! The configuration: one TOML file, and the flags that set over it.
//!
//! Each option is declared once, in [`sections`]; parsing, `crabka config reference` and `docs/CONFIG.md` come
//! from that declaration. Every error names the option and its place, and all errors are found in one go.

mod entries;
mod environment;
mod error;
#[cfg(test)]
mod fuzz;
mod option;
mod reference;
mod secret;
mod sections;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) use entries::Entries;
pub(crate) use error::ConfigError;
pub(crate) use reference::reference;
pub(crate) use value::{Properties, quoted};

use entries::Origin;
use option::{Reader, Shown};
use sections::GROUPS;
pub(crate) use sections::{
    AbsentColumns, Binary, Checkpoint, CheckpointStore, CleanupPolicy, Compression, DebeziumEnvelope,
    Envelope, EnvelopeType, FileCheckpoint, FileSink, FlatEnvelope, Http, KafkaCheckpoint, KafkaSink,
    PostgresCheckpoint, Rejected, Runtime, Sink, SinkType, SkippedOperations, Source, Top,
};

/// What one run is configured to do.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) envelope: EnvelopeConfig,
    pub(crate) sink: SinkConfig,
    pub(crate) checkpoint: CheckpointConfig,
    pub(crate) runtime: Runtime,
    pub(crate) http: Http,
    shown: Vec<Shown>,
}

/// An envelope with its own options.
#[derive(Debug, Clone)]
pub(crate) enum EnvelopeConfig {
    Debezium(DebeziumEnvelope),
    Flat(FlatEnvelope),
}

impl EnvelopeConfig {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(match Envelope::read(reader)?.r#type {
            EnvelopeType::Debezium => Self::Debezium(DebeziumEnvelope::read(reader)?),
            EnvelopeType::Flat => Self::Flat(FlatEnvelope::read(reader)?),
        })
    }
}

/// A sink with its own options.
#[derive(Debug, Clone)]
pub(crate) enum SinkConfig {
    Kafka(KafkaSink),
    File(FileSink),
    Stdout,
    Null,
}

impl SinkConfig {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(match Sink::read(reader)?.r#type {
            SinkType::Kafka => Self::Kafka(KafkaSink::read(reader)?),
            SinkType::File => Self::File(FileSink::read(reader)?),
            SinkType::Stdout => Self::Stdout,
            SinkType::Null => Self::Null,
        })
    }
}

/// A checkpoint store with its own options.
#[derive(Debug, Clone)]
pub(crate) enum CheckpointConfig {
    Kafka(KafkaCheckpoint),
    File(FileCheckpoint),
    Postgres(PostgresCheckpoint),
    Memory,
}

impl CheckpointConfig {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(match Checkpoint::read(reader)?.store {
            CheckpointStore::Kafka => Self::Kafka(KafkaCheckpoint::read(reader)?),
            CheckpointStore::File => Self::File(FileCheckpoint::read(reader)?),
            CheckpointStore::Postgres => Self::Postgres(PostgresCheckpoint::read(reader)?),
            CheckpointStore::Memory => Self::Memory,
        })
    }
}

/// Values that follow from other options, by section and option.
pub(crate) type Follows = BTreeMap<(&'static str, &'static str), String>;

/// Where the configuration comes from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    /// `-c`.
    pub(crate) file: Option<PathBuf>,
    /// `--set`, in order.
    pub(crate) set: Vec<(String, String)>,
}

impl Config {
    /// Reads the file, and what flags set over it.
    pub(crate) fn load(given: &Given) -> Result<Self, ConfigError> {
        let mut entries = match &given.file {
            Some(file) => {
                let text = std::fs::read_to_string(file).map_err(|error| {
                    let path = file.display();
                    ConfigError::file(
                        Origin::Default,
                        format!("configuration file cannot be read: {path}: {error}"),
                    )
                })?;
                Entries::from_toml(&text, file, &|name| std::env::var(name).ok())?
            }
            None => Entries::default(),
        };
        for (name, value) in &given.set {
            entries.set(name, value, "--set");
        }
        Self::from_entries(entries)
    }

    /// Gives each entry to its option.
    pub(crate) fn from_entries(entries: Entries) -> Result<Self, ConfigError> {
        let mut reader = Reader::new(entries, GROUPS);
        // Every section is read before any error ends it: all findings are told at once.
        let parts = (
            Top::read(&mut reader),
            Source::read(&mut reader),
            EnvelopeConfig::read(&mut reader),
            SinkConfig::read(&mut reader),
            CheckpointConfig::read(&mut reader),
            Runtime::read(&mut reader),
            Http::read(&mut reader),
        );
        let shown = reader.finish().map_err(ConfigError::new)?;
        match parts {
            (
                Some(top),
                Some(source),
                Some(envelope),
                Some(sink),
                Some(checkpoint),
                Some(runtime),
                Some(http),
            ) => Ok(Self { name: top.name, source, envelope, sink, checkpoint, runtime, http, shown }),
            _ => Err(ConfigError::file(Origin::Default, "the configuration could not be read")),
        }
    }

    /// The configuration in effect as TOML, secrets redacted, each value with where it comes from. `follows` has the
    /// values in effect of options that are not set, by section and option.
    pub(crate) fn show(&self, follows: &Follows) -> String {
        let mut text = String::new();
        let mut section = "";
        for shown in &self.shown {
            if shown.section != section {
                section = shown.section;
                text.push_str(&format!("\n[{section}]\n"));
            }
            let (name, origin) = (shown.name, &shown.origin);
            let followed = follows.get(&(shown.section, name));
            match (&shown.value, followed, shown.means) {
                (Some(value), ..) => text.push_str(&format!("{name} = {value}  # {origin}\n")),
                (None, Some(value), Some(means)) => {
                    text.push_str(&format!("{name} = {}  # {origin}: {means}\n", quoted(value)));
                }
                (None, _, Some(means)) => text.push_str(&format!("# {name} is not set: {means}\n")),
                (None, ..) => text.push_str(&format!("# {name} is not set\n")),
            }
        }
        text
    }
}

/// The word nearest to `text`, if one is near enough to be what was meant.
fn nearest<'a>(text: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    words
        .map(|word| (strsim::normalized_damerau_levenshtein(text, word), word))
        .filter(|(similarity, _)| *similarity >= 0.5)
        .max_by(|(left, _), (right, _)| left.total_cmp(right))
        .map(|(_, word)| word)
}
