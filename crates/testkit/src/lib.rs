//! Throw-away PostgreSQL and Kafka servers, a TCP fault proxy and oracles for tests.
//!
//! A test that needs a server begins with [`needs!`], which decides in one place whether it runs, is left out, or
//! fails because the server is missing:
//!
//! ```no_run
//! # async fn a_change_arrives() {
//! crabka_testkit::needs!(postgres);
//! let server = crabka_testkit::PgServer::shared_default().await.unwrap();
//! let database = server.create_database("orders").await.unwrap();
//! let client = server.connect(&database).await.unwrap();
//! client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
//! # }
//! ```
//!
//! A server that a test stops, kills or configures is its own: [`PgServer::start`], [`PgServer::builder`].
//!
//! Environment:
//!
//! | variable | meaning |
//! |---|---|
//! | `CRABKA_TEST_SERVERS` | `all`: a missing server fails its tests; `none`: tests with servers are left out |
//! | `CRABKA_TEST_LEFT_OUT` | file that gets a line for each test left out |
//! | `CRABKA_TEST_PG_BIN` | one or more directories of PostgreSQL's server programs, separated by `:` |
//! | `CRABKA_TEST_PG_MAJORS` | the major versions that [`pg_available_majors`] tells, such as `14,15,18` |
//! | `CRABKA_TEST_KAFKA` | bootstrap servers of a running Kafka, which is then shared and never stopped |
//! | `CRABKA_TEST_CACHE` | where templates, jars and fetched servers are kept; `test-servers` in cargo's target directory without it |

// Real servers live in real time.
#![allow(clippy::disallowed_methods)]

mod account;
mod cache;
mod container;
mod error;
mod kafka;
mod port;
mod postgres;
mod process;
mod proxy;
mod servers;
mod supervisor;

pub use cache::cache_dir;
pub use error::Error;
pub use kafka::{BrokerStopped, KafkaBroker, KafkaBrokerBuilder, KafkaCluster, KafkaInstall};
pub use postgres::{
    DEFAULT_MAJOR, PgInstall, PgServer, PgServerBuilder, SUPPORTED_MAJORS, StopMode, Stopped,
    pg_available_majors,
};
pub use process::unique_name;
pub use proxy::{Direction, FaultProxy, ProxyCounters, Side};
pub use servers::{NOT_CHOSEN, Need, may_run};
