//! Inputs that nobody would write, in great number: no one crashes the process, hangs it, or is taken for another.
//!
//! Seeds are honest inputs; each case mutates one. Without settings every run tries the same cases, as many as fit into
//! the time, so that a change is judged by its own merits: `cargo test --test fuzz -- --test-threads=1`. For others:
//!
//! - `TALLYGATE_FUZZ_SECONDS`: how long all targets together take (`make fuzz FUZZ_SECONDS=3600`),
//! - `TALLYGATE_FUZZ_SEED`: other cases (`make fuzz` takes the time),
//! - `TALLYGATE_FUZZ_CASE`: only this one, with the seed that a failure printed.
//!
//! What is found is mended and becomes a test near the code, with its input.

#![expect(clippy::disallowed_methods, reason = "a driver has a clock of its own")]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says why and stops"
)]

#[path = "support/support.rs"]
#[expect(dead_code, reason = "the suite uses the rest")]
mod support;

mod fuzz {
    mod configurations;
    mod driver;
    mod frames;
    mod mutate;
    mod paths;
    mod replies;
    mod requests;
    mod seeds;
    mod translation;
}
