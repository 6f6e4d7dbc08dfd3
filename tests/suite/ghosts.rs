//! No command is sent twice, and a check that was answered *failed* for time is not charged afterwards (P5, P6).

use std::time::Duration;

use tonic::Code;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::grpc::Client;
use crate::support::keys;
use crate::support::proxy::{Fault, FaultProxy};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;

/// A sidecar with time enough, whose way to Redis can be disturbed.
fn behind_a_proxy(limit: u64, window: &str) -> (RedisServer, FaultProxy, Sidecar) {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let sidecar = Setup::patient(proxy.port()).policy("orders", limit, window, "closed").start();
    (redis, proxy, sidecar)
}

/// The first check may have to send the script's text; with the second both it and the store's clock are known.
fn knows_script_and_clock(client: &Client) {
    for _ in 0..2 {
        assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
    }
}

// RL-20
#[test]
fn checks_that_failed_for_time_are_not_charged_when_redis_wakes() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 10, "60s", "closed").start();
    let client = sidecar.client();
    // Teaches the sidecar the store's clock, without which it could not say until when a command holds.
    assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);

    redis.pause();
    for _ in 0..5 {
        let answer = client.check(&Check::of("ada"));
        assert_eq!(answer.outcome(), Outcome::Failed);
        assert!(["timeout", "disconnected"].contains(&answer.metadata("reason").as_str()), "{answer:?}");
    }
    redis.resume();

    wait_for("a check to pass again", Duration::from_secs(5), || {
        client.check(&Check::of("after")).outcome() == Outcome::Allowed
    });
    assert_eq!(redis.get(&keys::orders("ada")), None, "the paused commands ran and charged nothing");
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
    assert_eq!(redis.get(&keys::orders("ada")).as_deref(), Some("1"));
}

// RL-20: the commands do run, long after their checks were answered, and it is the deadline in them that keeps them from
// counting. That they ran is part of the test: commands that got lost would leave no ghost either.
#[test]
fn commands_that_arrive_after_their_checks_were_answered_run_and_charge_nothing() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let sidecar = Setup::redis(proxy.port()).policy("orders", 10, "60s", "closed").start();
    let client = sidecar.client();
    let ran = || redis.info("commandstats", "cmdstat_evalsha");
    // From the second on, a check is one command.
    client.check(&Check::of("before"));
    assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
    let before = ran();

    proxy.set(Fault::HoldRequests);
    let subjects: Vec<_> = (0..20).map(|n| format!("subject-{n}")).collect();
    let checks: Vec<_> = subjects.iter().map(|subject| Check::of(subject)).collect();
    for answer in client.check_all(&checks) {
        assert_eq!((answer.outcome(), answer.metadata("reason").as_str()), (Outcome::Failed, "timeout"));
    }
    assert_eq!(ran(), before);
    proxy.set(Fault::Pass);
    wait_for("the commands to run", Duration::from_secs(5), || ran() == before + 20);
    assert_eq!(redis.keys(), [keys::orders("before")], "not one was charged");
    wait_for("a check to pass again", Duration::from_secs(5), || {
        client.check(&Check::of("subject-0")).outcome() == Outcome::Allowed
    });
    assert_eq!(redis.get(&keys::orders("subject-0")).as_deref(), Some("1"));
}

// RL-20
#[test]
fn a_lost_reply_counts_at_most_once_and_is_not_asked_for_again() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let sidecar = Setup::redis(proxy.port()).policy("orders", 100, "60s", "closed").start();
    let client = sidecar.client();
    assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);

    proxy.set(Fault::SwallowReplies);
    let first = client.check(&Check::of("first"));
    assert_eq!(first.outcome(), Outcome::Failed, "a lost reply may have counted: the caller hears *failed*");
    assert_eq!(redis.get(&keys::orders("first")).as_deref(), Some("1"), "it arrived in time, and once");
    for _ in 0..10 {
        assert_eq!(client.check(&Check::of("later")).outcome(), Outcome::Failed);
    }
    let counted = redis.get(&keys::orders("later")).map_or(0, |count| count.parse().unwrap());
    assert!(counted <= 10, "10 checks, {counted} counted");

    proxy.set(Fault::Pass);
    wait_for("a check to pass again", Duration::from_secs(5), || {
        client.check(&Check::of("after")).outcome() == Outcome::Allowed
    });
    assert_eq!(redis.get(&keys::orders("after")).as_deref(), Some("1"));
    assert_eq!(redis.get(&keys::orders("first")).as_deref(), Some("1"));
}

