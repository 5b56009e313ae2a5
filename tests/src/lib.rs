//! End-to-end tests against real servers: what they share.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod database;
mod embedded;
mod file_run;
mod fold;
mod held;
mod kafka;
mod kafka_run;
mod ledger;
mod reader;
mod scenario;
mod tamper;
mod worker;
mod workload;

pub use database::Database;
pub use embedded::Embedded;
pub use file_run::{FileRun, is_heartbeat};
pub use fold::Fold;
pub use held::Held;
pub use kafka::{Stored, TopicReader};
pub use kafka_run::{BATCH_RECORDS, KafkaRun};
pub use ledger::{LEDGER_TABLE, Ledger, Writers};
pub use reader::{Reader, Seen};
pub use scenario::{Scenario, run_scenario};
pub use tamper::TamperProxy;
pub use worker::{Worker, crabka};
pub use workload::{WORKLOAD_TABLE, random_sessions};
