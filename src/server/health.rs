//! Readiness from named conditions. Liveness and readiness speak of this process: a Redis that is away is no reason to
//! take sidecars out of service which could still answer by their policies.

use std::sync::atomic::{AtomicBool, Ordering};

/// The conditions of `/readyz`. A configuration is loaded before this exists.
#[derive(Debug, Default)]
pub struct Readiness {
    listening: AtomicBool,
    draining: AtomicBool,
}

impl Readiness {
    pub fn set_listening(&self, listening: bool) {
        self.listening.store(listening, Ordering::Release);
    }

    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Each condition and whether it holds.
    pub fn conditions(&self) -> [(&'static str, bool); 3] {
        [
            ("configuration_loaded", true),
            ("listening", self.listening.load(Ordering::Acquire)),
            ("not_draining", !self.draining.load(Ordering::Acquire)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_from_listening_to_draining() {
        let readiness = Readiness::default();
        let failing = || {
            let conditions = readiness.conditions().into_iter();
            conditions.filter(|(_, holds)| !holds).map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(failing(), ["listening"]);
        readiness.set_listening(true);
        assert_eq!(failing(), [""; 0]);
        readiness.set_draining();
        assert_eq!(failing(), ["not_draining"]);
    }
}
