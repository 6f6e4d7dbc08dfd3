//! What Tallygate promises about time and memory. Run alone and one test at a time:
//! `cargo test --test timing -- --test-threads=1`.
//!
//! A bound is the promised one, plus 50 ms, plus the longest stall that a thread of this process met meanwhile: a busy
//! machine delays the sidecar and the test alike, and that is no fault of either.

#![expect(clippy::disallowed_methods, reason = "what is measured here is time as a client sees it")]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says why and stops"
)]

#[path = "support/support.rs"]
#[expect(dead_code, reason = "the suite uses the rest")]
mod support;

mod timing {
    mod cluster;
    mod cluster_network;
    mod crashes;
    mod crossed;
    mod descriptors;
    mod envoy;
    mod handshakes;
    mod healing;
    mod health;
    mod load;
    mod memory;
    mod outage;
    mod refusing;
    mod reload;
    mod remains;
    mod replies;
    mod sentinel;
    mod slow;
    mod soak;
    mod stall;
    mod steady;
}
