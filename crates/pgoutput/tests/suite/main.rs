//! The decoder against streams of real servers, against damage, and against itself.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod capture;
mod corpus;
mod damage;
mod golden;
mod layouts;
mod render;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod roundtrip;
