//! Metrics. Every series depends on the configuration alone, never on traffic: labels are policies and closed sets.
//!
//! Counters of a policy are resolved when the configuration is read and held, so a check only adds to atomics.

mod by_policy;
mod certificates;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use self::by_policy::ByPolicy;
pub use self::by_policy::verdict_word;
use self::certificates::Certificates;
use crate::decision::policy::{Policy, Unidentified};
use crate::decision::verdict::{Decision, FailureClass};
use crate::store::clock;
use crate::tls::certificate::CertificateFile;
use crate::tls::server::Refusal;

/// Upper ends of the decision time's buckets, in seconds: from a local answer to past the shipped Envoy time-out.
const DECISION_BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HashLabel {
    hash: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SecretLabel {
    fingerprint: Arc<str>,
}

/// Every metric of the process.
pub struct Metrics {
    registry: Registry,
    store_errors: Family<ClassLabel, Counter>,
    guard: Family<CauseLabel, Counter>,
    decision: Histogram,
    pub store_up: Gauge,
    pub store_shared: Gauge,
    config_generation: Gauge,
    config_hash: Family<HashLabel, Gauge>,
    hash_in_use: Mutex<Option<HashLabel>>,
    pub config_last_reload_failed: Gauge,
    pub local_counters: Gauge,
    secret: Family<SecretLabel, Gauge>,
    certificates: Certificates,
    refused_handshakes: Family<ReasonLabel, Counter>,
    by_policy: ByPolicy,
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("tallygate");
        let by_policy = ByPolicy::register(&mut registry);
        let store_errors = Family::default();
        registry.register(
            "store_errors",
            "Checks that the store did not decide, by class of failure",
            store_errors.clone(),
        );
        let guard = Family::default();
        registry.register(
            "guard",
            "Checks answered as failed (503) without regard to a policy, by cause",
            guard.clone(),
        );
        let decision = Histogram::new(DECISION_BUCKETS);
        registry.register("decision_seconds", "Seconds from a check's arrival to its answer", decision.clone());
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let store_up = gauge("store_up", "1 while checks reach the store, 0 while they fail at once");
        let store_shared = gauge("store_shared", "1 if other sidecars count in the same store, 0 if embedded");
        let config_generation = gauge("config_generation", "Number of configurations taken into use since the start");
        let config_last_reload_failed = gauge(
            "config_last_reload_failed",
            "1 if the newest configuration was refused and the one before it is in use",
        );
        let local_counters = gauge("local_counters", "Counters that the local limits of an outage hold now");
        let config_hash = Family::default();
        registry.register(
            "config_info",
            "1, labelled with the hash of the configuration in use: equal where sidecars have the same file",
            config_hash.clone(),
        );
        let secret = Family::default();
        registry.register(
            "hmac_secret",
            "1, labelled with the fingerprint of the HMAC secret: equal where sidecars count under the same keys",
            secret.clone(),
        );
        let certificates = Certificates::register(&mut registry);
        let refused_handshakes = Family::default();
        registry.register(
            "tls_handshakes_refused",
            "Connections to server.listen that came to no TLS, by reason",
            refused_handshakes.clone(),
        );
        let metrics = Self {
            registry,
            store_errors,
            guard,
            decision,
            store_up,
            store_shared,
            config_generation,
            config_hash,
            hash_in_use: Mutex::default(),
            config_last_reload_failed,
            local_counters,
            secret,
            certificates,
            refused_handshakes,
            by_policy,
        };
        for class in FailureClass::ALL {
            metrics.store_error(class);
        }
        for cause in ["panic", "undecodable", "request_too_large", "other"] {
            metrics.guard_counter(cause);
        }
        for refusal in Refusal::ALL {
            metrics.refused_handshake(refusal);
        }
        metrics
    }

    /// Makes the series of the policies in use, and drops those of policies that no longer are.
    pub fn announce<'p>(&self, policies: impl Iterator<Item = &'p Policy>) {
        self.by_policy.announce(policies);
    }

    /// Which configuration is in use. Sidecars with the same file show the same hash.
    pub fn set_config(&self, generation: u64, hash: &str) {
        self.config_generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        let newest = HashLabel { hash: hash.into() };
        self.config_hash.get_or_create(&newest).set(1);
        let mut in_use = self.hash_in_use.lock().unwrap_or_else(PoisonError::into_inner);
        // Behind it, so that no look at the metrics finds none.
        if let Some(before) = in_use.replace(newest.clone()).filter(|before| *before != newest) {
            self.config_hash.remove(&before);
        }
    }

    pub fn set_secret_fingerprint(&self, fingerprint: &str) {
        self.secret.get_or_create(&SecretLabel { fingerprint: fingerprint.into() }).set(1);
    }

    /// The files with certificates that the configuration in use names.
    pub fn set_certificates(&self, files: &[CertificateFile]) {
        self.certificates.set(files);
    }

    /// Counts one connection that came to no TLS.
    pub fn handshake_refused(&self, refusal: Refusal) {
        self.refused_handshake(refusal).inc();
    }

    /// Counts one answer.
    pub fn decided(&self, decision: &Decision<'_>, took: Duration) {
        self.decision.observe(took.as_secs_f64());
        self.by_policy.decided(decision);
    }

    /// Counts one failed call to the store.
    pub fn store_failed(&self, policy: &Policy, class: FailureClass) {
        self.store_error(class).inc();
        if let FailureClass::Foreign(reason) = class {
            self.by_policy.met_foreign(policy, reason);
        }
    }

    /// Counts one request that lacks a part which its policy counts by, with the reason.
    pub fn unidentified(&self, policy: &Policy, missing: Unidentified) {
        self.by_policy.unidentified(policy, missing);
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
        self.certificates.refresh(clock::unix_seconds());
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _infallible = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }

    fn store_error(&self, class: FailureClass) -> Counter {
        self.store_errors.get_or_create_owned(&ClassLabel { class: class.as_str() })
    }

    fn refused_handshake(&self, refusal: Refusal) -> Counter {
        self.refused_handshakes.get_or_create_owned(&ReasonLabel { reason: refusal.as_str() })
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
