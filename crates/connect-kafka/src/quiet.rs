//! Troubles that librdkafka reports several times a second for as long as they last: the first is said at once, then at
//! most one in [`INTERVAL`], with the number of those left out.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(30);

/// One kind of trouble.
#[derive(Debug, Default)]
pub(crate) struct Quiet(Mutex<Option<Said>>);

#[derive(Debug)]
struct Said {
    at: Instant,
    left_out: u64,
}

impl Quiet {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// How many were left out before this one; `None` when this one is left out as well.
    pub(crate) fn say(&self, now: Instant) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match said.as_mut() {
            Some(last) if now.saturating_duration_since(last.at) < INTERVAL => {
                last.left_out += 1;
                None
            }
            last => {
                let left_out = last.map_or(0, |last| last.left_out);
                *said = Some(Said { at: now, left_out: 0 });
                Some(left_out)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_at_once_and_then_one_an_interval_with_a_count() {
        let (quiet, start) = (Quiet::new(), Instant::now());
        let said: Vec<Option<u64>> =
            (0..70).map(|second| quiet.say(start + Duration::from_secs(second))).collect();
        for (second, said) in said.iter().enumerate() {
            let expected = match second {
                0 => Some(0),
                30 | 60 => Some(29),
                _ => None,
            };
            assert_eq!(*said, expected, "{second}");
        }
        assert_eq!(quiet.say(start + Duration::from_secs(1000)), Some(9));
    }
}
