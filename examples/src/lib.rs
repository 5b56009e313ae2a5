//! Runnable examples of embedding crabka.
