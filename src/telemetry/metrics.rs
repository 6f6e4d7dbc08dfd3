//! Metrics. Every series depends on the configuration alone, never on traffic: labels are policies and closed sets.
//!
//! Counters of a policy are resolved when the configuration is read and held, so a check only adds to atomics.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::decision::algorithm::Foreign;
use crate::decision::policy::{Answer, Policy};
use crate::decision::verdict::{Decision, FailureClass, Verdict};

/// Upper ends of the decision time's buckets, in seconds: from a local answer to past the shipped Envoy time-out.
const DECISION_BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    policy: Arc<str>,
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ForeignLabels {
    policy: Arc<str>,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SecretLabel {
    fingerprint: Arc<str>,
}

/// Every metric of the process.
pub struct Metrics {
    registry: Registry,
    verdicts: Family<VerdictLabels, Counter>,
    store_errors: Family<ClassLabel, Counter>,
    foreign: Family<ForeignLabels, Counter>,
    guard: Family<CauseLabel, Counter>,
    decision: Histogram,
    pub store_up: Gauge,
    pub store_shared: Gauge,
    pub config_generation: Gauge,
    pub config_last_reload_failed: Gauge,
    pub local_counters: Gauge,
    secret: Family<SecretLabel, Gauge>,
    /// The counters of each policy in use, by its name.
    policies: ArcSwap<HashMap<Arc<str>, PolicyCounters>>,
    /// Where no policy was reached.
    no_policy: [Counter; NO_POLICY_WORDS.len()],
}

struct PolicyCounters {
    verdicts: [Counter; POLICY_WORDS.len()],
    foreign: [Counter; Foreign::ALL.len()],
}

/// The word that a decision is counted under.
pub fn verdict_word(decision: &Decision<'_>) -> &'static str {
    match (&decision.verdict, decision.fallback) {
        (Verdict::Allowed(_), None) => "allowed",
        (Verdict::Allowed(_), Some(_)) => "open_allowed",
        (Verdict::Denied(_), None) => "denied",
        (Verdict::Denied(_), Some(_)) => "open_denied",
        (Verdict::Failed(_), _) => "failed",
        (Verdict::Unidentified(_), _) => "unidentified",
        (Verdict::Unmatched(Answer::Allow), _) => "unmatched_allowed",
        (Verdict::Unmatched(Answer::Deny), _) => "unmatched_denied",
        (Verdict::AmbiguousPath, _) => "ambiguous_path",
    }
}

const POLICY_WORDS: [&str; 6] = ["allowed", "denied", "open_allowed", "open_denied", "failed", "unidentified"];
const NO_POLICY_WORDS: [&str; 3] = ["unmatched_allowed", "unmatched_denied", "ambiguous_path"];

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("tallygate");
        let verdicts = Family::default();
        registry.register("verdicts", "Answers by policy and verdict (policy empty: none matched)", verdicts.clone());
        let store_errors = Family::default();
        registry.register("store_errors", "Checks that the store failed, by class", store_errors.clone());
        let foreign = Family::default();
        registry.register("foreign_state", "Checks that met state which the limiter did not write", foreign.clone());
        let guard = Family::default();
        registry.register("guard", "Calls answered as failed before or beside a decision, by cause", guard.clone());
        let decision = Histogram::new(DECISION_BUCKETS);
        registry.register("decision_seconds", "Time from a check's arrival to its answer", decision.clone());
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let store_up = gauge("store_up", "1 while checks reach the store, 0 while they fail at once");
        let store_shared = gauge("store_shared", "1 if other sidecars count in the same store, 0 if embedded");
        let config_generation = gauge("config_generation", "Configurations taken into use since the start");
        let config_last_reload_failed = gauge("config_last_reload_failed", "1 if the newest file was refused");
        let local_counters = gauge("local_counters", "Counters held by the local limits of an outage");
        let secret = Family::default();
        registry.register("hmac_secret", "1, labelled with the secret's fingerprint", secret.clone());
        let no_policy =
            NO_POLICY_WORDS.map(|verdict| verdicts.get_or_create_owned(&VerdictLabels { policy: "".into(), verdict }));
        let metrics = Self {
            registry,
            verdicts,
            store_errors,
            foreign,
            guard,
            decision,
            store_up,
            store_shared,
            config_generation,
            config_last_reload_failed,
            local_counters,
            secret,
            policies: ArcSwap::default(),
            no_policy,
        };
        for class in FailureClass::ALL {
            metrics.store_error(class);
        }
        for cause in ["panic", "undecodable", "request_too_large", "other"] {
            metrics.guard_counter(cause);
        }
        metrics
    }

    /// Makes the series of each policy, so that each is there, at zero, before its first request; those of policies that
    /// are no longer in use go.
    pub fn announce<'p>(&self, policies: impl Iterator<Item = &'p Policy>) {
        let counters = |policy: &Policy| {
            let name: Arc<str> = policy.name.as_str().into();
            let verdicts = POLICY_WORDS.map(|verdict| {
                self.verdicts.get_or_create_owned(&VerdictLabels { policy: Arc::clone(&name), verdict })
            });
            let foreign = Foreign::ALL.map(|reason| {
                let labels = ForeignLabels { policy: Arc::clone(&name), reason: reason.as_str() };
                self.foreign.get_or_create_owned(&labels)
            });
            (name, PolicyCounters { verdicts, foreign })
        };
        let in_use: HashMap<_, _> = policies.map(counters).collect();
        let before = self.policies.load();
        for gone in before.keys().filter(|name| !in_use.contains_key(*name)) {
            for verdict in POLICY_WORDS {
                self.verdicts.remove(&VerdictLabels { policy: Arc::clone(gone), verdict });
            }
            for reason in Foreign::ALL {
                self.foreign.remove(&ForeignLabels { policy: Arc::clone(gone), reason: reason.as_str() });
            }
        }
        self.policies.store(Arc::new(in_use));
    }

    pub fn set_secret_fingerprint(&self, fingerprint: &str) {
        self.secret.get_or_create(&SecretLabel { fingerprint: fingerprint.into() }).set(1);
    }

    /// Counts one answer.
    pub fn decided(&self, decision: &Decision<'_>, took: Duration) {
        self.decision.observe(took.as_secs_f64());
        let word = verdict_word(decision);
        let place = |words: &[&str]| words.iter().position(|known| *known == word);
        let policies = self.policies.load();
        let counter = match decision.policy {
            Some(policy) => {
                let counters = policies.get(policy.name.as_str());
                counters.zip(place(&POLICY_WORDS)).map(|(counters, place)| &counters.verdicts[place])
            }
            None => place(&NO_POLICY_WORDS).map(|place| &self.no_policy[place]),
        };
        // A policy that a reload has just removed has no series any more.
        if let Some(counter) = counter {
            counter.inc();
        }
    }

    /// Counts one failed call to the store.
    pub fn store_failed(&self, policy: &Policy, class: FailureClass) {
        self.store_error(class).inc();
        let FailureClass::Foreign(reason) = class else {
            return;
        };
        let place = Foreign::ALL.iter().position(|known| *known == reason);
        let policies = self.policies.load();
        if let Some((counters, place)) = policies.get(policy.name.as_str()).zip(place) {
            counters.foreign[place].inc();
        }
    }

    /// Counts one call that the guard had to answer.
    pub fn guarded(&self, class: FailureClass) {
        let cause = match class {
            FailureClass::Panic | FailureClass::Undecodable | FailureClass::RequestTooLarge => class.as_str(),
            _ => "other",
        };
        self.guard_counter(cause).inc();
    }

    /// The text exposition format, version 0.0.4 as Prometheus scrapes it.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _infallible = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }

    fn store_error(&self, class: FailureClass) -> Counter {
        self.store_errors.get_or_create_owned(&ClassLabel { class: class.as_str() })
    }

    fn guard_counter(&self, cause: &'static str) -> Counter {
        self.guard.get_or_create_owned(&CauseLabel { cause })
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
