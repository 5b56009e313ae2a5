//! The crabka command.

fn main() {}
