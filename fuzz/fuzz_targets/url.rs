//! A connection URL or list of keywords.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| crabka_pgrepl::fuzz::url(input));
