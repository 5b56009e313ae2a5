//! The one declaration of an option, and how it is read.
//!
//! `options!` declares a group of options: from it come the typed struct, the reading of the configuration, and
//! the reference. An option that belongs to one kind of sink, envelope or checkpoint store only is in a group
//! of its own, so it cannot be given where it would have no effect.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::entries::{Entries, Origin};
use super::error::OptionError;
use super::nearest;
use super::value::{OptionValue, ValueError};

/// What an option is when it is not given.
pub(crate) enum Preset<T> {
    /// It must be given.
    Required,
    /// This value.
    Is(T),
    /// This value stands for something that depends on other options: the words say for what.
    Means(T, &'static str),
}

/// The part of a declaration that does not depend on the type.
pub(crate) struct OptionSpec {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) type_name: &'static str,
    pub(crate) words: &'static [&'static str],
    /// The default in TOML or in words; `None` for an option that must be given.
    pub(crate) default: fn() -> Option<String>,
    /// The allowed range in words.
    pub(crate) range: Option<fn() -> String>,
}

impl OptionSpec {
    /// The unit, which the end of the name says.
    pub(crate) fn unit(&self) -> Option<&'static str> {
        const UNITS: &[(&str, &str)] = &[
            ("_ms", "milliseconds"),
            ("_bytes", "bytes"),
            ("_bytes_max", "bytes"),
            ("_records", "records"),
            ("_records_max", "records"),
            ("_attempts", "attempts"),
            ("_digits", "digits"),
            ("partitions", "partitions"),
            ("replication_factor", "replicas"),
        ];
        if self.type_name != "integer" {
            return None;
        }
        UNITS.iter().find(|(suffix, _)| self.name.ends_with(suffix)).map(|(_, unit)| *unit)
    }

    /// The type as it is called in the reference and in errors.
    pub(crate) fn type_words(&self) -> String {
        match (self.words, self.unit()) {
            ([], Some(unit)) => format!("{}, {unit}", self.type_name),
            ([], None) => self.type_name.to_owned(),
            (words, _) => format!("one of {}", words.join(", ")),
        }
    }
}

/// A group of options of one section.
pub(crate) struct Group {
    /// Section name; empty for the top of the file.
    pub(crate) section: &'static str,
    /// The option and the word that select this group; `None` when it always applies.
    pub(crate) only: Option<(&'static str, &'static str)>,
    pub(crate) doc: &'static str,
    pub(crate) options: &'static [OptionSpec],
}

impl Group {
    /// The full name of an option.
    pub(crate) fn path(&self, option: &str) -> String {
        path(self.section, option)
    }
}

/// Section and option joined.
pub(crate) fn path(section: &str, option: &str) -> String {
    if section.is_empty() { option.to_owned() } else { format!("{section}.{option}") }
}

/// An option with the value it has, for `config show`.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) section: &'static str,
    pub(crate) name: &'static str,
    /// TOML; `None` when there is no value.
    pub(crate) value: Option<String>,
    /// What stands for an option that is not set, in words.
    pub(crate) means: Option<&'static str>,
    pub(crate) origin: Origin,
}

