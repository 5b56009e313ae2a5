//! Large transactions, rows and catalogues: bounded memory, linear time, limits that hold.
//!
//! In a binary of its own, because it measures the whole process; one test at a time.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod catalogue;
mod measure;
mod rows;
mod time;
mod transaction;
