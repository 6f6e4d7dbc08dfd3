//! A switch-over under load: checks fail for the gap, none is allowed that nobody counted, and soon after the Sentinels
//! agree the new master decides (RL-24).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::proxy::{Fault, FaultProxy};
use crate::support::redis::RedisServer;
use crate::support::sentinel::{Passwords, Watched, is_master};
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::{poll, wait_for};
use crate::timing::remains::Remains;
use crate::timing::steady::{Load, Report};

/// After the servers agree.
const PROMISED: Duration = Duration::from_secs(3);
/// Finding out, voting and promoting.
const SWITCH: Duration = Duration::from_secs(30);

struct Trial {
    watched: Watched,
    /// Of the first master, to look at when it is dead.
    remains: Remains,
    sidecar: Sidecar,
    load: Load,
}

/// What the Sentinels made of a fault.
struct Switched {
    fault: Instant,
    agreed: Instant,
    /// The place of the new master among the nodes.
    master: usize,
}

impl Trial {
    fn start(watched: Watched) -> Self {
        let store = watched.store();
        Self::start_by(watched, &store)
    }

    fn start_by(watched: Watched, store: &str) -> Self {
        let sidecar = Setup::store(store).policy("orders", 100, "60s", "closed").start();
        let load = Load::start(&sidecar.client());
        load.goes_on_for(50);
        Self { remains: Remains::of(&watched.nodes[0]), watched, sidecar, load }
    }

    /// Brings the fault about, waits until these Sentinels name the same other master, which is one, and then until the
    /// sidecar uses it.
    fn switch(&mut self, living: &[usize], fault: impl FnOnce(&mut Watched)) -> Switched {
        let at = Instant::now();
        fault(&mut self.watched);
        let master = poll(SWITCH, || self.watched.new_master(living)).expect("they agree in the end");
        let switched = Switched { fault: at, agreed: Instant::now(), master };
        let address = format!("127.0.0.1:{}\"", self.watched.nodes[master].port());
        wait_for("the sidecar to follow", SWITCH, || {
            self.sidecar.log().lines().any(|line| line.contains("is in use") && line.contains(&address))
        });
        switched
    }

    /// Goes on for a second. Then every promise, but for who counted what; and what the new master did.
    fn end(self, switched: &Switched) -> (Watched, Report, BTreeMap<String, u64>) {
        self.load.goes_on_for(100);
        let report = self.load.stop();
        report.was_answered_in_time();
        report.recovered_within(PROMISED, switched.fault, switched.agreed);
        let by_new = self.watched.nodes[switched.master].counters();
        (self.watched, report, by_new)
    }

    /// The whole of a trial in which the first master dies.
    fn survives_the_masters_death(mut self, living: &[usize]) {
        let switched = self.switch(living, |watched| watched.nodes[0].kill9());
        let by_old = self.remains.counters();
        let (_watched, report, by_new) = self.end(&switched);
        // Replication is asynchronous: the last counts of the old master may be nowhere else.
        report.is_explained_by(&[&by_old, &by_new]);
    }
}

/// Connections of the sidecar to this node.
fn connections(node: &RedisServer) -> usize {
    node.run(&["CLIENT", "LIST"]).text().lines().filter(|line| line.contains("lib-name=redis-rs")).count()
}

// Sentinel turns it into a replica only some 8 s later: until then nothing but the Sentinels' word tells that it is not the
// master.
#[test]
fn a_switch_over_is_followed_while_the_old_master_lives() {
    let mut trial = Trial::start(Watched::start());
    assert_eq!(connections(&trial.watched.nodes[0]), 1);
    let switched = trial.switch(&[0, 1, 2], |watched| watched.sentinels[0].switch_over());
    let old = &trial.watched.nodes[0];
    wait_for("the old master to be left", Duration::from_secs(1), || connections(old) == 0);
    // Before it takes the new master's data for its own.
    assert!(is_master(old));
    let by_old = old.counters();
    let (watched, report, by_new) = trial.end(&switched);
    assert_eq!(connections(&watched.nodes[0]), 0, "it stays left");
    report.is_explained_by(&[&by_old, &by_new]);
}

#[test]
fn a_killed_master_is_replaced() {
    Trial::start(Watched::start()).survives_the_masters_death(&[0, 1, 2]);
}

#[test]
fn a_hung_master_is_replaced_and_charges_nothing_when_it_wakes() {
    let mut trial = Trial::start(Watched::start());
    let switched = trial.switch(&[0, 1, 2], |watched| watched.nodes[0].pause());
    trial.watched.nodes[0].resume();
    let old = &trial.watched.nodes[0];
    wait_for("the old master to be left", Duration::from_secs(1), || connections(old) == 0);
    assert!(is_master(old), "it does not know yet");
    let by_old = old.counters();
    let (_watched, report, by_new) = trial.end(&switched);
    report.is_explained_by(&[&by_old, &by_new]);
    for asked in report.asked.iter().filter(|asked| asked.sent > switched.fault) {
        assert!(!by_old.contains_key(&asked.key()), "{}: asked while it hung, charged when it woke", asked.subject);
    }
}

#[test]
fn a_dead_sentinel_hinders_nobody() {
    let mut watched = Watched::start();
    let store = watched.store();
    watched.sentinels[0].kill9();
    Trial::start_by(watched, &store).survives_the_masters_death(&[1, 2]);
}

// A client that asks one after another would wait for the first one with each look.
#[test]
fn a_sentinel_that_swallows_traffic_hinders_nobody() {
    let watched = Watched::start();
    let proxy = FaultProxy::start(watched.sentinels[0].port());
    let [second, third] = [1, 2].map(|n| watched.sentinels[n].port());
    let store = watched.store_by(&[proxy.port(), second, third]);
    let trial = Trial::start_by(watched, &store);
    proxy.set(Fault::Swallow);
    trial.load.goes_on_for(200);
    trial.survives_the_masters_death(&[0, 1, 2]);
}

#[test]
fn passwords_of_nodes_and_sentinels_are_each_their_own() {
    let passwords = Passwords { nodes: Some("CANARY-of-nodes"), sentinels: Some("CANARY-of-sentinels") };
    Trial::start(Watched::start_with(passwords)).survives_the_masters_death(&[0, 1, 2]);
}
