//! When to wait a moment before a read.
//!
//! The server sends every message by itself. A reader as fast as the server is woken for each of them and pays for
//! a system call and a task switch per message; one that lags a little finds many at once. So under load, and only
//! then, a read that follows closely on short ones is put off.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// This many short reads in close succession are load.
const LOAD_STREAK: u32 = 16;
/// Reads that follow each other within this time are in close succession.
const CLOSE: Duration = Duration::from_micros(300);
/// A read of this many bytes needs no help.
const PLENTY: usize = 32 * 1024;
/// A pause that brings less than this was not worth it: the load is over.
const WORTHWHILE: usize = 4 * 1024;

/// Times are counted from the start of the stream.
#[derive(Debug)]
pub(super) struct Pacing {
    /// How long to wait; zero never waits.
    pause: Duration,
    streak: u32,
    last_read: Duration,
    pause_until: Option<Duration>,
    timer: Pin<Box<Sleep>>,
}

impl Pacing {
    pub(super) fn new(pause: Duration, started: Instant) -> Self {
        let timer = Box::pin(sleep_until(started));
        Self { pause, streak: 0, last_read: Duration::ZERO, pause_until: None, timer }
    }

    /// When the next read may begin, if not now.
    fn wait_until(&self, now: Duration) -> Option<Duration> {
        self.pause_until.filter(|until| now < *until)
    }

    /// Ready when the next read may begin.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>, started: Instant, now: Duration) -> Poll<()> {
        let Some(deadline) = self.wait_until(now).and_then(|until| started.checked_add(until)) else {
            return Poll::Ready(());
        };
        if self.timer.deadline() != deadline {
            self.timer.as_mut().reset(deadline);
        }
        self.timer.as_mut().poll(cx)
    }

    /// Takes note of a read.
    pub(super) fn read(&mut self, now: Duration, bytes: usize) {
        let paused = self.pause_until.take().is_some();
        let gap = now.saturating_sub(self.last_read);
        self.last_read = now;
        self.streak = match () {
            () if paused && bytes < WORTHWHILE => 0,
            () if paused || gap < CLOSE => self.streak.saturating_add(1),
            () => 0,
        };
        if self.streak >= LOAD_STREAK && bytes < PLENTY && !self.pause.is_zero() {
            self.pause_until = Some(now.saturating_add(self.pause));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(1);

    fn us(microseconds: u64) -> Duration {
        Duration::from_micros(microseconds)
    }

    fn pacing() -> Pacing {
        Pacing::new(PAUSE, Instant::now())
    }

    /// Brings it to where it pauses, at the time returned.
    fn under_load(pacing: &mut Pacing) -> Duration {
        let mut now = us(10_000);
        for _ in 0..LOAD_STREAK {
            assert_eq!(pacing.wait_until(now), None);
            now += us(20);
            pacing.read(now, 300);
        }
        now
    }

    #[tokio::test]
    async fn an_idle_stream_never_waits() {
        let mut pacing = pacing();
        for read in 1..1000 {
            // A transaction now and then, in three reads.
            let now = us(read * 5_000);
            for step in [0, 50, 100] {
                assert_eq!(pacing.wait_until(now + us(step)), None);
                pacing.read(now + us(step), 200);
            }
        }
    }

    #[tokio::test]
    async fn short_reads_in_close_succession_are_put_off() {
        let mut pacing = pacing();
        let mut now = us(1_000);
        pacing.read(now, 300);
        now = under_load(&mut pacing).max(now);
        // The read before had come long before this streak began, so the streak is one short.
        now += us(20);
        pacing.read(now, 300);
        assert_eq!(pacing.wait_until(now), Some(now + PAUSE));
        assert_eq!(pacing.wait_until(now + PAUSE), None);
        // What the pause has gathered is worth the next one.
        now += PAUSE;
        pacing.read(now, 20_000);
        assert_eq!(pacing.wait_until(now), Some(now + PAUSE));
        // A full read needs none, and the short one after it is load again.
        now += PAUSE;
        pacing.read(now, PLENTY);
        assert_eq!(pacing.wait_until(now), None);
        now += us(20);
        pacing.read(now, 300);
        assert!(pacing.wait_until(now).is_some());
        // A pause that brings little was the last.
        now += PAUSE;
        pacing.read(now, 300);
        assert_eq!(pacing.wait_until(now), None);
        now += us(20);
        pacing.read(now, 300);
        assert_eq!(pacing.wait_until(now), None);
    }

    #[tokio::test]
    async fn zero_switches_it_off() {
        let mut pacing = Pacing::new(Duration::ZERO, Instant::now());
        let now = under_load(&mut pacing);
        pacing.read(now + us(20), 300);
        assert_eq!(pacing.wait_until(now + us(20)), None);
    }
}
