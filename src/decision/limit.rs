//! A limit: one algorithm with its numbers, what it counts by, and the template of its keys.

use super::algorithm::{Algorithm, Role};
use super::identity::Part;
use super::key::{Key, KeyTemplate};
use super::name::Name;

/// Whether a policy or a limit acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Enforce,
    /// Counts, and never refuses: what would have been is in metrics and metadata.
    Shadow,
    /// Counts nothing: the switch for an emergency.
    Off,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }
}

/// One limit of a policy.
#[derive(Clone)]
pub struct Limit {
    pub name: Name,
    pub algorithm: Algorithm,
    /// The identity parts that this limit counts by, ordered; empty means that everybody shares one counter.
    pub per: Vec<Part>,
    pub mode: Mode,
    pub key: KeyTemplate,
}

/// What one request would take from one limit.
pub struct Charge<'p> {
    pub key: Key,
    pub limit: &'p Limit,
    /// The limit's rule, with this tenant's own numbers where an override gives some.
    pub algorithm: Algorithm,
    pub role: Role,
    /// Units, at least 1.
    pub cost: u64,
}
