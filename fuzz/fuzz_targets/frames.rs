//! The bytes that a server sends: frames and the messages in them.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| crabka_pgrepl::fuzz::frames(input));
