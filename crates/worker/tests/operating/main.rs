//! The verbs and the behaviour that an operator relies on, against real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

#[path = "../command/mod.rs"]
mod command;
mod found_by_check;
mod instances;
mod shutdown;
mod slots;
mod status;
mod told_once;
