//! Options as they were written, each with its place: the file first, then what flags set over it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::environment::{Lookup, expand};
use super::error::{ConfigError, OptionError};
use super::option::path;
use super::value::Raw;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody gave one.
    Default,
    /// A line of a file.
    File {
        /// Path as it was given.
        path: Arc<str>,
        /// Line, from 1.
        line: usize,
    },
    /// A flag of the command line.
    Flag(&'static str),
}

impl Origin {
    /// Line in the file; flags come after the file, and what nobody gave after that.
    pub(crate) fn line(&self) -> usize {
        match self {
            Self::File { line, .. } => *line,
            Self::Flag(_) => usize::MAX - 1,
            Self::Default => usize::MAX,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One value with its place.
pub(crate) struct Entry {
    pub(crate) raw: Raw,
    pub(crate) origin: Origin,
}

/// All values by section and option.
#[derive(Default)]
pub(crate) struct Entries(BTreeMap<(String, String), Entry>);

impl Entries {
    /// Reads TOML, expanding `${NAME}` in its strings.
    pub(crate) fn from_toml(text: &str, file: &Path, lookup: Lookup<'_>) -> Result<Self, ConfigError> {
        let place = Place { text, path: file.display().to_string().into() };
        // The parser's own rendering quotes the line, which may hold a secret: only message and place are used.
        let table = DeTable::parse(text).map_err(|error| {
            ConfigError::file(place.origin(error.span().map_or(0, |span| span.start)), error.message())
        })?;
        let mut entries = Self::default();
        let mut errors = Vec::new();
        for (key, value) in table.get_ref() {
            let name = key.get_ref().as_ref();
            match value.get_ref() {
                DeValue::Table(section) => {
                    for (key, value) in section {
                        let (option, at) = (key.get_ref().as_ref(), key.span().start);
                        entries.read(name, option, value.get_ref(), &place, at, lookup, &mut errors);
                    }
                    if section.is_empty() {
                        entries.note_section(name, place.origin(key.span().start));
                    }
                }
                scalar => entries.read("", name, scalar, &place, key.span().start, lookup, &mut errors),
            }
        }
        if errors.is_empty() { Ok(entries) } else { Err(ConfigError::new(errors)) }
    }

    #[expect(clippy::too_many_arguments, reason = "the place of one value and where errors go")]
    fn read(
        &mut self,
        section: &str,
        option: &str,
        value: &DeValue<'_>,
        place: &Place<'_>,
        at: usize,
        lookup: Lookup<'_>,
        errors: &mut Vec<OptionError>,
    ) {
        let origin = place.origin(at);
        match raw(value, lookup) {
            Ok(raw) => {
                self.0.insert((section.to_owned(), option.to_owned()), Entry { raw, origin });
            }
            Err(message) => errors.push(OptionError { path: path(section, option), origin, message }),
        }
    }

    /// An empty section is still a section that must be known: it is kept as an option without a name.
    fn note_section(&mut self, section: &str, origin: Origin) {
        let raw = Raw::Map(Vec::new());
        self.0.insert((section.to_owned(), String::new()), Entry { raw, origin });
    }

    /// Sets `section.option` to the text of a flag. What follows a second dot names an entry of a table.
    pub(crate) fn set(&mut self, name: &str, text: &str, flag: &'static str) {
        let (section, option) = name.split_once('.').unwrap_or(("", name));
        let origin = Origin::Flag(flag);
        let text = Raw::Flag(text.to_owned());
        let Some((table, entry)) = option.split_once('.') else {
            self.0.insert((section.to_owned(), option.to_owned()), Entry { raw: text, origin });
            return;
        };
        let slot = self.0.entry((section.to_owned(), table.to_owned()));
        let slot = slot.or_insert_with(|| Entry { raw: Raw::Map(Vec::new()), origin: origin.clone() });
        if let Raw::Map(entries) = &mut slot.raw {
            entries.push((entry.to_owned(), text));
        } else {
            slot.raw = Raw::Map(vec![(entry.to_owned(), text)]);
            slot.origin = origin;
        }
    }

    /// Sets `section.option` unless it was given.
    pub(crate) fn preset(&mut self, section: &str, option: &str, text: &str, flag: &'static str) {
        let slot = self.0.entry((section.to_owned(), option.to_owned()));
        slot.or_insert_with(|| Entry { raw: Raw::Flag(text.to_owned()), origin: Origin::Flag(flag) });
    }

    /// Takes a value out.
    pub(crate) fn take(&mut self, section: &str, option: &str) -> Option<Entry> {
        self.0.remove(&(section.to_owned(), option.to_owned()))
    }

    /// What nobody took, with its place.
    pub(crate) fn left(&mut self) -> Vec<(String, String, Origin)> {
        let left = std::mem::take(&mut self.0);
        left.into_iter().map(|((section, option), entry)| (section, option, entry.origin)).collect()
    }
}

struct Place<'a> {
    text: &'a str,
    path: Arc<str>,
}

impl Place<'_> {
    fn origin(&self, at: usize) -> Origin {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Origin::File { path: Arc::clone(&self.path), line }
    }
}

fn raw(value: &DeValue<'_>, lookup: Lookup<'_>) -> Result<Raw, String> {
    Ok(match value {
        DeValue::String(text) => Raw::Text(expand(text, lookup)?),
        DeValue::Integer(number) => Raw::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok()),
        DeValue::Float(number) => Raw::Float(number.as_str().to_owned()),
        DeValue::Boolean(value) => Raw::Boolean(*value),
        DeValue::Datetime(_) => Raw::Datetime,
        DeValue::Array(items) => {
            Raw::List(items.iter().map(|item| raw(item.get_ref(), lookup)).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => {
            let mut entries = Vec::new();
            flatten("", table, lookup, &mut entries)?;
            Raw::Map(entries)
        }
    })
}

/// Writes nested tables as one, names joined by dots: `linger.ms = 5` in TOML is a table in a table.
fn flatten(
    prefix: &str,
    table: &DeTable<'_>,
    lookup: Lookup<'_>,
    entries: &mut Vec<(String, Raw)>,
) -> Result<(), String> {
    for (key, value) in table {
        let name = path(prefix, key.get_ref());
        match value.get_ref() {
            DeValue::Table(table) => flatten(&name, table, lookup, entries)?,
            value => entries.push((name, raw(value, lookup)?)),
        }
    }
    Ok(())
}
