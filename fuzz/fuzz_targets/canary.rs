//! Must fail: a fuzzer that does not find these four bytes finds nothing in the other targets either.
//!
//! Byte by byte, so that only a fuzzer that is led by coverage gets there, and not one that guesses 2³² inputs.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if input.first() == Some(&b'd')
        && input.get(1) == Some(&b'e')
        && input.get(2) == Some(&b'a')
        && input.get(3) == Some(&b'd')
    {
        panic!("the canary is found");
    }
});