// RL-20: half a reply says nothing, not even that it was an allow.
#[test]
fn half_a_reply_is_a_failure_and_is_not_asked_for_again() {
    let (redis, proxy, sidecar) = behind_a_proxy(100, "60s");
    let client = sidecar.client();
    assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
    proxy.set(Fault::HalveReplies);
    let answer = client.check(&Check::of("ada"));
    assert_eq!(answer.outcome(), Outcome::Failed);
    assert!(["disconnected", "malformed"].contains(&answer.metadata("reason").as_str()), "{answer:?}");
    proxy.set(Fault::Pass);
    wait_for("a check to pass again", Duration::from_secs(5), || {
        client.check(&Check::of("after")).outcome() == Outcome::Allowed
    });
    // The script may not have been known yet, and half of that answer is no proof that nothing ran.
    let counted = redis.get(&keys::orders("ada")).map_or(0, |count| count.parse().unwrap());
    assert!(counted <= 1, "{counted} counted");
}

// P5: a new connection is there at once, and there is time enough left: the command is still not sent again.
#[test]
fn a_command_whose_reply_was_cut_is_not_sent_again_though_redis_is_back_in_time() {
    let (redis, proxy, sidecar) = behind_a_proxy(100, "60s");
    let client = sidecar.client();
    knows_script_and_clock(&client);
    proxy.set(Fault::HalveReplies);
    let cut = client.start(&Check::of("ada"));
    wait_for("the command to have run", Duration::from_secs(5), || {
        redis.get(&keys::orders("ada")).as_deref() == Some("1")
    });
    proxy.set(Fault::Pass);
    assert_eq!(cut.join().outcome(), Outcome::Failed);
    wait_for("a check to pass again", Duration::from_secs(5), || {
        client.check(&Check::of("after")).outcome() == Outcome::Allowed
    });
    assert_eq!(redis.get(&keys::orders("ada")).as_deref(), Some("1"), "counted once, by the first");
}

// RL-22: replies are matched to their questions, however late they come.
#[test]
fn each_caller_gets_its_own_answer() {
    let (redis, proxy, sidecar) = behind_a_proxy(5, "1h");
    let client = sidecar.client();
    let key = |subject: &str| {
        keys::key("orders", 3_600_000, &[("route/tenant", "", b"acme"), ("route/subject", "", subject.as_bytes())])
    };
    let subjects: Vec<_> = (0..200).map(|n| format!("subject-{n}")).collect();
    for (n, subject) in (0..).zip(&subjects) {
        redis.seed(&key(subject), "5", 1_000_000 + n * 10_000);
    }
    proxy.delay(Duration::from_millis(1));
    proxy.jitter(Duration::from_millis(4));
    for round in 0..3 {
        let checks: Vec<_> = subjects.iter().map(|subject| Check::of(subject)).collect();
        for (n, answer) in (0..).zip(client.check_all(&checks)) {
            assert_eq!(answer.outcome(), Outcome::Limited, "round {round}, subject {n}");
            // Neighbours are 10 s apart.
            let expected = 1000 + n * 10;
            let seconds = answer.retry_after();
            assert!((expected - 8..=expected).contains(&seconds), "subject {n}: {seconds}, wanted {expected}");
        }
    }
    assert!(proxy.accepted() <= 2, "one connection serves them all: {}", proxy.accepted());
}

// Under 5 ms left: failed at once, and nothing is sent.
#[test]
fn a_check_that_comes_too_late_is_not_counted() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 5, "60s", "closed").start();
    let client = sidecar.client();
    assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
    for _ in 0..20 {
        match client.check_within(&Check::of("ada"), Duration::from_millis(10)) {
            Ok(answer) => assert_eq!(answer.outcome(), Outcome::Failed),
            // The client's own clock may run out first.
            Err(status) => assert!([Code::Cancelled, Code::DeadlineExceeded].contains(&status.code()), "{status:?}"),
        }
    }
    assert_eq!(redis.get(&keys::orders("ada")), None);
}

// A time-out shows that a connection is dead only if the command had its whole time. Callers with short deadlines would
// otherwise take a good connection away from all others, again and again.
#[test]
fn callers_in_a_hurry_do_not_take_the_connection_from_the_others() {
    let (_redis, proxy, sidecar) = behind_a_proxy(100, "60s");
    let client = sidecar.client();
    knows_script_and_clock(&client);
    proxy.delay(Duration::from_millis(80));
    for _ in 0..5 {
        // 15 ms are kept for the way back, so Redis has 35.
        match client.check_within(&Check::of("ada"), Duration::from_millis(50)) {
            Ok(answer) => assert_eq!(answer.outcome(), Outcome::Failed),
            // The client's own clock may run out first.
            Err(status) => assert!([Code::Cancelled, Code::DeadlineExceeded].contains(&status.code()), "{status:?}"),
        }
    }
    assert_eq!(client.check(&Check::of("grace")).outcome(), Outcome::Allowed);
    assert_eq!(proxy.accepted(), 1, "connections");
}
