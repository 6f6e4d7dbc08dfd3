//! Redis may forget our script at any moment; a check is counted once all the same (RL-23).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::keys;
use crate::support::proxy::FaultProxy;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;

fn subjects(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("subject-{n}")).collect()
}

// RL-23
#[test]
fn a_check_after_script_flush_is_allowed_and_counted_once() {
    let redis = RedisServer::start();
    let sidecar = Setup::patient(redis.port()).policy("orders", 5, "60s", "closed").start();
    let client = sidecar.client();
    client.check_times(&Check::of("ada"), 2);
    for n in 3..=5 {
        redis.run(&["SCRIPT", "FLUSH"]);
        assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
        assert_eq!(redis.get(&keys::orders("ada")), Some(n.to_string()));
    }
}

// RL-23
#[test]
fn five_hundred_checks_right_after_a_flush_count_once_each() {
    let redis = RedisServer::start();
    let sidecar = Setup::patient(redis.port()).policy("orders", 1000, "60s", "closed").start();
    let client = sidecar.client();
    client.check(&Check::of("ada"));
    let loads = redis.info("commandstats", "cmdstat_script|load");
    redis.run(&["SCRIPT", "FLUSH"]);
    let answers = client.check_times(&Check::of("ada"), 500);
    assert_eq!(count(&answers, Outcome::Allowed), 500);
    assert_eq!(redis.get(&keys::orders("ada")).as_deref(), Some("501"));
    let loads = redis.info("commandstats", "cmdstat_script|load") - loads;
    assert!(loads <= 10, "one background load a flush, not one a check: {loads}");

    redis.run(&["SCRIPT", "FLUSH"]);
    let checks: Vec<_> = subjects(500).iter().map(|subject| Check::of(subject)).collect();
    assert_eq!(count(&client.check_all(&checks), Outcome::Allowed), 500);
    for subject in subjects(500) {
        assert_eq!(redis.get(&keys::orders(&subject)).as_deref(), Some("1"), "{subject}");
    }
}

// RL-23: all of them hear that the script is not known before the first has put it back.
#[test]
fn a_hundred_checks_that_miss_the_script_together_load_it_a_few_times_at_most() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let store = format!("{{ redis: {{ url: 'redis://127.0.0.1:{}', command_timeout: 5s }} }}", proxy.port());
    let patient = Setup::store(&format!("{store}\ndecision_budget: 10s"));
    let sidecar = patient.policy("orders", 1000, "60s", "closed").start();
    let client = sidecar.client();
    client.check(&Check::of("ada"));
    let loads = || redis.info("commandstats", "cmdstat_script|load");
    let before = loads();
    proxy.delay(Duration::from_millis(300));
    redis.run(&["SCRIPT", "FLUSH"]);
    assert_eq!(count(&client.check_times(&Check::of("ada"), 100), Outcome::Allowed), 100);
    assert_eq!(redis.get(&keys::orders("ada")).as_deref(), Some("101"));
    assert!((1..=5).contains(&(loads() - before)), "{} loads", loads() - before);
}

// RL-23
#[test]
fn flushing_without_pause_never_counts_a_check_twice() {
    let redis = RedisServer::start();
    let sidecar = Setup::patient(redis.port()).policy("orders", 1000, "60s", "closed").start();
    let client = sidecar.client();
    let checks: Vec<_> = subjects(1000).iter().map(|subject| Check::of(subject)).collect();
    let done = AtomicBool::new(false);
    let answers = thread::scope(|scope| {
        scope.spawn(|| {
            // The end in time is for a run that fails.
            let end = Instant::now() + Duration::from_secs(30);
            while !done.load(Ordering::Relaxed) && Instant::now() < end {
                redis.run(&["SCRIPT", "FLUSH"]);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let answers: Vec<_> = checks.chunks(50).flat_map(|some| client.check_all(some)).collect();
        done.store(true, Ordering::Relaxed);
        answers
    });
    assert_eq!(count(&answers, Outcome::Allowed), 1000);
    for subject in subjects(1000) {
        assert_eq!(redis.get(&keys::orders(&subject)).as_deref(), Some("1"), "{subject}");
    }
}