/// Takes options out of the entries and collects every error.
pub(crate) struct Reader<'a> {
    entries: Entries,
    groups: &'a [&'static Group],
    applied: Vec<&'static Group>,
    shown: Vec<Shown>,
    errors: Vec<OptionError>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(entries: Entries, groups: &'a [&'static Group]) -> Self {
        Self { entries, groups, applied: Vec::new(), shown: Vec::new(), errors: Vec::new() }
    }

    /// Says that this group's options may be given.
    pub(crate) fn apply(&mut self, group: &'static Group) {
        self.applied.push(group);
    }

    /// Reads one option. `None` means that an error was noted.
    pub(crate) fn option<T: OptionValue>(
        &mut self,
        group: &'static Group,
        name: &'static str,
        preset: Preset<T>,
        check: impl FnOnce(&T) -> Result<(), String>,
    ) -> Option<T> {
        let path = group.path(name);
        let Some(entry) = self.entries.take(group.section, name) else {
            return self.absent(group, name, preset);
        };
        let outcome = match T::read(&entry.raw) {
            Ok(value) => check(&value).map(|()| value),
            Err(ValueError::Value(message)) => Err(message),
            Err(ValueError::Type(found)) => {
                let spec = group.options.iter().find(|spec| spec.name == name);
                let expected = spec.map(OptionSpec::type_words).unwrap_or_default();
                Err(format!("expected {expected}, found {found}"))
            }
        };
        match outcome {
            Ok(value) => {
                let shown = value.shown();
                let (section, origin) = (group.section, entry.origin);
                self.shown.push(Shown { section, name, value: shown, means: None, origin });
                Some(value)
            }
            Err(message) => {
                self.errors.push(OptionError { path, origin: entry.origin, message });
                None
            }
        }
    }

    fn absent<T: OptionValue>(
        &mut self,
        group: &'static Group,
        name: &'static str,
        preset: Preset<T>,
    ) -> Option<T> {
        let (value, means) = match preset {
            Preset::Is(value) => (value, None),
            Preset::Means(value, words) => (value, Some(words)),
            Preset::Required => {
                let message = "must be given".to_owned();
                self.errors.push(OptionError { path: group.path(name), origin: Origin::Default, message });
                return None;
            }
        };
        let (section, shown) = (group.section, value.shown());
        self.shown.push(Shown { section, name, value: shown, means, origin: Origin::Default });
        Some(value)
    }

    /// Turns what is left over into errors, and ends. Errors come in the order of the file.
    pub(crate) fn finish(mut self) -> Result<Vec<Shown>, Vec<OptionError>> {
        let mut left = self.entries.left();
        left.sort_by_key(|(_, _, origin)| origin.line());
        let mut told = Vec::new();
        for (section, name, origin) in left {
            let known = self.groups.iter().any(|group| group.section == section);
            // One finding for a section that is not known, and none for options of a kind that could not be read.
            if (!known && told.contains(&section)) || self.depends_on_an_error(&section, &name) {
                continue;
            }
            if let Some(message) = self.unknown(&section, &name) {
                let path = if known { path(&section, &name) } else { format!("[{section}]") };
                self.errors.push(OptionError { path, origin, message });
            }
            told.push(section);
        }
        self.errors.sort_by_key(|error| error.origin.line());
        if self.errors.is_empty() { Ok(self.shown) } else { Err(self.errors) }
    }

    fn depends_on_an_error(&self, section: &str, name: &str) -> bool {
        let declares = |group: &&&Group| group.options.iter().any(|option| option.name == name);
        let mut here = self.groups.iter().filter(|group| group.section == section).filter(declares);
        here.any(|group| {
            let selector = group.only.map(|(selector, _)| path(section, selector));
            selector.is_some_and(|selector| self.errors.iter().any(|error| error.path == selector))
        })
    }

    /// What is wrong with an option that no group took; `None` for an empty section that is known.
    fn unknown(&self, section: &str, name: &str) -> Option<String> {
        let in_section = || self.groups.iter().filter(|group| group.section == section);
        if in_section().next().is_none() {
            let sections = self.groups.iter().map(|group| group.section).filter(|name| !name.is_empty());
            return Some(match nearest(section, sections) {
                Some(known) => format!("unknown section; did you mean [{known}]?"),
                None => format!("unknown section; there are {}", section_names(self.groups)),
            });
        }
        if name.is_empty() {
            return None;
        }
        let declares = |group: &&&'static Group| group.options.iter().any(|option| option.name == name);
        let here: Vec<_> = in_section().filter(declares).filter_map(|group| group.only).collect();
        if let Some((selector, _)) = here.first() {
            let words: Vec<String> = here.iter().map(|(_, word)| format!("\"{word}\"")).collect();
            let selector = path(section, selector);
            return Some(format!(
                "has no effect here: it is an option of {selector} = {}",
                words.join(" or ")
            ));
        }
        // The nearest name here comes first: an equal name elsewhere may be far from what was meant.
        let known = self.applied.iter().filter(|group| group.section == section);
        let known = known.flat_map(|group| group.options.iter().map(|option| option.name));
        if let Some(known) = nearest(name, known) {
            return Some(format!("unknown option; did you mean {}?", path(section, known)));
        }
        Some(match self.groups.iter().find(declares) {
            Some(group) => format!("unknown option here; did you mean {}?", group.path(name)),
            None => "unknown option; `crabka config reference` prints every option".to_owned(),
        })
    }
}

