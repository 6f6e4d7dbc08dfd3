//! plan → take → settle, within the deadline, and what a failure becomes.
//!
//! The one place where a decision is made. `authz` brings the request and carries the answer away; the store is asked
//! here and nowhere else. No await on a connection: the store answers at once if it has none.

mod local;
mod sources;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{Instant, timeout_at};

use self::local::LocalLimits;
use self::sources::SourceWatch;
use crate::decision::attributes::Attributes;
use crate::decision::key::Digest;
use crate::decision::limit::Mode;
use crate::decision::policy::{Found, LocalLimit, OnFailure, OnUnidentified, Plan, Policy, Rules, Unplanned};
use crate::decision::verdict::{Decision, FailureClass, Quota, Taken, Verdict};
use crate::store::{Store, StoreError, clock};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::once::OncePerMinute;

/// Less than this left of a budget is not worth a command: it would only be late.
const LEAST_BUDGET: Duration = Duration::from_millis(5);
/// Lines about foreign keys, a minute.
const FOREIGN_LINES: usize = 100;

/// Decides checks under rules that can be swapped while it runs.
pub struct Limiter {
    in_use: ArcSwap<InUse>,
    store: Arc<dyn Store>,
    local: LocalLimits,
    metrics: Arc<Metrics>,
    foreign_lines: OncePerMinute<Digest>,
    failure_lines: OncePerMinute<FailureClass>,
}

/// Rules, and what was learned since they came into use.
struct InUse {
    rules: Arc<Rules>,
    sources: SourceWatch,
}

impl InUse {
    fn new(rules: Rules) -> Self {
        Self { sources: SourceWatch::of(&rules), rules: Arc::new(rules) }
    }
}

impl Limiter {
    pub fn new(rules: Rules, store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        metrics.announce(rules.policies.iter());
        Self {
            in_use: ArcSwap::from_pointee(InUse::new(rules)),
            store,
            local: LocalLimits::default(),
            metrics,
            foreign_lines: OncePerMinute::new(FOREIGN_LINES),
            failure_lines: OncePerMinute::new(FailureClass::ALL.len()),
        }
    }

