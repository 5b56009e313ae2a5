//! End-to-end tests against real servers: what they share.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod database;
mod fold;
mod kafka;
mod ledger;
mod reader;
mod worker;
mod workload;

pub use database::Database;
pub use fold::Fold;
pub use kafka::{Stored, TopicReader};
pub use ledger::{LEDGER_TABLE, Ledger, Writers};
pub use reader::{Reader, Seen};
pub use worker::{Worker, crabka};
pub use workload::{WORKLOAD_TABLE, random_sessions};
