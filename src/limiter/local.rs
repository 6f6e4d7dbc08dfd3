//! The local limits of an outage: what a fail-open policy lets through while the store cannot count.
//!
//! Counters live here, not with the rules, so neither a flapping store nor a reload refills one. The table is bounded: idle
//! counters leave first, and only when all are live do newcomers share one overflow counter a policy. Nothing is ever
//! cleared wholesale.

use std::sync::Arc;

use crate::decision::key::Digest;
use crate::decision::limit::{Charge, Limit};
use crate::decision::policy::Plan;
use crate::decision::verdict::{FailureClass, Quota, Verdict};
use crate::store::Store as _;
use crate::store::clock::{self, Clock, MonotonicClock};
use crate::store::memory::MemoryStore;
use crate::telemetry::once::OncePerMinute;

/// Identities that are told apart in an outage.
const COUNTERS: usize = 65_536;
/// Policies that can have an overflow counter: more than a configuration has.
const OVERFLOW_COUNTERS: usize = 4_096;

pub struct LocalLimits {
    counters: MemoryStore,
    overflow: MemoryStore,
    overflow_lines: OncePerMinute<Digest>,
}

impl Default for LocalLimits {
    fn default() -> Self {
        Self::new(COUNTERS, Arc::new(MonotonicClock::default()))
    }
}

impl LocalLimits {
    /// With room for so many counters beside the overflow counters.
    fn new(counters: usize, clock: Arc<impl Clock + 'static>) -> Self {
        Self {
            counters: MemoryStore::new(counters, Arc::clone(&clock)),
            overflow: MemoryStore::new(OVERFLOW_COUNTERS, clock),
            overflow_lines: OncePerMinute::new(OVERFLOW_COUNTERS),
        }
    }

    /// Allowed or denied by `limit`; failed only if even the overflow counter is out of reach.
    pub fn decide<'p>(&self, plan: &Plan<'p>, limit: &'p Limit) -> Verdict<'p> {
        let charge = plan.local_charge(limit);
        let mut taken = self.counters.take_now(std::slice::from_ref(&charge), 1);
        if taken.as_ref().is_err_and(|error| error.class == FailureClass::Oom) {
            // A key of no identity at all: one counter for all who found no room.
            let key = limit.key.key(std::iter::empty(), std::iter::empty());
            if self.overflow_lines.is_due(key.digest, clock::now()) {
                tracing::warn!(policy = %plan.policy.name, "every local counter is in use: newcomers share one");
            }
            let shared = Charge { key, ..charge };
            taken = self.overflow.take_now(&[shared], 1);
        }
        let quota = |admission| Quota { limit, algorithm: limit.algorithm, admission };
        match taken {
            Ok(taken) => match taken.admissions.first() {
                Some(&admission) if taken.admitted > 0 => Verdict::Allowed(Some(quota(admission))),
                Some(&admission) => Verdict::Denied(quota(admission)),
                None => Verdict::Failed(FailureClass::Other),
            },
            Err(error) => Verdict::Failed(error.class),
        }
    }

    pub fn sweep(&self) {
        self.counters.sweep();
        self.overflow.sweep();
    }

    pub fn len(&self) -> usize {
        self.counters.len() + self.overflow.len()
    }
}

#[cfg(test)]
mod tests;
