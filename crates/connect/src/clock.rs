//! Wall-clock time, injected.

/// Tells wall-clock time. Tests and simulations bring their own.
pub trait Clock: Send + Sync + 'static {
    /// Nanoseconds since 1970-01-01 UTC.
    fn now_ns(&self) -> i64;

    /// Milliseconds since 1970-01-01 UTC.
    fn now_ms(&self) -> i64 {
        self.now_ns().div_euclid(1_000_000)
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where wall-clock time enters")]
    fn now_ns(&self) -> i64 {
        let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX)
    }
}
