//! Policies: the first that matches decides. A policy turns a request into a plan: what it would take, or why not.

use super::attributes::Attributes;
use super::identity::{Evidence, IdentitySources, Missing, Part};
use super::key::Key;
use super::limit::{Charge, Limit};
use super::matcher::{Candidate, Matcher};
use super::name::{Name, Version};
use super::path::Ambiguous;

/// What the operator wrote about requests: policies in order, and where identity comes from.
pub struct Rules {
    pub policies: Vec<Policy>,
    pub identity: IdentitySources,
    /// Whether a request that no policy matches may go on.
    pub unmatched: Answer,
    /// Whether a request whose path servers read differently may go on, where a policy asks for the path.
    pub ambiguous_path: Answer,
}

/// A fixed answer, for requests that no counter decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Allow,
    Deny,
}

/// One policy.
pub struct Policy {
    pub name: Name,
    pub version: Version,
    pub matcher: Matcher,
    /// At least one.
    pub limits: Vec<Limit>,
    pub on_unidentified: OnUnidentified,
    pub on_failure: OnFailure,
}

/// What becomes of a request that lacks a part which the policy's limits count by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUnidentified {
    Deny(DenyStatus),
    /// Let it pass uncounted: for a policy that leaves strangers to somebody else.
    Allow,
}

/// The HTTP status for a request without identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenyStatus {
    /// 401: come back with credentials.
    Unauthorized,
    /// 403.
    Forbidden,
}

/// What *Failed* becomes.
pub enum OnFailure {
    /// 503, final, whatever Envoy's `failure_mode_allow` says.
    Closed,
    /// This process decides alone, by a limit of its own.
    Open(LocalLimit),
    /// Envoy decides: its `failure_mode_allow`, else 503. Needs Envoy 1.37.
    Envoy,
}

/// What bounds a policy while the store cannot.
pub enum LocalLimit {
    Limited(Box<Limit>),
    /// Spelled out by the operator: everything passes.
    Unlimited,
}

/// Which policy a request met.
pub enum Found<'r> {
    Policy(&'r Policy),
    Unmatched,
    AmbiguousPath,
}

impl Rules {
    pub fn find(&self, request: &Attributes<'_>) -> Found<'_> {
        let candidate = Candidate::new(request);
        for policy in &self.policies {
            match policy.matcher.holds(&candidate) {
                Ok(true) => return Found::Policy(policy),
                Ok(false) => {}
                Err(Ambiguous) if self.ambiguous_path == Answer::Deny => {
                    return Found::AmbiguousPath;
                }
                Err(Ambiguous) => {}
            }
        }
        Found::Unmatched
    }
}

/// The evidence that a policy needs, each part looked up once.
pub struct Identity<'a>([Option<Evidence<'a>>; 3]);

/// A part that a limit counts by and the request does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unidentified {
    pub part: Part,
    pub missing: Missing,
}

impl<'a> Identity<'a> {
    fn resolve(policy: &Policy, sources: &'a IdentitySources, request: &Attributes<'a>) -> Result<Self, Unidentified> {
        let mut found = [None, None, None];
        for (slot, part) in found.iter_mut().zip([Part::Tenant, Part::Subject, Part::Address]) {
            if policy.counts_by(part) {
                let evidence = sources.find(part, request);
                *slot = Some(evidence.map_err(|missing| Unidentified { part, missing })?);
            }
        }
        Ok(Self(found))
    }

    /// The evidence of `parts`, in order; [`resolve`](Self::resolve) found every part that a limit names.
    fn of(&self, parts: &[Part]) -> impl Iterator<Item = &Evidence<'a>> {
        parts.iter().filter_map(|part| self.0[*part as usize].as_ref())
    }
}

/// What a request would take under its policy.
pub struct Plan<'p> {
    pub policy: &'p Policy,
    /// One for each limit, in the policy's order.
    pub charges: Vec<Charge<'p>>,
    identity: Identity<'p>,
}

impl Policy {
    /// What `request` would take. An error means that nothing may be taken: somebody is missing.
    pub fn plan<'p>(
        &'p self,
        sources: &'p IdentitySources,
        request: &Attributes<'p>,
    ) -> Result<Plan<'p>, Unidentified> {
        let identity = Identity::resolve(self, sources, request)?;
        let shared = self.shared_parts();
        let charges = self.limits.iter().map(|limit| charge(limit, &identity, &shared)).collect();
        Ok(Plan { policy: self, charges, identity })
    }

    /// The parts that all limits count by: what the Cluster tag is made of.
    pub fn shared_parts(&self) -> Vec<Part> {
        let mut parts = self.limits.first().map_or_else(Vec::new, |limit| limit.per.clone());
        parts.retain(|part| self.limits.iter().all(|limit| limit.per.contains(part)));
        parts
    }

    /// Whether any limit, the local one of an outage included, counts by `part`. The local one counts here so that
    /// a request without identity meets the same answer in an outage as before it.
    fn counts_by(&self, part: Part) -> bool {
        let local = match &self.on_failure {
            OnFailure::Open(LocalLimit::Limited(limit)) => limit.per.contains(&part),
            _ => false,
        };
        local || self.limits.iter().any(|limit| limit.per.contains(&part))
    }
}

impl<'p> Plan<'p> {
    /// The same request's charge under `limit`, the policy's local limit.
    pub fn local_charge(&self, limit: &'p Limit) -> Charge<'p> {
        charge(limit, &self.identity, &limit.per)
    }
}

fn charge<'p>(limit: &'p Limit, identity: &Identity<'p>, shared: &[Part]) -> Charge<'p> {
    let key: Key = limit.key.key(identity.of(&limit.per), identity.of(shared));
    Charge { key, limit, cost: 1 }
}

#[cfg(test)]
pub mod fixtures;
#[cfg(test)]
mod tests;
