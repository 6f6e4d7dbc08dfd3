//! What Redis refuses is a failure by class, from the first check on, and is over as soon as Redis is well again.

use std::thread;
use std::time::Duration;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::grpc::Client;
use crate::support::keys;
use crate::support::ports;
use crate::support::redis::RedisServer;
use crate::support::resp::Value;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;

/// A subject at its limit, one that was never seen, and the sidecar that serves them.
fn start() -> (RedisServer, Sidecar, Client) {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 5, "60s", "closed").start();
    let client = sidecar.client();
    redis.seed(&keys::orders("limited"), "5", 60_000);
    assert_eq!(client.check(&Check::of("limited")).outcome(), Outcome::Limited);
    (redis, sidecar, client)
}

/// Both subjects fail, more than once, for one of these reasons.
#[track_caller]
fn both_fail(client: &Client, reasons: &[&str]) {
    for _ in 0..3 {
        for subject in ["limited", "fresh"] {
            let answer = client.check(&Check::of(subject));
            assert_eq!(answer.outcome(), Outcome::Failed, "{subject}");
            let reason = answer.metadata("reason");
            assert!(reasons.contains(&reason.as_str()), "{subject}: {reason:?} is none of {reasons:?}");
        }
    }
}

#[track_caller]
fn recovers(redis: &RedisServer, client: &Client) {
    wait_for("a check to pass again", Duration::from_secs(5), || {
        client.check(&Check::of("after")).outcome() == Outcome::Allowed
    });
    assert_eq!(redis.get(&keys::orders("after")).as_deref(), Some("1"), "the failed ones left nothing behind");
    assert_eq!(client.check(&Check::of("limited")).outcome(), Outcome::Limited);
}

// RL-25: a node that could not have recorded an allowance does not say `limited` either.
#[test]
fn a_replica_gives_no_verdict() {
    let (redis, sidecar, client) = start();
    let unused = ports::free().to_string();
    redis.run(&["REPLICAOF", "127.0.0.1", &unused]);
    // The first is told so by the node; then there is no usable connection.
    both_fail(&client, &["readonly", "disconnected"]);
    assert!(sidecar.metrics().store_errors("readonly") >= 1);
    redis.run(&["REPLICAOF", "NO", "ONE"]);
    recovers(&redis, &client);
}

// RL-25: nor is it taken for one that could.
#[test]
fn a_replica_is_never_taken_into_use() {
    let redis = RedisServer::start();
    let unused = ports::free().to_string();
    redis.run(&["REPLICAOF", "127.0.0.1", &unused]);
    let sidecar = Setup::redis(redis.port()).policy("orders", 5, "60s", "closed").start_without_store();
    wait_for("its role to be asked more than once", Duration::from_secs(5), || {
        redis.info("commandstats", "cmdstat_role") >= 3
    });
    assert_eq!(sidecar.client().check(&Check::of("fresh")).outcome(), Outcome::Failed);
    let log = sidecar.log();
    assert!(log.contains("the node is a replica") && !log.contains("is in use"), "{log}");
    redis.run(&["REPLICAOF", "NO", "ONE"]);
    sidecar.wait_for_store();
}

