//! PostgreSQL's times.

/// 2000-01-01 00:00:00 UTC, PostgreSQL's epoch, in microseconds since 1970-01-01 UTC.
pub const POSTGRES_EPOCH_UNIX_US: i64 = 946_684_800_000_000;

/// Microseconds since 2000-01-01 UTC, as every time on the wire, to microseconds since 1970-01-01 UTC.
///
/// A time outside the range of `i64` stays at its end.
///
/// ```
/// use crabka_pgoutput::{POSTGRES_EPOCH_UNIX_US, unix_us};
///
/// assert_eq!(unix_us(0), POSTGRES_EPOCH_UNIX_US);
/// // 2024-01-01 00:00:00 UTC
/// assert_eq!(unix_us(757_382_400_000_000), 1_704_067_200_000_000);
/// ```
pub const fn unix_us(postgres_us: i64) -> i64 {
    postgres_us.saturating_add(POSTGRES_EPOCH_UNIX_US)
}
