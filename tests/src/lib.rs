//! End-to-end tests against real servers: what they share.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod database;
mod fold;
mod reader;
mod worker;

pub use database::Database;
pub use fold::Fold;
pub use reader::{Reader, Seen};
pub use worker::{Worker, crabka};
