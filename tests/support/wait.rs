//! Waiting for a condition with a deadline, in place of a hopeful sleep.

use std::thread;
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(5);

/// What `condition` finds, or `None` when `within` has passed without it.
pub fn poll<T>(within: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// Waits until `condition` holds; panics with `what` when it does not hold within `within`.
#[track_caller]
pub fn wait_for(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let held = poll(within, || condition().then_some(()));
    assert!(held.is_some(), "waited {within:?} in vain for {what}");
}
