//! Where counters live: the one contract, and why a store could not keep it.
//!
//! *take* is the only verb: charge all or none, at one instant of the store's own clock. Two stores keep it:
//! [`redis`], shared by every sidecar, and [`memory`], exact for one process. Called by `limiter` alone.

pub mod clock;
pub mod memory;
pub mod redis;

use std::borrow::Cow;
use std::pin::Pin;

use tokio::time::Instant;

use crate::decision::limit::Charge;
use crate::decision::verdict::{FailureClass, Taken};

/// The future of one [`Store::take`].
pub type Taking<'a> = Pin<Box<dyn Future<Output = Result<Taken, StoreError>> + Send + 'a>>;

/// The contract. An implementation never waits for a connection, never charges twice, never charges after
/// `deadline`, and answers by it.
pub trait Store: Send + Sync {
    /// Charges `n` equal requests (at least 1) as far as they fit, each for all of `charges` or for none. The keys
    /// of one call are all different.
    fn take<'a>(&'a self, charges: &'a [Charge<'a>], n: u64, deadline: Instant) -> Taking<'a>;

    /// Whether other processes count here too.
    fn is_shared(&self) -> bool;

    /// Whether a check would be tried at this moment, rather than failed at once.
    fn is_up(&self) -> bool;

    /// Gives back the memory of counters whose time is over, where that is this process's.
    fn sweep(&self) {}
}

/// Why a call failed. What it would have charged may have been charged only where the class says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", class.as_str())]
pub struct StoreError {
    pub class: FailureClass,
    /// The place of the charge at fault, for state that the limiter did not write.
    pub charge: Option<usize>,
    /// For the operator's log; no identity and no credential is ever in it.
    pub detail: Cow<'static, str>,
}

impl StoreError {
    pub fn new(class: FailureClass, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { class, charge: None, detail: detail.into() }
    }
}
