//! What operators see: metrics and logs. No identity, key material or secret goes through here.

pub mod logs;
pub mod metrics;
pub mod once;