// RL-25
#[test]
fn a_master_that_lacks_its_replicas_gives_no_verdict() {
    let (redis, _sidecar, client) = start();
    redis.run(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    both_fail(&client, &["readonly", "disconnected"]);
    redis.run(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    recovers(&redis, &client);
}

// RL-26
#[test]
fn a_full_redis_gives_no_verdict_and_keeps_no_key() {
    let (redis, sidecar, client) = start();
    redis.run(&["CONFIG", "SET", "maxmemory", "1"]);
    both_fail(&client, &["oom"]);
    assert_eq!(redis.get(&keys::orders("fresh")), None);
    assert_eq!(sidecar.metrics().store_errors("oom"), 6);
    redis.run(&["CONFIG", "SET", "maxmemory", "0"]);
    recovers(&redis, &client);
}

// A Redis that refuses keeps its connection, so nothing else would tell of it.
#[test]
fn the_log_names_each_class_of_failure_and_its_reason_once_and_not_once_a_check() {
    let (redis, sidecar, client) = start();
    let told = |class: &str| {
        let log = sidecar.log();
        let lines = log.lines().filter(|line| line.contains("checks fail: the store does not decide"));
        lines.filter(|line| line.contains(&format!("\"class\":\"{class}\""))).map(str::to_owned).collect::<Vec<_>>()
    };
    redis.run(&["CONFIG", "SET", "maxmemory", "1"]);
    both_fail(&client, &["oom"]);
    wait_for("the log to tell why", Duration::from_secs(5), || !told("oom").is_empty());
    redis.run(&["CONFIG", "SET", "maxmemory", "0"]);
    redis.run(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    both_fail(&client, &["readonly"]);
    wait_for("the log to tell why", Duration::from_secs(5), || !told("readonly").is_empty());
    assert_eq!((told("oom").len(), told("readonly").len()), (1, 1), "{}", sidecar.log());
    assert!(told("oom")[0].contains("maxmemory"), "{:?}", told("oom"));
}

// RL-27: the class follows from the error's code.
#[test]
fn a_user_without_permission_to_run_scripts_gets_no_verdict() {
    let (redis, _sidecar, client) = start();
    redis.run(&["ACL", "SETUSER", "default", "-@scripting"]);
    both_fail(&client, &["permission", "disconnected"]);
    redis.run(&["ACL", "SETUSER", "default", "+@scripting"]);
    recovers(&redis, &client);
}

// RL-23, and an outage: a restarted Redis is empty and has no script.
#[test]
fn a_redis_that_was_killed_and_came_back_serves_again() {
    let (mut redis, sidecar, client) = start();
    redis.kill9();
    both_fail(&client, &["disconnected", "timeout"]);
    wait_for("the store to be seen down", Duration::from_secs(5), || {
        sidecar.metrics().count("tallygate_store_up", &[]) == 0
    });
    redis.restart();
    wait_for("a check to pass again", Duration::from_secs(5), || {
        client.check(&Check::of("after")).outcome() == Outcome::Allowed
    });
    assert_eq!(sidecar.metrics().count("tallygate_store_up", &[]), 1);
    // The policy's failures, and what they were, are on record.
    assert!(sidecar.metrics().store_errors("disconnected") + sidecar.metrics().store_errors("timeout") >= 6);
}

// RL-29: an outage is 503 and never 429, and every check gets an answer.
#[test]
fn checks_in_an_outage_are_all_answered_and_none_is_counted_later() {
    let (mut redis, sidecar, client) = start();
    redis.stop();
    let checks: Vec<_> = (0..200).map(|n| Check::of(&format!("subject-{n}"))).collect();
    for answer in client.check_all(&checks) {
        assert_eq!(answer.outcome(), Outcome::Failed);
    }
    redis.restart();
    sidecar.wait_for_store();
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
    assert_eq!(redis.keys(), [keys::orders("ada")], "nothing was queued and replayed");
}

// RL-27: a script of somebody else blocks the server.
#[test]
fn a_redis_that_is_busy_gives_no_verdict() {
    let (redis, _sidecar, client) = start();
    redis.run(&["CONFIG", "SET", "busy-reply-threshold", "100"]);
    thread::scope(|scope| {
        let blocking = scope.spawn(|| redis.command(&["EVAL", "while true do end", "0"]));
        wait_for(
            "the server to be busy",
            Duration::from_secs(5),
            || matches!(redis.command(&["GET", "x"]), Value::Error(error) if error.starts_with("BUSY")),
        );
        both_fail(&client, &["busy", "timeout", "disconnected"]);
        redis.run(&["SCRIPT", "KILL"]);
        assert!(matches!(blocking.join().unwrap(), Value::Error(_)));
    });
    recovers(&redis, &client);
}
