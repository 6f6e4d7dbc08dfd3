//! Numbers of their own for single tenants: a larger plan, a block, or none at all.
//!
//! Only numbers differ; algorithm and window are the limit's, so a tenant keeps its counters when it gets an override.

use std::collections::HashMap;

use super::algorithm::Algorithm;
use super::identity::Evidence;

/// The overrides of one policy, by the tenant's value.
#[derive(Debug, Clone, Default)]
pub struct Overrides(HashMap<Box<[u8]>, Vec<Override>>);

/// One entry: for whom, for which limit, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    pub tenant: TenantMatch,
    /// The limit's place in its policy.
    pub limit: usize,
    pub set: Set,
}

/// A tenant with its evidence, as far as the operator has to tell tenants apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantMatch {
    pub value: Box<str>,
    /// The kind of evidence, like `jwt/tid`.
    pub source: Option<Box<str>>,
    pub issuer: Option<Box<str>>,
}

/// What holds instead of the limit's own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    Numbers(Algorithm),
    /// Nothing passes.
    Block,
    /// This limit does not count this tenant.
    Unlimited,
}

impl TenantMatch {
    fn is(&self, tenant: &Evidence<'_>) -> bool {
        self.source.as_ref().is_none_or(|source| **source == *tenant.kind)
            && self.issuer.as_ref().is_none_or(|issuer| **issuer == *tenant.issuer)
    }
}

impl Overrides {
    pub fn new(entries: impl IntoIterator<Item = Override>) -> Self {
        let mut by_value: HashMap<Box<[u8]>, Vec<Override>> = HashMap::new();
        for entry in entries {
            by_value.entry(entry.tenant.value.as_bytes().into()).or_default().push(entry);
        }
        Self(by_value)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What holds for `tenant` under the limit at place `limit`; the first entry that fits.
    pub fn find(&self, tenant: &Evidence<'_>, limit: usize) -> Option<Set> {
        let entries = self.0.get(&*tenant.value)?;
        entries.iter().find(|entry| entry.limit == limit && entry.tenant.is(tenant)).map(|entry| entry.set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_is_for_the_tenant_with_its_evidence() {
        let entry = |source: Option<&str>, limit, set| Override {
            tenant: TenantMatch { value: "acme".into(), source: source.map(Into::into), issuer: None },
            limit,
            set,
        };
        let overrides = Overrides::new([entry(Some("jwt/tid"), 0, Set::Block), entry(None, 1, Set::Unlimited)]);
        let tenant = |kind, value: &'static str| Evidence { kind, issuer: "i", value: value.as_bytes().into() };
        assert_eq!(overrides.find(&tenant("jwt/tid", "acme"), 0), Some(Set::Block));
        assert_eq!(overrides.find(&tenant("route/tenant", "acme"), 0), None);
        assert_eq!(overrides.find(&tenant("route/tenant", "acme"), 1), Some(Set::Unlimited));
        assert_eq!(overrides.find(&tenant("jwt/tid", "other"), 0), None);
    }
}
