//! What the fuzz target `configuration` and the replay of its corpus run.

use std::path::Path;

use crate::config::{Config, Entries};

/// Stands for a secret in the environment.
const CANARY: &str = "kT7q_Zx9";

/// The text of a configuration file, `${SECRET}` being a secret: what is wrong with it is told, what is right is shown,
/// and neither panics. A password in the URL is in none of it.
pub(crate) fn configuration(input: &[u8]) {
    let Some(text) = str::from_utf8(input).ok().filter(|text| !text.contains(CANARY)) else { return };
    let lookup = |name: &str| (name == "SECRET").then(|| CANARY.to_owned());
    let outcome = Entries::from_toml(text, Path::new("crabka.toml"), &lookup).and_then(Config::from_entries);
    match outcome {
        Ok(config) => {
            assert!(config.show(&super::Follows::new()).contains("[source]"), "what is in effect is shown");
            let url = format!("{:?} {:?}", config.source.url, config.source);
            assert!(!url.contains(CANARY) || !text.contains(":${SECRET}@"), "the password is shown");
        }
        Err(error) => assert!(!error.to_string().is_empty(), "what is wrong is said"),
    }
}
