//! Counters by policy: resolved when the configuration is read, gone when the policy is.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::decision::algorithm::Foreign;
use crate::decision::identity::Missing;
use crate::decision::limit::Mode;
use crate::decision::policy::{Answer, Policy, Unidentified};
use crate::decision::verdict::{Decision, Verdict};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    policy: Arc<str>,
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ForeignLabels {
    policy: Arc<str>,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MissingLabels {
    policy: Arc<str>,
    part: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    policy: Arc<str>,
    limit: Arc<str>,
}

/// The word that a decision is counted under.
pub fn verdict_word(decision: &Decision<'_>) -> &'static str {
    let shadow = decision.mode() == Mode::Shadow;
    match (&decision.verdict, decision.fallback) {
        _ if decision.mode() == Mode::Off => "off",
        (Verdict::Allowed(_), _) if decision.stranger.is_some() => "unidentified_allowed",
        (Verdict::Denied(_), _) if decision.stranger.is_some() => "unidentified_denied",
        (Verdict::Allowed(_), None) if shadow => "shadow_allowed",
        (Verdict::Allowed(_), None) => "allowed",
        (Verdict::Allowed(_), Some(_)) => "open_allowed",
        (Verdict::Denied(_), None) if shadow => "shadow_denied",
        (Verdict::Denied(_), None) => "denied",
        (Verdict::Denied(_), Some(_)) => "open_denied",
        (Verdict::Failed(_), _) if shadow => "shadow_failed",
        (Verdict::Failed(_), _) => "failed",
        (Verdict::Unidentified(_), _) if shadow => "shadow_unidentified",
        (Verdict::Unidentified(_), _) => "unidentified",
        (Verdict::Unmatched(Answer::Allow), _) => "unmatched_allowed",
        (Verdict::Unmatched(Answer::Deny), _) => "unmatched_denied",
        (Verdict::AmbiguousPath, _) => "ambiguous_path",
    }
}

const POLICY_WORDS: [&str; 13] = [
    "allowed",
    "denied",
    "open_allowed",
    "open_denied",
    "failed",
    "unidentified",
    "unidentified_allowed",
    "unidentified_denied",
    "shadow_allowed",
    "shadow_denied",
    "shadow_failed",
    "shadow_unidentified",
    "off",
];
const NO_POLICY_WORDS: [&str; 3] = ["unmatched_allowed", "unmatched_denied", "ambiguous_path"];

/// The counters of one policy in use.
struct Counters {
    verdicts: [Counter; POLICY_WORDS.len()],
    foreign: [Counter; Foreign::ALL.len()],
    /// One for each limit, by its name.
    shadow_denied: Vec<(Arc<str>, Counter)>,
}

pub struct ByPolicy {
    verdicts: Family<VerdictLabels, Counter>,
    foreign: Family<ForeignLabels, Counter>,
    shadow_denied: Family<LimitLabels, Counter>,
    missing: Family<MissingLabels, Counter>,
    in_use: ArcSwap<HashMap<Arc<str>, Counters>>,
    /// Where no policy was reached.
    no_policy: [Counter; NO_POLICY_WORDS.len()],
}

impl ByPolicy {
    pub fn register(registry: &mut Registry) -> Self {
        let verdicts = Family::default();
        registry.register("verdicts", "Answers by policy and verdict (policy empty: none matched)", verdicts.clone());
        let foreign = Family::default();
        registry.register(
            "foreign_state",
            "Checks that failed on a key which Tallygate did not write so, by policy and reason",
            foreign.clone(),
        );
        let shadow_denied = Family::default();
        let help = "Requests that passed and that a shadow limit would have refused";
        registry.register("shadow_limit_denied", help, shadow_denied.clone());
        let missing = Family::default();
        registry.register(
            "unidentified",
            "Requests that lack a part of the identity which their policy counts by, by part and reason",
            missing.clone(),
        );
        let no_policy = NO_POLICY_WORDS.map(|verdict| counter(&verdicts, VerdictLabels { policy: "".into(), verdict }));
        Self { verdicts, foreign, shadow_denied, missing, in_use: ArcSwap::default(), no_policy }
    }

    /// Makes the series of each policy, so that each is there, at zero, before its first request; those of policies that
    /// are no longer in use go.
    pub fn announce<'p>(&self, policies: impl Iterator<Item = &'p Policy>) {
        let in_use: HashMap<_, _> =
            policies.map(|policy| (policy.name.as_str().into(), self.counters(policy))).collect();
        let before = self.in_use.swap(Arc::new(in_use));
        let now = self.in_use.load();
        for (name, counters) in before.iter() {
            let kept = now.get(name);
            if kept.is_none() {
                for verdict in POLICY_WORDS {
                    self.verdicts.remove(&VerdictLabels { policy: Arc::clone(name), verdict });
                }
                for (part, reason) in Missing::all() {
                    let (part, reason) = (part.as_str(), reason.as_str());
                    self.missing.remove(&MissingLabels { policy: Arc::clone(name), part, reason });
                }
                for reason in Foreign::ALL {
                    self.foreign.remove(&ForeignLabels { policy: Arc::clone(name), reason: reason.as_str() });
                }
            }
            for (limit, _) in &counters.shadow_denied {
                if !kept.is_some_and(|kept| kept.shadow_denied.iter().any(|(name, _)| name == limit)) {
                    self.shadow_denied.remove(&LimitLabels { policy: Arc::clone(name), limit: Arc::clone(limit) });
                }
            }
        }
    }

    fn counters(&self, policy: &Policy) -> Counters {
        let name: Arc<str> = policy.name.as_str().into();
        let verdicts =
            POLICY_WORDS.map(|verdict| counter(&self.verdicts, VerdictLabels { policy: Arc::clone(&name), verdict }));
        let foreign = Foreign::ALL
            .map(|reason| counter(&self.foreign, ForeignLabels { policy: Arc::clone(&name), reason: reason.as_str() }));
        let shadow = policy.limits.iter().filter(|limit| limit.mode == Mode::Shadow).map(|limit| {
            let limit: Arc<str> = limit.name.as_str().into();
            let labels = LimitLabels { policy: Arc::clone(&name), limit: Arc::clone(&limit) };
            (limit, counter(&self.shadow_denied, labels))
        });
        // Parts and reasons are closed sets: the series are there from the start, and no request can add one.
        for (part, reason) in Missing::all().filter(|(part, _)| policy.counts_by(*part)) {
            let labels = MissingLabels { policy: Arc::clone(&name), part: part.as_str(), reason: reason.as_str() };
            counter(&self.missing, labels);
        }
        Counters { verdicts, foreign, shadow_denied: shadow.collect() }
    }

    pub fn decided(&self, decision: &Decision<'_>) {
        let word = verdict_word(decision);
        let place = |words: &[&str]| words.iter().position(|known| *known == word);
        let Some(policy) = decision.policy else {
            if let Some(place) = place(&NO_POLICY_WORDS) {
                self.no_policy[place].inc();
            }
            return;
        };
        // A policy that a reload has just removed has no series any more.
        let in_use = self.in_use.load();
        let Some((counters, place)) = in_use.get(policy.name.as_str()).zip(place(&POLICY_WORDS)) else { return };
        counters.verdicts[place].inc();
        for limit in &decision.shadow_denied {
            if let Some((_, counter)) = counters.shadow_denied.iter().find(|(name, _)| **name == *limit.name.as_str()) {
                counter.inc();
            }
        }
    }

    pub fn unidentified(&self, policy: &Policy, missing: Unidentified) {
        if let Some((name, _)) = self.in_use.load().get_key_value(policy.name.as_str()) {
            let labels = MissingLabels {
                policy: Arc::clone(name),
                part: missing.part.as_str(),
                reason: missing.missing.as_str(),
            };
            counter(&self.missing, labels).inc();
        }
    }

    pub fn met_foreign(&self, policy: &Policy, reason: Foreign) {
        let place = Foreign::ALL.iter().position(|known| *known == reason);
        let in_use = self.in_use.load();
        if let Some((counters, place)) = in_use.get(policy.name.as_str()).zip(place) {
            counters.foreign[place].inc();
        }
    }
}

/// The counter for these labels, made if it is not there yet.
fn counter<L>(family: &Family<L, Counter>, labels: L) -> Counter
where
    L: Clone + std::hash::Hash + Eq,
{
    family.get_or_create_owned(&labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::policy::fixtures;

    fn rendered(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn a_policys_series_are_there_before_its_first_request_and_go_with_it() {
        let mut registry = Registry::default();
        let metrics = ByPolicy::register(&mut registry);
        let mut policy = fixtures::policy(&[("a", 1, &[])]);
        policy.limits[0].mode = Mode::Shadow;
        metrics.announce([&policy].into_iter());
        let text = rendered(&registry);
        assert!(text.contains("verdicts_total{policy=\"p\",verdict=\"denied\"} 0"), "{text}");
        assert!(text.contains("shadow_limit_denied_total{policy=\"p\",limit=\"a\"} 0"), "{text}");
        policy.limits[0].mode = Mode::Enforce;
        metrics.announce([&policy].into_iter());
        assert!(!rendered(&registry).contains("limit=\"a\""));
        metrics.announce([].into_iter());
        assert!(!rendered(&registry).contains("policy=\"p\""));
    }

    #[test]
    fn every_verdict_has_a_series_to_count_in() {
        let mut registry = Registry::default();
        let metrics = ByPolicy::register(&mut registry);
        let mut policy = fixtures::policy(&[("a", 1, &[])]);
        metrics.announce([&policy].into_iter());
        for mode in [Mode::Enforce, Mode::Shadow, Mode::Off] {
            policy.mode = mode;
            metrics.decided(&Decision::of(&policy, Verdict::Allowed(None)));
            metrics.decided(&Decision::of(&policy, Verdict::Failed(crate::decision::verdict::FailureClass::Timeout)));
        }
        metrics.decided(&Decision::without_policy(Verdict::AmbiguousPath));
        let text = rendered(&registry);
        for word in ["allowed", "failed", "shadow_allowed", "shadow_failed", "ambiguous_path"] {
            assert!(text.lines().any(|line| line.contains(&format!("\"{word}\"}} 1"))), "{word} in {text}");
        }
        assert!(text.contains("verdict=\"off\"} 2"), "{text}");
    }
}
