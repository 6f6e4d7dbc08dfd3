//! A limit: one algorithm with its numbers, what it counts by, and the template of its keys.

use super::algorithm::Algorithm;
use super::identity::Part;
use super::key::{Key, KeyTemplate};
use super::name::Name;

/// One limit of a policy.
#[derive(Clone)]
pub struct Limit {
    pub name: Name,
    pub algorithm: Algorithm,
    /// The identity parts that this limit counts by, ordered; empty means that everybody shares one counter.
    pub per: Vec<Part>,
    pub key: KeyTemplate,
}

/// What one request would take from one limit.
pub struct Charge<'p> {
    pub key: Key,
    pub limit: &'p Limit,
    /// Units, at least 1.
    pub cost: u64,
}
