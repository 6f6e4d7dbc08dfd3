//! At most one line a key and minute, in bounded memory: a fault that every request meets must not fill the disk.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Remembers when each key was last reported.
pub struct OncePerMinute<K> {
    seen: Mutex<HashMap<K, Instant>>,
    capacity: usize,
}

const MINUTE: Duration = Duration::from_secs(60);

impl<K: Eq + Hash> OncePerMinute<K> {
    pub fn new(capacity: usize) -> Self {
        Self { seen: Mutex::default(), capacity }
    }

    /// Whether `key` should be reported now. With the table full of keys younger than a minute, it should not: so many
    /// lines a minute are enough to act on.
    pub fn is_due(&self, key: K, now: Instant) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.get(&key).is_some_and(|last| now - *last < MINUTE) {
            return false;
        }
        if seen.len() >= self.capacity {
            seen.retain(|_, last| now - *last < MINUTE);
        }
        seen.len() < self.capacity && {
            seen.insert(key, now);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::clock;

    #[test]
    fn a_key_is_due_once_a_minute_and_the_table_is_bounded() {
        let (once, start) = (OncePerMinute::new(2), clock::now());
        assert!(once.is_due(1, start));
        assert!(!once.is_due(1, start + Duration::from_millis(59_999)));
        assert!(once.is_due(2, start));
        assert!(!once.is_due(3, start), "full of young keys");
        assert!(once.is_due(3, start + Duration::from_secs(60)));
        assert!(once.is_due(1, start + Duration::from_secs(60)));
    }
}
