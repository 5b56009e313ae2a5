//! End-to-end tests against real servers.
