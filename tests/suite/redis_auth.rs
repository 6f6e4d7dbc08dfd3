//! A Redis that wants a password: what the sidecar needs, and what becomes of a wrong one.

use std::time::Duration;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;

/// A sidecar that comes as `limiter` with this password, which may hold any character.
fn start(redis: &RedisServer, password_in_url: &str) -> Sidecar {
    let port = redis.port();
    let store = format!("{{ redis: {{ url: 'redis://limiter:{password_in_url}@127.0.0.1:{port}' }} }}");
    Setup::store(&store).policy("orders", 5, "60s", "closed").start_without_store()
}

fn user(redis: &RedisServer, rules: &[&str]) {
    redis.run(&[&["ACL", "SETUSER", "limiter"], rules].concat());
}

#[track_caller]
fn passes(sidecar: &Sidecar) {
    let client = sidecar.client();
    wait_for("a check to pass", Duration::from_secs(5), || {
        client.check(&Check::of("ada")).outcome() == Outcome::Allowed
    });
}

// The least that a user needs: the README's advice to operators rests on it.
#[test]
fn a_user_with_few_permissions_and_keys_of_ours_alone_is_enough() {
    let redis = RedisServer::start();
    let commands = ["+eval", "+evalsha", "+script|load", "+time", "+role", "+get", "+set", "+incrby", "+pexpiretime"];
    user(&redis, &[&["on", ">p@ss/#%:word", "~rl:*", "+hello", "+client", "+ping"], &commands[..]].concat());
    let sidecar = start(&redis, "p%40ss%2F%23%25%3Aword");
    passes(&sidecar);
    assert_eq!(redis.get(&keys::orders("ada")).as_deref(), Some("1"));
    redis.run(&["SCRIPT", "FLUSH"]);
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed);
}

// RL-27, RL-35: permission, not a time-out; and the password is nowhere.
#[test]
fn a_wrong_password_fails_by_class_until_it_is_right() {
    let redis = RedisServer::start();
    user(&redis, &["on", ">right", "~rl:*", "+@all"]);
    let sidecar = start(&redis, "PW-CANARY");
    let client = sidecar.client();
    for _ in 0..3 {
        assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Failed);
    }
    wait_for("the log to tell why", Duration::from_secs(5), || sidecar.log().contains("permission"));
    assert_eq!(redis.keys(), [""; 0]);
    user(&redis, &[">PW-CANARY"]);
    passes(&sidecar);
    assert!(!sidecar.log().contains("CANARY"), "{}", sidecar.log());
    assert!(!sidecar.get("/metrics").text().contains("CANARY"));
}

// A client library of ours once stayed wedged for ever in this case.
#[test]
fn a_password_that_changes_and_changes_back_does_no_lasting_harm() {
    let redis = RedisServer::start();
    user(&redis, &["on", ">right", "~rl:*", "+@all"]);
    let sidecar = start(&redis, "right");
    passes(&sidecar);
    user(&redis, &["resetpass", ">other"]);
    redis.run(&["CLIENT", "KILL", "USER", "limiter"]);
    let client = sidecar.client();
    wait_for("a check to fail", Duration::from_secs(5), || {
        client.check(&Check::of("eve")).outcome() == Outcome::Failed
    });
    // Several attempts with the wrong one.
    wait_for("the log to tell why", Duration::from_secs(5), || sidecar.log().contains("permission"));
    user(&redis, &["resetpass", ">right"]);
    passes(&sidecar);
}
