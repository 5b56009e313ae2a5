//! The runtime between parts that misbehave on demand, in virtual time. Cases are named by their ids.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod batching;
mod control;
mod delivery;
mod failures;
mod parts;
