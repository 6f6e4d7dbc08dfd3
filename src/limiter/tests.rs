use std::sync::Mutex;

use super::*;
use crate::decision::identity::{IdentitySources, Part, Source};
use crate::decision::limit::Charge;
use crate::decision::policy::{Answer, fixtures};
use crate::decision::verdict::Taken;
use crate::store::Taking;

/// A store that answers what the test says, or never.
struct Scripted(Mutex<Option<Result<Taken, StoreError>>>);

impl Store for Scripted {
    fn take<'a>(&'a self, _: &'a [Charge<'a>], _: u64, _: Instant) -> Taking<'a> {
        match self.0.lock().unwrap().clone() {
            Some(answer) => Box::pin(std::future::ready(answer)),
            None => Box::pin(std::future::pending()),
        }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn is_up(&self) -> bool {
        true
    }
}

fn rules(on_failure: OnFailure) -> Rules {
    let mut policy = fixtures::policy(&[("a", 1, &[Part::Subject])]);
    policy.on_failure = on_failure;
    let identity = IdentitySources { subject: vec![Source::route("subject")], ..Default::default() };
    Rules { policies: vec![policy], identity, unmatched: Answer::Allow, ambiguous_path: Answer::Deny }
}

fn open(limit: u64) -> OnFailure {
    let mut policy = fixtures::policy(&[("local", limit, &[Part::Subject])]);
    OnFailure::Open(LocalLimit::Limited(Box::new(policy.limits.remove(0))))
}

fn limiter(rules: Rules, answer: Option<Result<Taken, FailureClass>>) -> Limiter {
    let answer = answer.map(|answer| answer.map_err(|class| StoreError::new(class, "scripted")));
    Limiter::new(rules, Arc::new(Scripted(Mutex::new(answer))), Arc::default())
}

async fn check(limiter: &Limiter, subject: Option<&str>) -> &'static str {
    let rules = limiter.rules();
    let route = fixtures::route(&subject.map(|s| ("subject", s)).into_iter().collect::<Vec<_>>());
    let deadline = clock::now() + Duration::from_millis(100);
    let decision = limiter.check(&rules, &fixtures::request(&route), deadline).await;
    crate::telemetry::metrics::verdict_word(&decision)
}

#[tokio::test]
async fn a_store_that_never_answers_is_failed_at_the_deadline() {
    let started = clock::now();
    assert_eq!(check(&limiter(rules(OnFailure::Closed), None), Some("ada")).await, "failed");
    let took = clock::now() - started;
    assert!(took >= Duration::from_millis(100) && took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn every_failure_class_is_failed_when_closed_and_local_when_open() {
    for class in FailureClass::ALL {
        assert_eq!(check(&limiter(rules(OnFailure::Closed), Some(Err(class))), Some("ada")).await, "failed");
        let open = limiter(rules(open(2)), Some(Err(class)));
        let mut answers = Vec::new();
        for _ in 0..3 {
            answers.push(check(&open, Some("ada")).await);
        }
        assert_eq!(answers, ["open_allowed", "open_allowed", "open_denied"], "{}", class.as_str());
        assert_eq!(check(&open, Some("eve")).await, "open_allowed", "others have their own allowance");
    }
}

#[tokio::test]
async fn a_reload_does_not_refill_a_local_limit() {
    let limiter = limiter(rules(open(1)), Some(Err(FailureClass::Disconnected)));
    assert_eq!(check(&limiter, Some("ada")).await, "open_allowed");
    limiter.swap(rules(open(1)));
    assert_eq!(check(&limiter, Some("ada")).await, "open_denied");
}

#[tokio::test]
async fn nobody_home_is_its_own_verdict_and_asks_no_store() {
    assert_eq!(check(&limiter(rules(OnFailure::Closed), None), None).await, "unidentified");
    let mut lenient = rules(OnFailure::Closed);
    lenient.policies[0].on_unidentified = OnUnidentified::Allow;
    assert_eq!(check(&limiter(lenient, None), None).await, "unidentified_allowed");
}

#[tokio::test]
async fn without_time_left_nothing_is_sent() {
    let limiter = limiter(rules(OnFailure::Closed), Some(Ok(Taken { admitted: 1, admissions: vec![] })));
    let rules = limiter.rules();
    let route = fixtures::route(&[("subject", "ada")]);
    let decision = limiter.check(&rules, &fixtures::request(&route), clock::now()).await;
    assert!(matches!(decision.verdict, Verdict::Failed(FailureClass::Timeout)));
}