    /// The rules of this moment. A check holds on to them, so a swap never changes a decision under way.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.in_use.load().rules)
    }

    /// Takes new rules into use. Counters live in the store and the local limits in here, so both live on.
    pub fn swap(&self, rules: Rules) {
        self.metrics.announce(rules.policies.iter());
        self.in_use.store(Arc::new(InUse::new(rules)));
    }

    /// Gives back what counters no longer need. Called once a second.
    pub fn sweep(&self) {
        self.local.sweep();
        self.store.sweep();
    }

    /// Brings the gauges up to this moment. Called when somebody looks.
    pub fn observe(&self) {
        self.metrics.local_counters.set(i64::try_from(self.local.len()).unwrap_or(i64::MAX));
        self.metrics.store_up.set(self.store.is_up().into());
    }

    /// Decides one check by `deadline`.
    pub async fn check<'r>(&self, rules: &'r Rules, request: &Attributes<'r>, deadline: Instant) -> Decision<'r> {
        let policy = match rules.find(request) {
            Found::Policy(policy) => policy,
            Found::Unmatched => {
                return Decision::without_policy(Verdict::Unmatched(rules.unmatched));
            }
            Found::AmbiguousPath => return Decision::without_policy(Verdict::AmbiguousPath),
        };
        if policy.mode == Mode::Off {
            return Decision::of(policy, Verdict::Allowed(None));
        }
        let plan = match policy.plan(&rules.identity, request) {
            Ok(plan) => plan,
            Err(unplanned) => {
                if let Unplanned::Unidentified(missing) = &unplanned {
                    self.metrics.unidentified(policy, *missing);
                    self.in_use.load().sources.missing(*missing);
                }
                return without_store(policy, unplanned);
            }
        };
        if let Some(missing) = plan.stranger {
            self.in_use.load().sources.missing(missing);
            self.metrics.unidentified(policy, missing);
        }
        self.in_use.load().sources.found(plan.evidence());
        let decision = Decision::settle(&plan, self.take(&plan, deadline).await);
        match decision.verdict {
            Verdict::Failed(class) => self.failed(&plan, class),
            _ => decision,
        }
    }

    async fn take(&self, plan: &Plan<'_>, deadline: Instant) -> Result<Taken, FailureClass> {
        let taken = if deadline < clock::now() + LEAST_BUDGET {
            Err(StoreError::new(FailureClass::Timeout, "the caller leaves no time for a decision"))
        } else {
            // The store keeps the deadline itself; this one holds even if it did not.
            let late = |_| Err(StoreError::new(FailureClass::Timeout, "the store overran its deadline"));
            timeout_at(deadline, self.store.take(&plan.charges, 1, deadline)).await.unwrap_or_else(late)
        };
        taken.map_err(|error| {
            self.metrics.store_failed(plan.policy, error.class);
            self.report(plan, &error);
            error.class
        })
    }

    /// Tells an operator why checks fail, once a minute and class, and of state that only a person can judge what, where and
    /// what to do. That there is no connection is told by whoever looks after it.
    fn report(&self, plan: &Plan<'_>, error: &StoreError) {
        tracing::debug!(policy = %plan.policy.name, class = error.class.as_str(), reason = %error.detail, "a check failed");
        let FailureClass::Foreign(foreign) = error.class else {
            if error.class != FailureClass::Disconnected && self.failure_lines.is_due(error.class, clock::now()) {
                tracing::warn!(class = error.class.as_str(), reason = %error.detail, "checks fail: the store does not decide");
            }
            return;
        };
        let Some(charge) = error.charge.and_then(|index| plan.charges.get(index)) else {
            return;
        };
        if self.foreign_lines.is_due(charge.key.digest, clock::now()) {
            tracing::error!(policy = %plan.policy.name, limit = %charge.limit.name, reason = foreign.as_str(),
                key = %charge.key.text,
                "this key holds what the limiter did not write: its checks fail until it is removed or expires; look at it with \
                 tallygate peek --key, remove it with tallygate reset --key");
        }
    }

    fn failed<'p>(&self, plan: &Plan<'p>, class: FailureClass) -> Decision<'p> {
        let failed = || Decision { stranger: plan.stranger, ..Decision::of(plan.policy, Verdict::Failed(class)) };
        let verdict = match &plan.policy.on_failure {
            // Nothing is enforced, so there is nothing to fail.
            _ if !plan.is_enforced() => Verdict::Allowed(None),
            // Answered as allowed anyway, and counted as what it was.
            _ if plan.policy.mode == Mode::Shadow => return failed(),
            OnFailure::Closed | OnFailure::Envoy => return failed(),
            OnFailure::Open(LocalLimit::Unlimited) => Verdict::Allowed(None),
            OnFailure::Open(LocalLimit::Limited(limit)) => self.local.decide(plan, limit),
        };
        Decision { fallback: Some(class), stranger: plan.stranger, ..Decision::of(plan.policy, verdict) }
    }
}

/// The answer where there is nothing to count.
fn without_store<'p>(policy: &'p Policy, unplanned: Unplanned<'p>) -> Decision<'p> {
    let verdict = match unplanned {
        Unplanned::Unidentified(missing) if matches!(policy.on_unidentified, OnUnidentified::Allow) => {
            return Decision { stranger: Some(missing), ..Decision::of(policy, Verdict::Allowed(None)) };
        }
        Unplanned::Unidentified(missing) => Verdict::Unidentified(missing),
        Unplanned::Uncounted => Verdict::Allowed(None),
        Unplanned::Blocked(limit) => Verdict::Denied(Quota::blocked(limit)),
        Unplanned::BadCost => {
            tracing::debug!(policy = %policy.name, "the route's cost is no whole number within the policy's bounds");
            Verdict::Failed(FailureClass::Other)
        }
    };
    Decision::of(policy, verdict)
}

#[cfg(test)]
mod tests;
