//! Throw-away PostgreSQL clusters.

mod builder;
mod cluster;
mod install;
mod npm;
mod server;
mod standby;
mod template;

pub use builder::PgServerBuilder;
pub(crate) use install::chosen_majors;
pub use install::{DEFAULT_MAJOR, PgInstall, SUPPORTED_MAJORS, pg_available_majors};
pub use server::{PgServer, StopMode, Stopped};
