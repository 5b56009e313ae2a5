//! The pgoutput messages of a session, in order.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| crabka_pgoutput::fuzz::session(input));
