//! When to try again after a transient error: a pure function of the attempt and one random number.

use std::time::Duration;

use crate::ConnectError;

/// Capped exponential back-off with jitter for transient errors. All other classes are never retried.
///
/// Attempts are counted from the last saved checkpoint: reopening alone is not progress, so a source that
/// connects and fails over and over is not tried in a tight loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Delay before the second attempt. Default 200 ms.
    pub first_delay: Duration,
    /// Longest delay; each delay is twice the one before until this is reached. Default 30 s.
    pub max_delay: Duration,
    /// Attempts without progress after which the run ends with the error; `None`, the default, never gives up.
    pub max_attempts: Option<u32>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first_delay: Duration::from_millis(200),
            max_delay: Duration::from_secs(30),
            max_attempts: None,
        }
    }
}

impl RetryPolicy {
    /// The delay after `failures` failed attempts in a row (1 or more). `random` is uniform in `[0, 1)`; the result
    /// lies between half the exponential delay and all of it, so that instances which failed together do not come
    /// back together.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let full = self.first_delay.saturating_mul(1 << doublings).min(self.max_delay);
        let random = if random.is_finite() { random.clamp(0.0, 1.0) } else { 1.0 };
        full.mul_f64(0.5 + random / 2.0)
    }

    /// Whether `failures` failed attempts in a row are one too many.
    pub fn exhausted(&self, failures: u32) -> bool {
        self.max_attempts.is_some_and(|max| failures >= max)
    }

    pub(super) fn validate(&self) -> Result<(), ConnectError> {
        let problem = if self.first_delay.is_zero() {
            "retry first_delay must be longer than zero"
        } else if self.first_delay > self.max_delay {
            "retry first_delay must not be longer than max_delay"
        } else if self.max_attempts == Some(0) {
            "retry max_attempts must be at least 1"
        } else {
            return Ok(());
        };
        Err(ConnectError::configuration(problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> RetryPolicy {
        RetryPolicy {
            first_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(5),
            max_attempts: Some(3),
        }
    }

    #[test]
    fn delays_double_up_to_the_cap() {
        let full: Vec<u128> = (1..=9).map(|n| policy().delay(n, 1.0).as_millis()).collect();
        assert_eq!(full, [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
        assert_eq!(policy().delay(u32::MAX, 1.0), Duration::from_secs(5));
    }

    #[test]
    fn jitter_takes_up_to_half_away() {
        assert_eq!(policy().delay(1, 0.0), Duration::from_millis(50));
        assert_eq!(policy().delay(1, 0.5), Duration::from_millis(75));
        for odd in [-1.0, 7.0, f64::NAN, f64::INFINITY] {
            let delay = policy().delay(1, odd);
            assert!(delay >= Duration::from_millis(50) && delay <= Duration::from_millis(100), "{delay:?}");
        }
    }

    #[test]
    fn the_last_attempt_is_the_configured_one() {
        assert!(!policy().exhausted(2));
        assert!(policy().exhausted(3));
        assert!(!RetryPolicy::default().exhausted(u32::MAX));
    }

    #[test]
    fn senseless_policies_are_refused() {
        policy().validate().unwrap();
        RetryPolicy::default().validate().unwrap();
        for policy in [
            RetryPolicy { first_delay: Duration::ZERO, ..policy() },
            RetryPolicy { first_delay: Duration::from_secs(6), ..policy() },
            RetryPolicy { max_attempts: Some(0), ..policy() },
        ] {
            policy.validate().unwrap_err();
        }
    }
}
