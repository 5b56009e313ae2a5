//! The sink and the checkpoint store against a real Kafka, case by case.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

mod checkpoint;
mod cluster;
mod guarded;
mod ordered;
mod outage;
mod rejected;
mod support;
mod timestamps;
