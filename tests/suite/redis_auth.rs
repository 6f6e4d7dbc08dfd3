//! A Redis that wants a password: what the sidecar needs, and what becomes of a wrong one.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;

/// A sidecar that comes as `limiter` with this password, which may hold any character.
fn start(redis: &RedisServer, password_in_url: &str) -> Sidecar {
    start_on(redis, password_in_url, "")
}

/// The same, in a database by its path in the URL.
fn start_on(redis: &RedisServer, password_in_url: &str, database: &str) -> Sidecar {
    let port = redis.port();
    let store = format!("{{ redis: {{ url: 'redis://limiter:{password_in_url}@127.0.0.1:{port}{database}' }} }}");
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

/// The commands that the page on Redis tells operators to allow, and nothing else.
fn minimal_list() -> Vec<String> {
    let page = include_str!("../../docs/redis.md");
    let line = page.lines().find(|line| line.contains("ACL SETUSER tallygate")).expect("the page has the list");
    let words = line.split_whitespace().filter(|word| word.starts_with('+'));
    words.map(str::to_owned).collect()
}

fn only(redis: &RedisServer, commands: &[String]) {
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    user(redis, &[&["reset", "on", ">p@ss/#%:word", "~rl:*", "-@all"], &commands[..]].concat());
}

const PASSWORD: &str = "p%40ss%2F%23%25%3Aword";

#[test]
fn the_least_that_the_page_on_redis_allows_is_enough() {
    let redis = RedisServer::start();
    only(&redis, &minimal_list());
    let sidecar = start(&redis, PASSWORD);
    passes(&sidecar);
    assert_eq!(redis.get(&keys::orders("ada")).as_deref(), Some("1"));
    redis.run(&["SCRIPT", "FLUSH"]);
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed);
}

#[test]
fn a_database_that_the_user_may_not_select_is_told_as_that() {
    let redis = RedisServer::start();
    only(&redis, &minimal_list());
    let sidecar = start_on(&redis, PASSWORD, "/1");
    wait_for("the refusal in the log", Duration::from_secs(5), || {
        sidecar.log().contains("the server refuses database 1: it has fewer, or the user lacks +select")
    });
    user(&redis, &["+select"]);
    passes(&sidecar);
    let absent = start_on(&redis, PASSWORD, "/99");
    wait_for("the other one", Duration::from_secs(5), || absent.log().contains("the server refuses database 99: "));
}

// Found before a charge is half made: no key is left without an expiry, and none is charged in part.
#[test]
fn each_permission_that_is_missing_fails_checks_and_leaves_no_key() {
    // Without these Tallygate does as well: it is told of a replica by the first check, and sends scripts by their text; a HELLO
    // that brings a password is always allowed; and this is no Cluster.
    let harmless = ["+role", "+script|load", "+hello", "+cluster|slots", "+cluster|info", "+asking"];
    let redis = RedisServer::start();
    for missing in minimal_list().iter().filter(|command| !harmless.contains(&command.as_str())) {
        let rest: Vec<String> = minimal_list().into_iter().filter(|command| command != missing).collect();
        only(&redis, &rest);
        let sidecar = start(&redis, PASSWORD);
        wait_for("the log to tell why, or a check to be tried", Duration::from_secs(5), || {
            sidecar.client().check(&Check::of("ada"));
            sidecar.metrics().count("tallygate_store_errors_total", &[("class", "permission")]) > 0
                || sidecar.log().contains("permission")
        });
        assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Failed, "without {missing}");
        assert_eq!(redis.keys(), [""; 0], "without {missing}");
    }
    for missing in &harmless[..3] {
        let rest: Vec<String> = minimal_list().into_iter().filter(|command| command != missing).collect();
        only(&redis, &rest);
        passes(&start(&redis, PASSWORD));
    }
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

#[test]
fn a_rotated_password_file_takes_effect_at_the_next_connection() {
    let redis = RedisServer::start();
    user(&redis, &["on", ">old", "~rl:*", "+@all"]);
    let dir = TempDir::with_prefix("tallygate-password-").unwrap();
    let file = dir.path().join("redis.pw");
    fs::write(&file, "old\n").unwrap();
    let (port, path) = (redis.port(), file.display());
    let credentials = format!("username: limiter, password_file: '{path}'");
    let store = format!("{{ redis: {{ url: 'redis://127.0.0.1:{port}', {credentials} }} }}");
    let sidecar = Setup::store(&store).policy("orders", 100, "60s", "closed").start();
    user(&redis, &["resetpass", ">new"]);
    fs::write(&file, "new\n").unwrap();
    for _ in 0..20 {
        assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed, "who is in stays in");
    }
    redis.run(&["CLIENT", "KILL", "USER", "limiter"]);
    wait_for("a new connection", Duration::from_secs(5), || sidecar.log().matches("Redis is in use").count() == 2);
    passes(&sidecar);
    assert!(!sidecar.log().contains("permission"), "{}", sidecar.log());
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
