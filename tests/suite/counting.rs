//! Checks and counts are one step: whatever comes at once, exactly the limit passes (P1).

use std::thread;

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;

#[test]
fn of_forty_checks_at_once_exactly_the_limit_passes() {
    let redis = RedisServer::start();
    let sidecar = Setup::patient(redis.port()).policy("orders", 3, "60s", "closed").start();
    let client = sidecar.client();
    for subject in ["ada", "grace", "edsger", "barbara", "tony"] {
        let answers = client.check_times(&Check::of(subject), 40);
        assert_eq!(count(&answers, Outcome::Allowed), 3, "{subject}");
        assert_eq!(count(&answers, Outcome::Limited), 37, "{subject}");
        assert_eq!(redis.get(&keys::orders(subject)).as_deref(), Some("3"), "{subject}");
    }
    assert_eq!(redis.keys().len(), 5, "one key a subject");
    assert_eq!(sidecar.metrics().verdicts("orders", "allowed"), 15);
    assert_eq!(sidecar.metrics().verdicts("orders", "denied"), 185);
}

#[test]
fn two_sidecars_that_share_a_redis_share_the_limit() {
    let redis = RedisServer::start();
    let setup = Setup::patient(redis.port()).policy("orders", 3, "60s", "closed");
    let (first, second) = (setup.start(), setup.start());
    let clients = [first.client(), second.client()];
    for subject in ["ada", "grace", "edsger"] {
        let check = Check::of(subject);
        let answers: Vec<_> = thread::scope(|scope| {
            let halves = clients.each_ref().map(|client| scope.spawn(|| client.check_times(&check, 20)));
            halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
        });
        assert_eq!(count(&answers, Outcome::Allowed), 3, "{subject}");
        assert_eq!(count(&answers, Outcome::Limited), 37, "{subject}");
        assert_eq!(redis.get(&keys::orders(subject)).as_deref(), Some("3"), "{subject}");
    }
}

#[test]
fn other_subjects_and_other_tenants_are_independent() {
    let redis = RedisServer::start();
    let sidecar = Setup::patient(redis.port()).policy("orders", 3, "60s", "closed").start();
    let client = sidecar.client();
    let used_up = client.check_times(&Check::of("ada"), 4);
    assert_eq!(count(&used_up, Outcome::Limited), 1);

    let namesake = Check::get("/orders").route("tenant", "globex").route("subject", "ada");
    for other in [Check::of("grace"), namesake] {
        let answers = client.check_times(&other, 4);
        assert_eq!(count(&answers, Outcome::Allowed), 3);
        assert_eq!(count(&answers, Outcome::Limited), 1);
    }
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Limited);
}

#[test]
fn policies_count_apart() {
    let redis = RedisServer::start();
    let setup = Setup::patient(redis.port()).policy("orders", 1, "60s", "closed").policy("catalog", 1, "60s", "closed");
    let sidecar = setup.start();
    let client = sidecar.client();
    for path in ["/orders", "/catalog"] {
        let check = Check::of("ada").path(path);
        assert_eq!(client.check(&check).outcome(), Outcome::Allowed, "{path}");
        assert_eq!(client.check(&check).outcome(), Outcome::Limited, "{path}");
    }
    assert_eq!(redis.keys().len(), 2);
}

#[test]
fn a_tenants_limit_is_shared_by_its_subjects() {
    let redis = RedisServer::start();
    let sidecar = Setup::patient(redis.port()).policy_per("orders", "[tenant]", 3, "60s", "closed").start();
    let client = sidecar.client();
    for subject in ["ada", "grace", "edsger"] {
        assert_eq!(client.check(&Check::of(subject)).outcome(), Outcome::Allowed);
    }
    assert_eq!(client.check(&Check::of("barbara")).outcome(), Outcome::Limited);
}
