//! The answer for one request, and how the store's answer becomes it.

use super::algorithm::{Admission, Algorithm, Foreign, Role};
use super::limit::{Limit, Mode};
use super::policy::{Answer, Plan, Policy, Unidentified};

/// The store's answer for a whole call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// How many of the equal requests in the call passed, each charged in full; the others took nothing.
    pub admitted: u64,
    /// One for each charge, in order.
    pub admissions: Vec<Admission>,
}

/// The answer for one request.
pub struct Decision<'p> {
    /// `None` where no policy was reached.
    pub policy: Option<&'p Policy>,
    pub verdict: Verdict<'p>,
    /// Set where the store failed and this process decided alone.
    pub fallback: Option<FailureClass>,
    /// Shadow limits that would have refused the request.
    pub shadow_denied: Vec<&'p Limit>,
    /// Set where the request lacked a part and was counted by its address.
    pub stranger: Option<Unidentified>,
}

/// What the answer says.
pub enum Verdict<'p> {
    /// `None`: nothing was counted.
    Allowed(Option<Quota<'p>>),
    Denied(Quota<'p>),
    Failed(FailureClass),
    Unidentified(Unidentified),
    /// No policy matched; the operator's fixed answer.
    Unmatched(Answer),
    AmbiguousPath,
}

/// Where one limit stands for this identity: the limit that binds.
pub struct Quota<'p> {
    pub limit: &'p Limit,
    /// The rule that held, with this tenant's own numbers.
    pub algorithm: Algorithm,
    pub admission: Admission,
}

impl Quota<'_> {
    /// When to come back, or `None` where waiting does not help.
    pub fn retry_after(&self) -> Option<RetryAfter> {
        self.admission.retry_after_ms.map(RetryAfter::from_ms)
    }
}

/// Whole seconds to wait, rounded up, at least 1 (RFC 9110, 10.2.3): a client that waits so long and is alone is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetryAfter(u64);

impl RetryAfter {
    /// What a *Failed* answer asks for: the store may be back any moment.
    pub const SOON: Self = Self(1);

    pub fn from_ms(ms: u64) -> Self {
        Self(ms.div_ceil(1000).max(1))
    }

    pub fn seconds(self) -> u64 {
        self.0
    }
}

/// Why a check failed: a closed set, found by the structure of an error and never by its wording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureClass {
    /// No answer within the budget. It may have been counted.
    Timeout,
    /// No usable connection, or it broke. A command under way may have been counted.
    Disconnected,
    /// The store read the command after its deadline and did nothing.
    Late,
    /// A script or function is blocking the store.
    Busy,
    /// The store is reading its data.
    Loading,
    /// The node is a replica, lost its master, or lacks replicas.
    Readonly,
    /// The store is full, or cannot persist.
    Oom,
    /// Wrong password, or a command or key that the user may not use.
    Permission,
    /// The Cluster does not serve this slot at the moment.
    Cluster,
    /// A reply of a shape that the script does not make.
    Malformed,
    /// State that the limiter did not write.
    Foreign(Foreign),
    /// More checks in flight than this process takes on.
    Overload,
    RequestTooLarge,
    Undecodable,
    /// A fault in Tallygate itself.
    Panic,
    Other,
}

impl FailureClass {
    /// Every class, each kind of foreign state included once.
    pub const ALL: [Self; 20] = [
        Self::Timeout,
        Self::Disconnected,
        Self::Late,
        Self::Busy,
        Self::Loading,
        Self::Readonly,
        Self::Oom,
        Self::Permission,
        Self::Cluster,
        Self::Malformed,
        Self::Foreign(Foreign::WrongType),
        Self::Foreign(Foreign::NoExpiry),
        Self::Foreign(Foreign::Malformed),
        Self::Foreign(Foreign::WrongExpiry),
        Self::Foreign(Foreign::AheadOfClock),
        Self::Overload,
        Self::RequestTooLarge,
        Self::Undecodable,
        Self::Panic,
        Self::Other,
    ];

    /// A word of a closed set, for metrics, logs and metadata.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Disconnected => "disconnected",
            Self::Late => "late",
            Self::Busy => "busy",
            Self::Loading => "loading",
            Self::Readonly => "readonly",
            Self::Oom => "oom",
            Self::Permission => "permission",
            Self::Cluster => "cluster",
            Self::Malformed => "malformed",
            Self::Foreign(_) => "foreign",
            Self::Overload => "overload",
            Self::RequestTooLarge => "request_too_large",
            Self::Undecodable => "undecodable",
            Self::Panic => "panic",
            Self::Other => "other",
        }
    }
}

impl<'p> Decision<'p> {
    pub fn of(policy: &'p Policy, verdict: Verdict<'p>) -> Self {
        Self { policy: Some(policy), verdict, fallback: None, shadow_denied: Vec::new(), stranger: None }
    }

    pub fn without_policy(verdict: Verdict<'p>) -> Self {
        Self { policy: None, verdict, fallback: None, shadow_denied: Vec::new(), stranger: None }
    }

