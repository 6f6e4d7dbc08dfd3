//! SIGHUP puts a new configuration in force, whole, or keeps the old one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::wait::{poll, wait_for};

// RL-05 a, b
#[test]
fn a_reload_changes_the_numbers_and_keeps_the_counters() {
    let redis = RedisServer::start();
    let with = |limit| Setup::redis(redis.port()).policy("orders", limit, "1h", "closed");
    let sidecar = with(100).start();
    let client = sidecar.client();
    client.check_times(&Check::of("ada"), 40);

    sidecar.reload(&with(10));
    let refused = client.check(&Check::of("ada"));
    assert_eq!(refused.outcome(), Outcome::Limited);
    assert!((3590..=3600).contains(&refused.retry_after()), "the rest of the running window");
    assert_eq!(refused.metadata("remaining"), "0");

    sidecar.reload(&with(100));
    let allowed = client.check(&Check::of("ada"));
    assert_eq!((allowed.outcome(), allowed.metadata("remaining")), (Outcome::Allowed, "59".into()));
    assert_eq!(redis.keys().len(), 1);
    assert_eq!(redis.get(&redis.keys()[0]).as_deref(), Some("41"));
    assert_eq!(sidecar.metrics().count("tallygate_config_info", &[]), 1, "of the file in use alone");
}

#[test]
fn a_reload_adds_and_removes_policies() {
    let redis = RedisServer::start();
    let setup = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed").more("unmatched: deny");
    let sidecar = setup.start();
    let client = sidecar.client();
    let catalog = Check::of("ada").path("/catalog");
    assert_eq!(client.check(&catalog).outcome(), Outcome::Forbidden);
    sidecar.reload(&setup.clone().policy("catalog", 1, "60s", "closed"));
    assert_eq!(client.check(&catalog).outcome(), Outcome::Allowed);
    assert_eq!(client.check(&catalog).outcome(), Outcome::Limited);
    assert_eq!(sidecar.metrics().verdicts("catalog", "denied"), 1);
    sidecar.reload(&setup);
    assert_eq!(client.check(&catalog).outcome(), Outcome::Forbidden);
}

// RL-30, RL-33
#[test]
fn a_bad_file_keeps_the_old_rules_and_says_so() {
    let redis = RedisServer::start();
    let setup = Setup::redis(redis.port()).policy("orders", 2, "60s", "closed");
    let sidecar = setup.start();
    let client = sidecar.client();
    let before = sidecar.generation();
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
    for (broken, said) in [("policies: [", "tallygate.yaml"), ("colour: blue", "colour")] {
        let logged = sidecar.log().len();
        sidecar.rewrite_with(broken);
        sidecar.sighup();
        wait_for("the log to name the problem", Duration::from_secs(5), || sidecar.log()[logged..].contains(said));
        assert_eq!(sidecar.generation(), before);
        assert_eq!(sidecar.readiness(), Some(200));
    }
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Limited);
    sidecar.reload(&Setup::redis(redis.port()).policy("orders", 3, "60s", "closed"));
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed, "a good file is taken again");
}

#[test]
fn a_reload_during_traffic_gives_every_check_an_answer_under_one_of_both_rules() {
    let redis = RedisServer::start();
    let with = |limit| Setup::redis(redis.port()).policy("orders", limit, "60s", "closed");
    let sidecar = with(1_000_000).start();
    let client = sidecar.client();
    let done = AtomicBool::new(false);
    let answers = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut answers = Vec::new();
            while !done.load(Ordering::Relaxed) && answers.len() < 100_000 {
                answers.extend(client.check_times(&Check::of("ada"), 10));
            }
            answers
        });
        let before = sidecar.generation();
        for limit in (999_990..1_000_000).rev() {
            sidecar.rewrite(&with(limit));
            sidecar.sighup();
        }
        let changed = poll(Duration::from_secs(5), || (sidecar.generation() > before).then_some(()));
        done.store(true, Ordering::Relaxed);
        assert!(changed.is_some(), "the new configuration is in force");
        asking.join().unwrap()
    });
    assert!(answers.iter().all(|answer| answer.outcome() == Outcome::Allowed));
    let counted = redis.get(&keys::orders("ada")).and_then(|count| count.parse().ok());
    assert_eq!(counted, Some(answers.len()), "none was lost and none counted twice");
}

#[test]
fn a_setting_that_needs_a_restart_is_named_and_the_rest_takes_effect() {
    let (redis, other) = (RedisServer::start(), RedisServer::start());
    let sidecar = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed").start();
    let client = sidecar.client();
    client.check(&Check::of("ada"));
    let logged = sidecar.log().len();
    sidecar.reload(&Setup::redis(other.port()).listen("127.0.0.1:1").policy("orders", 2, "60s", "closed"));
    let log = sidecar.log()[logged..].to_owned();
    assert!(log.contains("server.listen") && log.contains("store"), "both are named:\n{log}");
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed, "the new limit");
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Limited);
    assert_eq!(redis.get(&keys::orders("ada")).as_deref(), Some("2"), "in the store of the start");
    assert!(other.keys().is_empty());
}
