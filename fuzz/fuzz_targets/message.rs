//! One pgoutput message in one state of the session.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| crabka_pgoutput::fuzz::one_message(input));
