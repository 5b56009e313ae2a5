//! The text of a configuration file.

#![no_main]
// Only the reading of it is tried.
#![allow(dead_code, unused_imports, unreachable_pub)]

#[path = "../../crates/worker/src/config/mod.rs"]
mod config;

#[path = "../../crates/worker/src/config/fuzz.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|input: &[u8]| body::configuration(input));
