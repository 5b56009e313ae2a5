//! One PostgreSQL replication connection: TLS, authentication, START_REPLICATION, CopyBoth frames, standby
//! status. The payload of the stream is opaque bytes here.
//!
//! [`Config`] says where and how to connect, [`ReplicationClient`] takes commands, [`ReplicationStream`] delivers
//! [`StreamEvent`]s and sends the standby status:
//!
//! ```no_run
//! # async fn example() -> Result<(), crabka_pgrepl::Error> {
//! use crabka_pgrepl::{Config, Lsn, ReplicationClient, StartReplication, StreamEvent};
//!
//! let config: Config = "postgres://app@localhost/shop".parse()?;
//! let client = ReplicationClient::connect(&config).await?;
//! let start = StartReplication::new("orders", Lsn::ZERO).publications(["orders"]);
//! let mut stream = client.start_replication(&start).await?;
//! loop {
//!     while let Some(event) = stream.try_next()? {
//!         match event {
//!             StreamEvent::Wal { end, payload, .. } => println!("{end}: {} bytes", payload.len()),
//!             StreamEvent::Ended => return Ok(()),
//!             _ => {}
//!         }
//!     }
//!     stream.fill().await?;
//! }
//! # }
//! ```
//!
//! Protocol: <https://www.postgresql.org/docs/18/protocol-replication.html>

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::as_conversions, clippy::arithmetic_side_effects)
)]

mod auth;
mod cancel;
mod client;
mod config;
mod error;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod link;
mod login;
mod lsn;
mod protocol;
mod quote;
mod slot;
mod start;
mod stream;
mod timeline;
mod transport;

pub use cancel::CancelHandle;
pub use client::{QueryResult, ReplicationClient, SystemIdentity};
pub use config::{ChannelBinding, Config, PINNED_SETTINGS, SslMode};
pub use error::{Error, ErrorClass, ServerMessage};
pub use login::ServerRole;
pub use lsn::{Lsn, ParseLsnError};
pub use slot::{CreateSlot, CreatedSlot, SlotSnapshot};
pub use start::{Origin, StartReplication, Streaming};
pub use stream::{ReplicationStream, StreamEvent, StreamSettings, WallClock};
pub use transport::{Peer, Transport};
