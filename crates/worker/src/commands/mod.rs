//! One module per verb.

pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod init;
pub(crate) mod metrics;
pub(crate) mod run;
pub(crate) mod slots;
pub(crate) mod status;
pub(crate) mod tail;
