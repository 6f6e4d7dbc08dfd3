//! How long faults last: as long as shows them in `make test`, as long as users met them in `make soak`.

use std::time::Duration;

/// `short`, or `field` where `TALLYGATE_SOAK` is set; in seconds.
pub fn lasts(short: u64, field: u64) -> Duration {
    Duration::from_secs(if is_soaking() { field } else { short })
}

/// The same for how often something happens.
pub fn times(short: usize, field: usize) -> usize {
    if is_soaking() { field } else { short }
}

fn is_soaking() -> bool {
    std::env::var_os("TALLYGATE_SOAK").is_some()
}
