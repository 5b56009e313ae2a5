//! What an option's value may be: how it is read, what its type is called, how it is shown.

use std::collections::BTreeMap;

use super::secret::{ConnectionUrl, REDACTED, Secret, is_secret_property};

/// A value as it was written, before an option gives it its type.
#[derive(Clone)]
pub(crate) enum Raw {
    /// A TOML string.
    Text(String),
    /// A TOML integer; `None` when it does not fit 64 bits.
    Integer(Option<i64>),
    /// A TOML float, as written.
    Float(String),
    /// A TOML boolean.
    Boolean(bool),
    /// A TOML date or time.
    Datetime,
    /// A TOML array.
    List(Vec<Raw>),
    /// A TOML table, nested names joined by dots.
    Map(Vec<(String, Raw)>),
    /// Text of a command line flag: the option decides what it is.
    Flag(String),
}

impl Raw {
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Boolean(_) => "a boolean",
            Self::Datetime => "a date or time",
            Self::List(_) => "an array",
            Self::Map(_) => "a table",
            Self::Flag(_) => "text",
        }
    }
}

/// Why a value was not taken.
pub(crate) enum ValueError {
    /// It is of another type: what it is.
    Type(&'static str),
    /// It is of the right type and not allowed.
    Value(String),
}

/// A type of options.
pub(crate) trait OptionValue: Sized {
    /// What the type is called in the reference and in errors.
    const TYPE: &'static str;

    /// The words it may be, if it is one of a few.
    const WORDS: &'static [&'static str] = &[];

    /// Reads a value.
    fn read(raw: &Raw) -> Result<Self, ValueError>;

    /// The value in TOML, secrets redacted; `None` when there is none.
    fn shown(&self) -> Option<String>;
}

/// A text as a TOML string.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

impl OptionValue for String {
    const TYPE: &'static str = "string";

    fn read(raw: &Raw) -> Result<Self, ValueError> {
        match raw {
            Raw::Text(text) | Raw::Flag(text) => Ok(text.clone()),
            other => Err(ValueError::Type(other.kind())),
        }
    }

    fn shown(&self) -> Option<String> {
        Some(quoted(self))
    }
}

impl OptionValue for Secret {
    const TYPE: &'static str = "secret string";

    fn read(raw: &Raw) -> Result<Self, ValueError> {
        String::read(raw).map(Secret::new)
    }

    fn shown(&self) -> Option<String> {
        Some(quoted(REDACTED))
    }
}

impl OptionValue for ConnectionUrl {
    const TYPE: &'static str = "connection URL";

    fn read(raw: &Raw) -> Result<Self, ValueError> {
        let url = String::read(raw)?;
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(ValueError::Value(
                "must be a URL that begins with postgres:// or postgresql://".to_owned(),
            ));
        }
        Ok(ConnectionUrl::new(url))
    }

    fn shown(&self) -> Option<String> {
        Some(quoted(&ConnectionUrl::shown(self)))
    }
}

impl OptionValue for bool {
    const TYPE: &'static str = "boolean";

    fn read(raw: &Raw) -> Result<Self, ValueError> {
        match raw {
            Raw::Boolean(value) => Ok(*value),
            Raw::Flag(text) => text.parse().map_err(|_| ValueError::Type("text")),
            other => Err(ValueError::Type(other.kind())),
        }
    }

    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl OptionValue for $type {
            const TYPE: &'static str = "integer";

            fn read(raw: &Raw) -> Result<Self, ValueError> {
                let number = match raw {
                    Raw::Integer(number) => *number,
                    Raw::Flag(text) => {
                        Some(text.replace('_', "").parse::<i64>().map_err(|_| ValueError::Type("text"))?)
                    }
                    other => return Err(ValueError::Type(other.kind())),
                };
                number
                    .and_then(|number| <$type>::try_from(number).ok())
                    .ok_or_else(|| ValueError::Value(format!("must be from {} to {}", <$type>::MIN, <$type>::MAX)))
            }

            fn shown(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )*};
}

integers!(u64 u32 i32);

impl OptionValue for Vec<String> {
    const TYPE: &'static str = "array of strings";

