//! A bounded table of counters that knows which of them end first.

use std::collections::{BTreeSet, HashMap};

use crate::decision::algorithm::{Kept, State};
use crate::decision::key::Digest;

pub struct Table {
    capacity: usize,
    counters: HashMap<Digest, Kept>,
    /// The same counters, soonest end first.
    by_end: BTreeSet<(u64, Digest)>,
}

impl Table {
    pub fn new(capacity: usize) -> Self {
        Self { capacity, counters: HashMap::new(), by_end: BTreeSet::new() }
    }

    /// The counter, unless its time is over.
    pub fn get(&self, digest: &Digest, now_ms: u64) -> Option<&State> {
        self.counters.get(digest).filter(|kept| kept.expires_at_ms > now_ms).map(|kept| &kept.state)
    }

    /// Whether `digest` takes up room, its time over or not.
    pub fn holds(&self, digest: &Digest) -> bool {
        self.counters.contains_key(digest)
    }

    pub fn put(&mut self, digest: Digest, kept: Kept) {
        let end = kept.expires_at_ms;
        let before = self.counters.insert(digest, kept).map(|kept| kept.expires_at_ms);
        if before != Some(end) {
            if let Some(before) = before {
                self.by_end.remove(&(before, digest));
            }
            self.by_end.insert((end, digest));
        }
    }

    /// Whether `fresh` more counters fit, after those whose time is over have left.
    pub fn has_room(&mut self, fresh: usize, now_ms: u64) -> bool {
        let excess = (self.counters.len() + fresh).saturating_sub(self.capacity);
        self.sweep(now_ms, excess);
        self.counters.len() + fresh <= self.capacity
    }

    /// Drops at most `most` counters whose time is over.
    pub fn sweep(&mut self, now_ms: u64, most: usize) {
        for _ in 0..most {
            match self.by_end.first() {
                Some(&(end, digest)) if end <= now_ms => {
                    self.by_end.pop_first();
                    self.counters.remove(&digest);
                }
                _ => return,
            }
        }
    }

    pub fn sweep_all(&mut self, now_ms: u64) {
        self.sweep(now_ms, self.counters.len());
        if self.counters.len() < self.counters.capacity() / 4 {
            self.counters.shrink_to_fit();
        }
    }

    pub fn len(&self) -> usize {
        self.counters.len()
    }
}
