//! The embedded store: the same contract in this process, bounded, keyed by the digest.
//!
//! Exact for one process, gone with it, and not shared: for one sidecar alone, for trials, and as the table behind
//! the local limits of an outage (`limiter/local`).

mod table;

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use self::table::Table;
use super::clock::Clock;
use super::{Store, StoreError, Taking};
use crate::decision::algorithm::{Demand, judge};
use crate::decision::limit::Charge;
use crate::decision::verdict::{FailureClass, Taken};

/// Counters in this process.
pub struct MemoryStore {
    clock: Box<dyn Clock>,
    table: Mutex<Table>,
}

impl MemoryStore {
    /// At most `capacity` live counters: beyond it a check that needs a new one fails, and none is ever evicted
    /// while it counts.
    pub fn new(capacity: usize, clock: impl Clock + 'static) -> Self {
        Self { clock: Box::new(clock), table: Mutex::new(Table::new(capacity)) }
    }

    /// The contract's *take*, which here has nothing to wait for.
    pub fn take_now(&self, charges: &[Charge<'_>], n: u64) -> Result<Taken, StoreError> {
        let now_us = self.clock.now_us();
        let mut table = self.lock();
        table.sweep(now_us / 1000, charges.len() + 1);
        let demand = |charge: &Charge<'_>| Demand {
            algorithm: charge.algorithm,
            role: charge.role,
            state: table.get(&charge.key.digest, now_us / 1000),
            cost: charge.cost,
        };
        let judged =
            judge(&charges.iter().map(demand).collect::<Vec<_>>(), now_us, n).map_err(|(index, foreign)| {
                StoreError {
                    class: FailureClass::Foreign(foreign),
                    charge: Some(index),
                    detail: "a counter of the embedded store is out of its bounds".into(),
                }
            })?;
        let writes = || charges.iter().zip(&judged.writes).filter_map(|(charge, kept)| Some((charge, kept.as_ref()?)));
        let fresh = writes().filter(|(charge, _)| !table.holds(&charge.key.digest)).count();
        if fresh > 0 && !table.has_room(fresh, now_us / 1000) {
            return Err(StoreError::new(FailureClass::Oom, "every counter of the embedded store is in use"));
        }
        for (charge, kept) in writes() {
            table.put(charge.key.digest, kept.clone());
        }
        Ok(Taken { admitted: judged.admitted, admissions: judged.admissions })
    }

    /// Counters held, those whose time is over but which were not yet swept included.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// No code under this lock can panic half-way through a charge, so a poisoned lock guards a whole table.
    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn take<'a>(&'a self, charges: &'a [Charge<'a>], n: u64, _: Instant) -> Taking<'a> {
        Box::pin(std::future::ready(self.take_now(charges, n)))
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn is_up(&self) -> bool {
        true
    }

    /// Drops every counter whose time is over. The request path sweeps as it goes, so this only matters when traffic has
    /// stopped.
    fn sweep(&self) {
        let now_ms = self.clock.now_us() / 1000;
        self.lock().sweep_all(now_ms);
    }
}

#[cfg(test)]
mod tests;
