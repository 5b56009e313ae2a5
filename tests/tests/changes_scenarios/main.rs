//! Statements and what they become, on each version of the run: read live, afterwards, and in binary.
//!
//! The expected sequences are those of the server's own behaviour in the versions named with each.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod keys;
mod publications;
mod relations;
mod rows;
mod source;
