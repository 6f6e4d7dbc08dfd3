//! `envoy/shadow-rollout.yaml`: what Envoy's shadow lets pass, and what Tallygate's.

use std::time::Duration;

use crate::support::pair::{Edit, LIMIT, Pair};
use crate::support::wait::wait_for;

const NO_SHADOW: Edit<'_> = ("shadow_mode: true", "shadow_mode: false");

#[test]
fn in_envoys_shadow_nothing_is_refused_and_everything_is_counted() {
    let pair = Pair::start("shadow-rollout.yaml");
    assert_eq!(pair.statuses(LIMIT + 2, "/orders", &[]), [200; LIMIT + 2], "beyond an enforced limit");
    assert_eq!(pair.application.requests().len(), LIMIT + 2);
    let denied = |counter: &str| pair.envoy.counter(&format!("http.edge.ext_authz.tallygate.{counter}"));
    assert_eq!((denied("denied"), denied("shadow_denied")), (2, 2));
    assert_eq!(pair.sidecar.metrics().verdicts("orders", "denied"), 2, "Tallygate does not know that nobody listens");
    logs(&pair, r#""verdict":"denied""#, 2);

    // Nor does it need Tallygate.
    let Pair { envoy, sidecar, .. } = pair;
    drop(sidecar);
    assert_eq!(envoy.get("/orders", &[]).status(), 200);
    assert_eq!(envoy.counter("http.edge.ext_authz.tallygate.shadow_error"), 1);
}

#[test]
fn in_tallygates_shadow_one_policy_refuses_nobody_and_the_others_do() {
    let pair = Pair::edited("shadow-rollout.yaml", &[NO_SHADOW], &[]);
    assert_eq!(pair.statuses(LIMIT + 2, "/search", &[]), [200; LIMIT + 2]);
    assert_eq!(pair.sidecar.metrics().verdicts("search", "shadow_denied"), 2);
    logs(&pair, r#""mode":"shadow""#, LIMIT + 2);
    logs(&pair, r#""verdict":"denied""#, 2);
    pair.exhaust("/orders", &[]);

    // But Envoy relies on an answer.
    let Pair { envoy, sidecar, .. } = pair;
    drop(sidecar);
    assert_eq!(envoy.get("/search", &[]).status(), 503);
}

/// So many lines of the access log hold these words.
#[track_caller]
fn logs(pair: &Pair, words: &str, lines: usize) {
    let count = || pair.envoy.access_log().lines().filter(|line| line.contains(words)).count();
    wait_for(&format!("{lines} lines with {words}"), Duration::from_secs(5), || count() == lines);
}
