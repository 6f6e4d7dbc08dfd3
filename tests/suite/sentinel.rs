//! A master that Sentinels watch: whom to believe, and with which password.

use std::time::Duration;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::keys;
use crate::support::proxy::FaultProxy;
use crate::support::redis::RedisServer;
use crate::support::sentinel::{Passwords, Watched, is_master};
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::{poll, wait_for};

fn setup(store: &str) -> Setup {
    Setup::store(store).policy("orders", 100, "60s", "closed")
}

#[track_caller]
fn passes(sidecar: &Sidecar, subject: &str) {
    let client = sidecar.client();
    wait_for("a check to pass", Duration::from_secs(10), || {
        client.check(&Check::of(subject)).outcome() == Outcome::Allowed
    });
}

/// Waits until the sidecar has looked after its connection so often more.
#[track_caller]
fn is_looked_after(node: &RedisServer, times: u64) {
    let beats = || node.info("commandstats", "cmdstat_time");
    let before = beats();
    wait_for("heartbeats", Duration::from_secs(10), || beats() >= before + times);
}

// A part of the network that lost touch with the others: its Sentinel is the nearest, and its master takes itself for one. The
// first answer once led back to it, over and over.
#[test]
fn a_sentinel_that_did_not_hear_of_a_switch_over_is_outvoted() {
    let watched = Watched::start();
    let deaf = watched.start_deaf_sentinel();
    let others = [0, 1, 2].map(|n| FaultProxy::start(watched.sentinels[n].port()));
    others.iter().for_each(|proxy| proxy.delay(Duration::from_millis(20)));
    let ports: Vec<_> = [deaf.port()].into_iter().chain(others.iter().map(FaultProxy::port)).collect();
    let sidecar = setup(&watched.store_by(&ports)).start();
    passes(&sidecar, "before");

    watched.sentinels[0].switch_over();
    let new = poll(Duration::from_secs(20), || watched.new_master(&[0, 1, 2])).expect("they agree in the end");
    let (old, new) = (&watched.nodes[0], &watched.nodes[new]);
    let counts = |node: &RedisServer| node.get(&keys::orders("after")).is_some();
    let client = sidecar.client();
    wait_for("a check to be counted by the new master", Duration::from_secs(5), || {
        client.check(&Check::of("after"));
        counts(new)
    });
    assert_eq!((deaf.master(), is_master(old)), (Some(old.port()), true), "the temptation is there");
    is_looked_after(new, 3);
    assert_eq!(client.check(&Check::of("later")).outcome(), Outcome::Allowed);
    assert_eq!(new.get(&keys::orders("later")).as_deref(), Some("1"), "it stays with the new one");
}

#[test]
fn dead_sentinels_do_not_hide_the_master_while_one_lives() {
    let mut watched = Watched::start();
    watched.sentinels[0].kill9();
    watched.sentinels[1].kill9();
    let sidecar = setup(&watched.store()).start_without_store();
    passes(&sidecar, "ada");
    is_looked_after(&watched.nodes[0], 2);
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed);
    assert!(!sidecar.log().contains("out of use"), "{}", sidecar.log());
}

// RL-35: passwords are nowhere.
#[test]
fn passwords_come_from_files_and_a_wrong_one_is_told_by_its_place() {
    let passwords = Passwords { nodes: Some("CANARY-of-nodes"), sentinels: Some("CANARY-of-sentinels") };
    let watched = Watched::start_with(passwords);
    let store = watched.store();
    let is_told = |sidecar: &Sidecar, place: &str| {
        wait_for("the log to tell why", Duration::from_secs(5), || {
            sidecar.log().lines().any(|line| line.contains("\"class\":\"permission\"") && line.contains(place))
        });
    };
    watched.write_passwords(Passwords { sentinels: Some("CANARY-wrong"), ..passwords });
    let sidecar = setup(&store).start_without_store();
    is_told(&sidecar, "\"place\":\"sentinel master mymaster\"");
    watched.write_passwords(Passwords { nodes: Some("CANARY-wrong"), ..passwords });
    is_told(&sidecar, &format!("\"place\":\"127.0.0.1:{}, sentinel master mymaster\"", watched.nodes[0].port()));
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Failed);
    watched.write_passwords(passwords);
    passes(&sidecar, "ada");
    assert!(!sidecar.log().contains("CANARY"), "{}", sidecar.log());
    assert!(!sidecar.get("/metrics").text().contains("CANARY"));
}

#[test]
fn a_master_that_no_sentinel_knows_is_named_in_the_log() {
    let watched = Watched::start();
    let sidecar = setup(&watched.store().replace("mymaster", "another")).start_without_store();
    wait_for("the log to tell why", Duration::from_secs(5), || sidecar.log().contains("knows no master named another"));
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Failed);
}
