//! One module per verb.

pub(crate) mod config;