    /// What the store's answer means for the request that `plan` was made for.
    pub fn settle(plan: &Plan<'p>, answer: Result<Taken, FailureClass>) -> Self {
        let of = |verdict| Self { stranger: plan.stranger, ..Self::of(plan.policy, verdict) };
        let failed = |class| of(Verdict::Failed(class));
        let taken = match answer {
            Ok(taken) if taken.admissions.len() == plan.charges.len() => taken,
            Ok(_) => return failed(FailureClass::Malformed),
            Err(class) => return failed(class),
        };
        let answered = || plan.charges.iter().zip(&taken.admissions);
        let quotas = answered().filter(|(charge, _)| charge.role == Role::Enforced).map(|(charge, admission)| Quota {
            limit: charge.limit,
            algorithm: charge.algorithm,
            admission: *admission,
        });
        if taken.admitted > 0 {
            let shadow_denied = answered().filter(|(_, admission)| admission.charged < taken.admitted);
            let shadow_denied = shadow_denied.map(|(charge, _)| charge.limit).collect();
            Self { shadow_denied, ..of(Verdict::Allowed(quotas.reduce(tighter))) }
        } else {
            quotas
                .reduce(longer_wait)
                .map_or_else(|| failed(FailureClass::Malformed), |quota| of(Verdict::Denied(quota)))
        }
    }

    /// The mode of the policy that decided: whether its verdict is acted on.
    pub fn mode(&self) -> Mode {
        self.policy.map_or(Mode::Enforce, |policy| policy.mode)
    }
}

impl<'p> Quota<'p> {
    /// A limit that this tenant can never pass.
    pub fn blocked(limit: &'p Limit) -> Self {
        let admission = Admission { charged: 0, remaining: 0, retry_after_ms: None, reset_after_ms: 0 };
        Self { limit, algorithm: limit.algorithm, admission }
    }
}

/// Of two limits the one with the smaller share left; ties by order.
fn tighter<'p>(first: Quota<'p>, second: Quota<'p>) -> Quota<'p> {
    let share = |quota: &Quota<'_>, other: &Quota<'_>| {
        u128::from(quota.admission.remaining) * u128::from(other.algorithm.quota())
    };
    if share(&second, &first) < share(&first, &second) { second } else { first }
}

/// Of two limits the one that asks for the longer wait, *never* being the longest; ties by order.
fn longer_wait<'p>(first: Quota<'p>, second: Quota<'p>) -> Quota<'p> {
    let wait = |quota: &Quota<'_>| quota.admission.retry_after_ms.unwrap_or(u64::MAX);
    if wait(&second) > wait(&first) { second } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::policy::fixtures;

    #[test]
    fn retry_after_is_whole_seconds_rounded_up_and_at_least_one() {
        // RL-11
        for (ms, seconds) in [(30_500, 31), (1_100, 2), (1_000, 1), (400, 1), (0, 1), (60_000, 60)] {
            assert_eq!(RetryAfter::from_ms(ms).seconds(), seconds, "{ms} ms");
        }
    }

    fn admission(charged: u64, remaining: u64, retry_after_ms: Option<u64>) -> Admission {
        Admission { charged, remaining, retry_after_ms, reset_after_ms: 0 }
    }

    /// A policy of two limits, 10 and 100 a second, settled with `answer`: the verdict and the limit that binds.
    fn settle(answer: Result<Taken, FailureClass>) -> String {
        let policy = fixtures::policy(&[("narrow", 10, &[]), ("broad", 100, &[])]);
        let sources = Default::default();
        let plan = fixtures::plan(&policy, &sources);
        match Decision::settle(&plan, answer).verdict {
            Verdict::Allowed(Some(quota)) => format!("allowed {}", quota.limit.name),
            Verdict::Denied(quota) => format!("denied {}", quota.limit.name),
            Verdict::Failed(class) => format!("failed {}", class.as_str()),
            _ => "something else".to_owned(),
        }
    }

    #[test]
    fn the_limit_that_binds_is_the_longest_wait_or_the_smallest_share_left() {
        let allowed =
            |a, b| Ok(Taken { admitted: 1, admissions: vec![admission(1, a, Some(0)), admission(1, b, Some(0))] });
        let denied = |a, b| Ok(Taken { admitted: 0, admissions: vec![admission(0, 0, a), admission(0, 0, b)] });
        assert_eq!(settle(allowed(5, 40)), "allowed broad");
        assert_eq!(settle(allowed(5, 50)), "allowed narrow");
        assert_eq!(settle(allowed(5, 60)), "allowed narrow");
        assert_eq!(settle(denied(Some(5), Some(9))), "denied broad");
        assert_eq!(settle(denied(Some(9), Some(9))), "denied narrow");
        assert_eq!(settle(denied(None, Some(9))), "denied narrow");
        assert_eq!(settle(denied(Some(9), None)), "denied broad");
    }

    #[test]
    fn an_answer_for_other_charges_is_never_an_allow() {
        assert_eq!(settle(Ok(Taken { admitted: 1, admissions: vec![] })), "failed malformed");
        assert_eq!(settle(Err(FailureClass::Timeout)), "failed timeout");
    }
}
