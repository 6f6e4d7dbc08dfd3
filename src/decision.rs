//! The pure core: who asks, which policy holds, what it would take, and what the answer means.
//!
//! ```text
//!  Attributes ──► Rules::find ──► Policy ──► Policy::plan ──► Charges ──► (store) ──► Verdict::settle
//!   attributes     matcher        policy     identity, key     limit                     verdict
//! ```
//!
//! Claims that hold for every file below here:
//! - no async, no I/O, no clock: time comes in as the store's microseconds;
//! - no protobuf, Redis or YAML type: those stay in `authz`, `store` and `config`;
//! - integers only; a type that exists is valid, so nothing here checks a number twice;
//! - nothing here formats a tenant, a subject or a secret: they leave as a keyed hash or not at all.
//!
//! Called by `limiter` (plan, settle), `store/memory` (the algorithms' rules) and `config` (construction).

pub mod address;
pub mod algorithm;
pub mod attributes;
pub mod fixed_window;
pub mod identity;
pub mod key;
pub mod limit;
pub mod matcher;
pub mod name;
pub mod overrides;
pub mod path;
pub mod policy;
pub mod sliding_log;
pub mod sliding_window;
pub mod spiffe;
pub mod token_bucket;
pub mod verdict;
