//! The only file that reads the system's clocks. Counting goes by the store's clock; this one times waits and
//! deadlines, and is the embedded store's clock. The wall clock is read for one thing: how long certificates are still valid.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// This instant, for deadlines.
#[expect(clippy::disallowed_methods, reason = "this is the file that the ban points to")]
pub fn now() -> Instant {
    Instant::now()
}

/// Seconds since the Unix epoch by this machine's wall clock. For what people read about certificates only: no decision,
/// no key and no command may depend on it.
#[expect(clippy::disallowed_methods, reason = "this is the file that the ban points to")]
pub fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A source of microseconds that never runs backwards.
pub trait Clock: Send + Sync {
    fn now_us(&self) -> u64;
}

/// Microseconds since the clock was made.
pub struct MonotonicClock {
    start: Instant,
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self { start: now() }
    }
}

impl Clock for MonotonicClock {
    fn now_us(&self) -> u64 {
        u64::try_from((now() - self.start).as_micros()).unwrap_or(u64::MAX)
    }
}

/// A clock that tests move by hand.
#[derive(Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now_us(&self) -> u64 {
        (**self).now_us()
    }
}
