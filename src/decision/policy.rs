//! Policies: the first that matches decides. A policy turns a request into a plan: what it would take, or why not.

use super::algorithm::Role;
use super::attributes::Attributes;
use super::identity::{Evidence, IdentitySources, Missing, Part};
use super::key::Key;
use super::limit::{Charge, Limit, Mode};
use super::matcher::{Candidate, Matcher};
use super::name::{Name, Version};
use super::overrides::{Overrides, Set};
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
    pub mode: Mode,
    /// At least one.
    pub limits: Vec<Limit>,
    pub cost: Cost,
    pub overrides: Overrides,
    pub on_unidentified: OnUnidentified,
    pub on_failure: OnFailure,
}

/// How many units one request takes from every limit of its policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cost {
    /// At least 1.
    Fixed(u64),
    /// A value of the route's `context_extensions`, which a client cannot touch, from 1 to `max`; `default` where the route
    /// has none.
    Route { key: Box<str>, default: u64, max: u64 },
}

impl Cost {
    /// The most that any request may cost.
    pub const MAX: u64 = 1_000_000;

    /// The most that a request of this policy costs.
    pub fn most(&self) -> u64 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Route { max, .. } => *max,
        }
    }

    fn of(&self, request: &Attributes<'_>) -> Option<u64> {
        match self {
            Self::Fixed(cost) => Some(*cost),
            Self::Route { key, default, max } => match request.route.get(&**key) {
                None => Some(*default),
                Some(text) => {
                    let plain = text.bytes().all(|b| b.is_ascii_digit());
                    text.parse().ok().filter(|cost| plain && (1..=*max).contains(cost))
                }
            },
        }
    }
}

/// What becomes of a request that lacks a part which the policy's limits count by.
pub enum OnUnidentified {
    Deny(DenyStatus),
    /// Let it pass uncounted: for a policy that leaves strangers to somebody else.
    Allow,
    /// Count strangers by their address, under a limit of their own; without an address they are denied with 401.
    ByAddress(Box<Limit>),
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

/// Why there is nothing to ask a store about.
pub enum Unplanned<'p> {
    Unidentified(Unidentified),
    /// An override gives this tenant nothing under this limit.
    Blocked(&'p Limit),
    /// The route names a cost that is no whole number within the policy's bounds.
    BadCost,
    /// No limit counts this request.
    Uncounted,
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
    /// At least one, in the policy's order.
    pub charges: Vec<Charge<'p>>,
    /// Set where the request lacks a part and is counted by its address instead.
    pub stranger: Option<Unidentified>,
    identity: Identity<'p>,
}

impl Policy {
    /// What `request` would take. An error means that nothing may be taken.
    pub fn plan<'p>(
        &'p self,
        sources: &'p IdentitySources,
        request: &Attributes<'p>,
    ) -> Result<Plan<'p>, Unplanned<'p>> {
        let identity = match (Identity::resolve(self, sources, request), &self.on_unidentified) {
            (Ok(identity), _) => identity,
            (Err(missing), OnUnidentified::ByAddress(limit)) => {
                return self.plan_stranger(missing, limit, sources, request);
            }
            (Err(missing), _) => return Err(Unplanned::Unidentified(missing)),
        };
        let cost = self.cost.of(request).ok_or(Unplanned::BadCost)?;
        let shared = self.shared_parts();
        let mut charges = Vec::with_capacity(self.limits.len());
        for (place, limit) in self.limits.iter().enumerate() {
            let role = match limit.mode {
                Mode::Enforce => Role::Enforced,
                Mode::Shadow => Role::Shadow,
                Mode::Off => continue,
            };
            let mut algorithm = limit.algorithm;
            let tenant = identity.0[Part::Tenant as usize].as_ref();
            match tenant.and_then(|tenant| self.overrides.find(tenant, place)) {
                Some(Set::Block) if role == Role::Enforced => return Err(Unplanned::Blocked(limit)),
                Some(Set::Block | Set::Unlimited) => continue,
                Some(Set::Numbers(own)) => algorithm = own,
                None => {}
            }
            let key = limit.key.key(identity.of(&limit.per), identity.of(&shared));
            charges.push(Charge { key, limit, algorithm, role, cost });
        }
        if charges.is_empty() {
            Err(Unplanned::Uncounted)
        } else {
            Ok(Plan { policy: self, charges, stranger: None, identity })
        }
    }

