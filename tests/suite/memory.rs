//! The embedded store keeps the same promises, for one process.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::setup::Setup;
use crate::support::wait::wait_for;

#[test]
fn of_forty_checks_at_once_exactly_the_limit_passes_without_redis() {
    let sidecar = Setup::memory().policy("orders", 3, "60s", "closed").start();
    let client = sidecar.client();
    for subject in ["ada", "grace", "edsger"] {
        let answers = client.check_times(&Check::of(subject), 40);
        assert_eq!(count(&answers, Outcome::Allowed), 3, "{subject}");
        assert_eq!(count(&answers, Outcome::Limited), 37, "{subject}");
    }
    let namesake = Check::get("/orders").route("tenant", "globex").route("subject", "ada");
    assert_eq!(client.check(&namesake).outcome(), Outcome::Allowed);
}

#[test]
fn waiting_as_long_as_retry_after_says_is_enough_without_redis() {
    let sidecar = Setup::memory().policy("orders", 2, "1200ms", "closed").start();
    let client = sidecar.client();
    let check = Check::of("ada");
    let started = Instant::now();
    assert_eq!(count(&client.check_times(&check, 2), Outcome::Allowed), 2);
    let refused = client.check(&check);
    // On a stalled machine the window may be over by now, and then there is nothing to wait for.
    if started.elapsed() < Duration::from_secs(1) {
        assert_eq!(refused.outcome(), Outcome::Limited);
        thread::sleep(Duration::from_secs(refused.retry_after()));
    }
    assert_eq!(client.check(&check).outcome(), Outcome::Allowed);
}

#[test]
fn answers_look_the_same_without_redis() {
    let sidecar = Setup::memory().policy("orders", 1, "60s", "closed").start();
    let client = sidecar.client();
    assert_eq!(client.check(&Check::of("ada")).metadata("remaining"), "0");
    let answer = client.check(&Check::of("ada"));
    assert_eq!(answer.outcome(), Outcome::Limited);
    assert!((59..=60).contains(&answer.retry_after()));
    assert_eq!(client.check(&Check::get("/orders")).outcome(), Outcome::Unauthorized);
}

#[test]
fn start_up_says_that_the_limit_is_not_shared() {
    let setup = Setup::memory().policy("orders", 1, "60s", "closed");
    let (first, second) = (setup.start(), setup.start());
    for sidecar in [&first, &second] {
        assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed, "each counts alone");
        assert_eq!(sidecar.metrics().count("tallygate_store_shared", &[]), 0);
        assert_eq!(sidecar.metrics().count("tallygate_store_up", &[]), 1);
    }
    let log = first.log();
    assert!(log.lines().any(|line| line.to_lowercase().contains("warn") && line.contains("store.memory")), "{log}");
}

#[test]
fn a_reload_keeps_the_counters_without_redis() {
    let setup = Setup::memory().policy("orders", 3, "60s", "closed");
    let sidecar = setup.start();
    let client = sidecar.client();
    client.check_times(&Check::of("ada"), 3);
    let generation = sidecar.metrics().count("tallygate_config_generation", &[]);
    sidecar.rewrite(&Setup::memory().policy("orders", 4, "60s", "closed"));
    sidecar.sighup();
    wait_for("the new limit", Duration::from_secs(5), || {
        sidecar.metrics().count("tallygate_config_generation", &[]) > generation
    });
    let outcomes = [(); 2].map(|()| client.check(&Check::of("ada")).outcome());
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Limited]);
}

// The table is bounded. A full one must neither forget a live counter nor let newcomers pass unlimited.
#[test]
fn a_full_table_forgets_nobody_and_lets_no_newcomer_pass_twice() {
    let sidecar = Setup::store("{ memory: { max_counters: 10 } }").policy("orders", 1, "60s", "closed").start();
    let client = sidecar.client();
    let checks: Vec<_> = (0..50).map(|n| Check::of(&format!("subject-{n}"))).collect();
    let first = client.check_all(&checks[..10]);
    assert_eq!(count(&first, Outcome::Allowed), 10);
    for round in 0..3 {
        let newcomers = client.check_all(&checks[10..]);
        assert!(count(&newcomers, Outcome::Allowed) <= usize::from(round == 0), "round {round}");
    }
    assert_eq!(count(&client.check_all(&checks[..10]), Outcome::Limited), 10, "they are still counted");
}
