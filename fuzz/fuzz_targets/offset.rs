//! The JSON of a stored offset.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| crabka_connect_postgres::fuzz::offset(input));
