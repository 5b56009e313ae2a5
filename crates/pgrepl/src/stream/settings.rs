//! Settings of a stream, each with its unit and default.

use std::time::Duration;

/// Microseconds since 2000-01-01 00:00 UTC, for the time field of a status.
pub type WallClock = fn() -> i64;

/// How a stream keeps in touch with the server.
#[derive(Debug, Clone, Copy)]
pub struct StreamSettings {
    /// Time between two statuses when nothing happens. Default 10 s; never more than a third of the session's
    /// `wal_sender_timeout`.
    pub status_interval: Duration,
    /// Least time between two statuses. Default 10 ms, that is at most a hundred statuses a second, however often the
    /// server asks (a server that shuts down asks 40 000 times a second) and however often positions are acknowledged.
    pub coalesce_interval: Duration,
    /// Time without a byte from the server after which the stream ends with an error; at half of it the server is
    /// asked for a reply. `None` waits for ever. Default 60 s.
    pub silence_limit: Option<Duration>,
    /// Under load, and only then, how long a read waits for more to arrive, so that it finds many messages and not one;
    /// zero never waits. Default 1 ms, the resolution of the runtime's timer.
    pub read_pause: Duration,
    /// The clock for the time field of a status, which the server only displays.
    pub clock: WallClock,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            status_interval: Duration::from_secs(10),
            coalesce_interval: Duration::from_millis(10),
            silence_limit: Some(Duration::from_secs(60)),
            read_pause: Duration::from_millis(1),
            clock: system_clock,
        }
    }
}

/// Seconds from 1970-01-01 to 2000-01-01.
const POSTGRES_EPOCH: Duration = Duration::from_secs(946_684_800);

#[allow(clippy::disallowed_methods, reason = "the default of an injected clock; no decision depends on it")]
fn system_clock() -> i64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.saturating_sub(POSTGRES_EPOCH).as_micros()).unwrap_or(0)
}