    /// Strangers are counted by address alone, apart from everybody with an identity: the limit's name is in the key.
    fn plan_stranger<'p>(
        &'p self,
        missing: Unidentified,
        limit: &'p Limit,
        sources: &'p IdentitySources,
        request: &Attributes<'p>,
    ) -> Result<Plan<'p>, Unplanned<'p>> {
        let address = sources.find(Part::Address, request).map_err(|_| Unplanned::Unidentified(missing))?;
        let cost = self.cost.of(request).ok_or(Unplanned::BadCost)?;
        let identity = Identity([None, None, Some(address)]);
        let key = limit.key.key(identity.of(&limit.per), identity.of(&limit.per));
        let charge = Charge { key, limit, algorithm: limit.algorithm, role: Role::Enforced, cost };
        Ok(Plan { policy: self, charges: vec![charge], stranger: Some(missing), identity })
    }

    /// The key of each limit for the evidence that `of` gives, in order; an error names a part that it does not give.
    pub fn keys<'e>(&self, of: impl Fn(Part) -> Option<&'e Evidence<'e>>) -> Vec<Result<Key, Part>> {
        let shared = self.shared_parts();
        let each = |limit: &Limit| {
            let given = |part: &Part| of(*part).ok_or(*part);
            let parts = limit.per.iter().map(given).collect::<Result<Vec<_>, _>>()?;
            let shared = shared.iter().map(given).collect::<Result<Vec<_>, _>>()?;
            Ok(limit.key.key(parts.into_iter(), shared.into_iter()))
        };
        self.limits.iter().map(each).collect()
    }

    /// The parts that all limits count by: what the Cluster tag is made of.
    pub fn shared_parts(&self) -> Vec<Part> {
        let mut parts = self.limits.first().map_or_else(Vec::new, |limit| limit.per.clone());
        parts.retain(|part| self.limits.iter().all(|limit| limit.per.contains(part)));
        parts
    }

    /// Whether any limit, the local one of an outage included, counts by `part`. The local one counts here so that
    /// a request without identity meets the same answer in an outage as before it.
    pub fn counts_by(&self, part: Part) -> bool {
        let local = match &self.on_failure {
            OnFailure::Open(LocalLimit::Limited(limit)) => limit.per.contains(&part),
            _ => false,
        };
        local || self.limits.iter().any(|limit| limit.mode != Mode::Off && limit.per.contains(&part))
    }
}

impl<'p> Plan<'p> {
    /// The kind of evidence that each part was found by.
    pub fn evidence(&self) -> impl Iterator<Item = (Part, &str)> {
        let parts = [Part::Tenant, Part::Subject, Part::Address];
        parts.into_iter().zip(&self.identity.0).filter_map(|(part, found)| Some((part, found.as_ref()?.kind)))
    }

    /// Whether some charge can refuse the request.
    pub fn is_enforced(&self) -> bool {
        self.charges.iter().any(|charge| charge.role == Role::Enforced)
    }

    /// The same request's charge under `limit`, the policy's local limit.
    pub fn local_charge(&self, limit: &'p Limit) -> Charge<'p> {
        // A stranger has nothing but an address, and must not share one counter with all strangers.
        let per: &[Part] = if self.stranger.is_some() { &[Part::Address] } else { &limit.per };
        let key = limit.key.key(self.identity.of(per), self.identity.of(per));
        let cost = self.charges.first().map_or(1, |charge| charge.cost);
        Charge { key, limit, algorithm: limit.algorithm, role: Role::Enforced, cost }
    }
}

#[cfg(test)]
pub mod fixtures;
#[cfg(test)]
mod tests;
