//! One cell of any type, in text or in binary.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| crabka_connect_postgres::fuzz::value(input));
