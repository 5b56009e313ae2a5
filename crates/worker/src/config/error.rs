//! What is wrong with a configuration, each finding with its place.

use std::fmt;

use crabka_connect::ConnectError;

use super::entries::Origin;

/// One option that cannot be taken.
#[derive(Debug, Clone)]
pub(crate) struct OptionError {
    /// Full name of the option, empty when the file as a whole is meant.
    pub(crate) path: String,
    pub(crate) origin: Origin,
    pub(crate) message: String,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default => {}
            origin => write!(f, "{origin}: ")?,
        }
        if !self.path.is_empty() {
            write!(f, "{} ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a configuration.
#[derive(Debug)]
pub(crate) struct ConfigError(Vec<OptionError>);

impl ConfigError {
    pub(crate) fn new(errors: Vec<OptionError>) -> Self {
        Self(errors)
    }

    /// An error of the file as a whole.
    pub(crate) fn file(origin: Origin, message: impl Into<String>) -> Self {
        Self(vec![OptionError { path: String::new(), origin, message: message.into() }])
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl From<ConfigError> for ConnectError {
    fn from(error: ConfigError) -> Self {
        ConnectError::configuration(error.to_string())
            .with_fix("correct the configuration; `crabka config reference` prints every option")
    }
}