    fn read(raw: &Raw) -> Result<Self, ValueError> {
        match raw {
            Raw::List(items) => items.iter().map(String::read).collect(),
            // Names may hold commas, so an array in TOML is taken as well.
            Raw::Flag(text) if text.trim_start().starts_with('[') => read_toml_array(text),
            Raw::Flag(text) => Ok(text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(str::to_owned)
                .collect()),
            other => Err(ValueError::Type(other.kind())),
        }
    }

    fn shown(&self) -> Option<String> {
        let items: Vec<String> = self.iter().map(|item| quoted(item)).collect();
        Some(format!("[{}]", items.join(", ")))
    }
}

fn read_toml_array(text: &str) -> Result<Vec<String>, ValueError> {
    let document = format!("items = {text}");
    let mut table: BTreeMap<String, Vec<String>> =
        toml::from_str(&document).map_err(|_| ValueError::Type("text that is not an array"))?;
    table.remove("items").ok_or(ValueError::Type("text that is not an array"))
}

/// Properties handed to a library as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Properties(Vec<(String, Secret)>);

impl Properties {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.expose()))
    }
}

impl OptionValue for Properties {
    const TYPE: &'static str = "table of strings, numbers or booleans";

    fn read(raw: &Raw) -> Result<Self, ValueError> {
        let Raw::Map(entries) = raw else {
            return Err(ValueError::Type(raw.kind()));
        };
        let mut properties: Vec<(String, Secret)> = Vec::new();
        for (name, value) in entries {
            let text = match value {
                Raw::Text(text) | Raw::Flag(text) | Raw::Float(text) => text.clone(),
                Raw::Integer(Some(number)) => number.to_string(),
                Raw::Boolean(value) => value.to_string(),
                other => return Err(ValueError::Value(format!("{name} must not be {}", other.kind()))),
            };
            properties.retain(|(known, _)| known != name);
            properties.push((name.clone(), Secret::new(text)));
        }
        Ok(Self(properties))
    }

    fn shown(&self) -> Option<String> {
        let entries: Vec<String> = self
            .iter()
            .map(|(name, value)| {
                let value = if is_secret_property(name) { REDACTED } else { value };
                format!("{} = {}", quoted(name), quoted(value))
            })
            .collect();
        Some(if entries.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", entries.join(", ")) })
    }
}

impl<T: OptionValue> OptionValue for Option<T> {
    const TYPE: &'static str = T::TYPE;
    const WORDS: &'static [&'static str] = T::WORDS;

    fn read(raw: &Raw) -> Result<Self, ValueError> {
        T::read(raw).map(Some)
    }

    fn shown(&self) -> Option<String> {
        self.as_ref().and_then(OptionValue::shown)
    }
}

/// An option that is one of a few words: each with its spelling.
macro_rules! choices {
    (
        $(#[doc = $doc:literal])+
        $name:ident { $($(#[doc = $variant_doc:literal])+ $variant:ident = $word:literal,)+ }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[doc = $variant_doc])+ $variant,)+
        }

        impl $name {
            /// How it is written.
            pub(crate) fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl $crate::config::value::OptionValue for $name {
            const TYPE: &'static str = "word";
            const WORDS: &'static [&'static str] = &[$($word),+];

            fn read(raw: &$crate::config::value::Raw) -> Result<Self, $crate::config::value::ValueError> {
                use $crate::config::value::{Raw, ValueError, no_choice};
                let text = match raw {
                    Raw::Boolean(true) => "true".to_owned(),
                    Raw::Boolean(false) => "false".to_owned(),
                    other => String::read(other)?,
                };
                match text.as_str() {
                    $($word => Ok(Self::$variant),)+
                    other => Err(ValueError::Value(no_choice(other, Self::WORDS))),
                }
            }

            fn shown(&self) -> Option<String> {
                Some($crate::config::value::quoted(self.word()))
            }
        }
    };
}

pub(crate) use choices;

/// Says which words there are and which is nearest.
pub(crate) fn no_choice(text: &str, words: &[&str]) -> String {
    let hint = match super::nearest(text, words.iter().copied()) {
        Some(word) => format!("; did you mean {word}?"),
        None => String::new(),
    };
    format!("must be one of {}{hint}: {text}", words.join(", "))
}
