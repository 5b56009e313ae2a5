//! A scripted walsender over an in-memory pipe, under paused time.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cancelling;
mod endings;
mod feedback;
mod login;
mod server;
mod silence;
