//! Throw-away PostgreSQL and Kafka servers, a TCP fault proxy and oracles for tests.
