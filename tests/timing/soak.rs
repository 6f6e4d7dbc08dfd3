//! How long faults last: as long as shows them in `make test`, as long as users met them in `make soak`.

use std::time::Duration;

/// `short`, or `field` where `TALLYGATE_SOAK` is set; in seconds.
pub fn lasts(short: u64, field: u64) -> Duration {
    let soaking = std::env::var_os("TALLYGATE_SOAK").is_some();
    Duration::from_secs(if soaking { field } else { short })
}
