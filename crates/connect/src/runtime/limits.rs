//! Limits of a run, each named with its unit.

use std::time::Duration;

use crate::ConnectError;

/// How large and how old a batch may become, how an idle source is polled, how long a drain may take.
///
/// Every limit is a bound on memory or on time; none of them decides what is delivered. Size limits are looked at
/// after each poll, because a position exists only behind a whole poll: a batch may exceed them by what one
/// poll returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Records in a batch. Default 16 384.
    pub max_batch_records: usize,
    /// Encoded bytes of keys, values and headers in a batch. Default 8 MiB. Two batches exist at a time: one in
    /// flight and one filling.
    pub max_batch_bytes: usize,
    /// Age at which a batch is cut although the source has more at once. Default 500 ms. On light load it plays no
    /// part: a batch is cut as soon as the source is caught up and no other batch is in flight.
    pub max_batch_age: Duration,
    /// First pause after the source said that it is caught up. Default 1 ms. Time that the source itself waited
    /// inside the poll counts as pause.
    pub idle_min: Duration,
    /// Longest pause between two polls of an idle source. Default 5 ms.
    pub idle_max: Duration,
    /// Longest time that a graceful stop, or the end after an error, waits for the running batch, and then for
    /// source and sink to close. Default 30 s.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_batch_records: 16_384,
            max_batch_bytes: 8 * 1024 * 1024,
            max_batch_age: Duration::from_millis(500),
            idle_min: Duration::from_millis(1),
            idle_max: Duration::from_millis(5),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl Limits {
    pub(super) fn validate(&self) -> Result<(), ConnectError> {
        let problem = if self.max_batch_records == 0 {
            "max_batch_records must be at least 1"
        } else if self.max_batch_bytes == 0 {
            "max_batch_bytes must be at least 1"
        } else if self.idle_max.is_zero() {
            "idle_max must be longer than zero: an idle source would be polled without a pause"
        } else if self.idle_min > self.idle_max {
            "idle_min must not be longer than idle_max"
        } else if self.drain_timeout.is_zero() {
            "drain_timeout must be longer than zero"
        } else {
            return Ok(());
        };
        Err(ConnectError::configuration(problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorClass;

    #[test]
    fn the_defaults_are_valid() {
        Limits::default().validate().unwrap();
    }

    #[test]
    fn limits_that_would_stall_or_spin_are_refused() {
        let broken: [fn(&mut Limits); 5] = [
            |limits| limits.max_batch_records = 0,
            |limits| limits.max_batch_bytes = 0,
            |limits| limits.idle_max = Duration::ZERO,
            |limits| limits.idle_min = Duration::from_secs(1),
            |limits| limits.drain_timeout = Duration::ZERO,
        ];
        for break_one in broken {
            let mut limits = Limits::default();
            break_one(&mut limits);
            assert_eq!(limits.validate().unwrap_err().class(), ErrorClass::Configuration, "{limits:?}");
        }
    }
}
