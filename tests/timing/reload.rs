//! A changed file is live soon, without a signal (RL-33).

use std::time::{Duration, Instant};

use crate::support::setup::Setup;
use crate::support::wait::wait_for;
use crate::timing::stall::StallProbe;

#[test]
fn a_changed_file_is_live_within_5_s() {
    let stall = StallProbe::start();
    let with = |limit| Setup::memory().policy("orders", limit, "1h", "closed");
    let sidecar = with(1).start();
    for limit in 2..=3 {
        let changed = Instant::now();
        sidecar.rewrite(&with(limit));
        let wanted = format!("only: {limit} every 1h");
        wait_for("the change to be live", Duration::from_secs(20), || sidecar.get("/config").text().contains(&wanted));
        let (took, bound) = (changed.elapsed(), stall.bound(Duration::from_secs(5)));
        assert!(took <= bound, "live after {took:?}, more than {bound:?}");
    }
}