fn section_names(groups: &[&'static Group]) -> String {
    let mut names: Vec<String> = Vec::new();
    for group in groups.iter().filter(|group| !group.section.is_empty()) {
        let name = format!("[{}]", group.section);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

/// Refuses a number outside its range.
pub(crate) fn in_range<T: PartialOrd + Display>(value: &T, range: &RangeInclusive<T>) -> Result<(), String> {
    if range.contains(value) { Ok(()) } else { Err(format!("must be {}: {value}", range_words(range))) }
}

/// A range in words.
pub(crate) fn range_words<T: Display>(range: &RangeInclusive<T>) -> String {
    format!("from {} to {}", range.start(), range.end())
}

/// The default as the reference prints it.
pub(crate) fn preset_words<T: OptionValue>(preset: Preset<T>) -> Option<String> {
    match preset {
        Preset::Required => None,
        Preset::Is(value) => {
            Some(value.shown().map_or_else(|| "none".to_owned(), |text| format!("`{text}`")))
        }
        Preset::Means(_, words) => Some(words.to_owned()),
    }
}

/// A field's name without the `r#` of a raw identifier.
pub(crate) const fn plain(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

/// Declares a group of options.
macro_rules! options {
    (
        $(#[doc = $group_doc:literal])+
        $group:ident in $section:literal $(only $selector:literal = $word:literal)? {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $preset:expr $(, in $range:expr)? $(, check $check:expr)?;
            )*
        }
    ) => {
        $(#[doc = $group_doc])+
        #[derive(Debug, Clone)]
        pub(crate) struct $group {
            $($(#[doc = $doc])+ pub(crate) $field: $type,)*
        }

        impl $group {
            /// The declaration.
            pub(crate) const GROUP: &'static $crate::config::option::Group = &$crate::config::option::Group {
                section: $section,
                only: $crate::config::option::options!(@only $($selector = $word)?),
                doc: concat!($($group_doc, "\n"),+),
                options: &[$(
                    $crate::config::option::OptionSpec {
                        name: $crate::config::option::plain(stringify!($field)),
                        doc: concat!($($doc, "\n"),+),
                        type_name: <$type as $crate::config::value::OptionValue>::TYPE,
                        words: <$type as $crate::config::value::OptionValue>::WORDS,
                        default: || {
                            let preset: $crate::config::option::Preset<$type> = $preset;
                            $crate::config::option::preset_words(preset)
                        },
                        range: $crate::config::option::options!(@range $type $(, $range)?),
                    },
                )*],
            };

            /// Reads the group; `None` means that the reader noted an error.
            pub(crate) fn read(reader: &mut $crate::config::option::Reader<'_>) -> Option<Self> {
                reader.apply(Self::GROUP);
                $(
                    let $field: Option<$type> = reader.option(
                        Self::GROUP,
                        $crate::config::option::plain(stringify!($field)),
                        $preset,
                        |_value| {
                            $($crate::config::option::in_range(_value, &$range)?;)?
                            $($check(_value)?;)?
                            Ok(())
                        },
                    );
                )*
                Some(Self { $($field: $field?,)* })
            }
        }
    };
    (@only) => { None };
    (@only $selector:literal = $word:literal) => { Some(($selector, $word)) };
    (@range $type:ty) => { None };
    (@range $type:ty, $range:expr) => {
        Some(|| {
            let range: std::ops::RangeInclusive<$type> = $range;
            $crate::config::option::range_words(&range)
        })
    };
}

pub(crate) use options;
