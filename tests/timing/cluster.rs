//! A shard that is lost: its checks fail, the others' do not wait for it, and soon after the nodes agree on its new master
//! that one decides.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::cluster::{Cluster, MASTERS, owners};
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;
use crate::timing::remains::Remains;
use crate::timing::stall::StallProbe;
use crate::timing::steady::{BUDGET, Load, Report, UNHINDERED};

/// After the nodes agree.
const PROMISED: Duration = Duration::from_secs(3);
/// Finding out, voting and promoting.
const ELECTION: Duration = Duration::from_secs(30);
/// The master that is lost, and its replica. It is neither the first nor the last in any order.
const LOST: usize = 1;
const HEIR: usize = MASTERS + LOST;

struct Trial {
    cluster: Cluster,
    sidecar: Sidecar,
    load: Load,
}

impl Trial {
    fn start(cluster: Cluster, seeds: &[usize]) -> Self {
        let sidecar = Setup::store(&cluster.store_by(seeds)).policy("orders", 100, "60s", "closed").start();
        cluster.wait_for_all_shards(&sidecar);
        let load = Load::start(&sidecar.client());
        load.goes_on_for(50);
        Self { cluster, sidecar, load }
    }

    /// Waits until these nodes agree that the heir serves the lost master's slots; when that was.
    fn heir_rules(&self, living: &[usize]) -> Instant {
        let Cluster { nodes } = &self.cluster;
        let heir = i64::from(nodes[HEIR].port());
        wait_for("the nodes to agree on a new master", ELECTION, || {
            living.iter().all(|n| owners(&nodes[*n])[LOST].2 == heir)
        });
        Instant::now()
    }

    fn is_followed(&self) {
        let address = format!("127.0.0.1:{}\"", self.cluster.nodes[HEIR].port());
        wait_for("the sidecar to follow", ELECTION, || {
            self.sidecar.log().lines().any(|line| line.contains("is in use") && line.contains(&address))
        });
    }

    /// Goes on for a second. Then every promise, with what the lost master had counted.
    fn end(self, fault: Instant, agreed: Instant, by_lost: &BTreeMap<String, u64>) -> Report {
        self.load.goes_on_for(100);
        let report = self.load.stop();
        report.was_answered_in_time();
        let by_living = self.cluster.counters(&[0, 2, HEIR]);
        // Replication is asynchronous: the last counts of the lost master may be nowhere else.
        report.is_explained_by(&[by_lost, &by_living]);
        let (lost, others) = report.split(|subject| self.cluster.shard(&keys::orders(subject)) == LOST);
        others.went_on_unhindered();
        lost.recovered_within(PROMISED, fault, agreed);
        lost
    }
}

#[test]
fn a_killed_master_fails_its_shard_at_once_and_is_replaced() {
    let mut trial = Trial::start(Cluster::with_replicas(), &[0]);
    let remains = Remains::of(&trial.cluster.nodes[LOST]);
    let fault = Instant::now();
    trial.cluster.nodes[LOST].kill9();
    let agreed = trial.heir_rules(&[0, 2, 3, 4, 5]);
    trial.is_followed();
    let lost = trial.end(fault, agreed, &remains.counters());
    lost.failed_at_once(fault);
}

// Trial C5: a client whose time-outs did not make it look stayed with the hung master until that woke.
#[test]
fn a_hung_master_is_replaced_while_it_hangs() {
    let trial = Trial::start(Cluster::with_replicas(), &[0]);
    let remains = Remains::of(&trial.cluster.nodes[LOST]);
    let fault = Instant::now();
    trial.cluster.nodes[LOST].pause();
    let agreed = trial.heir_rules(&[0, 2, 3, 4, 5]);
    trial.is_followed();
    trial.load.goes_on_for(100);
    let by_lost = remains.counters();
    trial.cluster.nodes[LOST].resume();
    let is_replica = |node: &RedisServer| node.run(&["INFO", "replication"]).text().contains("role:slave");
    wait_for("the old master to wake and follow", ELECTION, || is_replica(&trial.cluster.nodes[LOST]));
    let lost = trial.end(fault, agreed, &by_lost);
    lost.failed_at_once(fault + 2 * BUDGET);
}

#[test]
fn the_map_is_kept_without_the_nodes_that_it_began_with() {
    let mut trial = Trial::start(Cluster::with_replicas(), &[MASTERS]);
    trial.cluster.nodes[MASTERS].kill9();
    let remains = Remains::of(&trial.cluster.nodes[LOST]);
    let fault = Instant::now();
    trial.cluster.nodes[LOST].kill9();
    let agreed = trial.heir_rules(&[0, 2, 4, 5]);
    trial.is_followed();
    trial.end(fault, agreed, &remains.counters());
}

// Trial C8: a client stopped at all shards while it asked the hung one for the map.
#[test]
fn a_hung_shard_slows_no_other_not_even_when_the_map_has_changed() {
    let stall = StallProbe::start();
    let Trial { cluster, sidecar, load } = Trial::start(Cluster::start(), &[0, 1, 2]);
    let client = sidecar.client();
    cluster.nodes[LOST].pause();
    let mut answers = Vec::new();
    for subject in (0..5).map(|round| cluster.one_a_shard(&format!("moving-{round}")).swap_remove(0)) {
        load.goes_on_for(20);
        let key = keys::orders(&subject);
        answers.push(client.check(&Check::of(&subject)));
        let migration = cluster.migrate(cluster.slot(&key), 0, 2);
        migration.move_key(&key);
        migration.finish();
        let moved = || migration.from.info("errorstats", "errorstat_MOVED");
        wait_for("the map to be right while a master hangs", PROMISED, || {
            let before = moved();
            answers.push(client.check(&Check::of(&subject)));
            moved() == before
        });
    }
    for answer in answers {
        // The longer the map takes, the more often was asked, and the limit may be used up.
        let is_decided = [Outcome::Allowed, Outcome::Limited].contains(&answer.outcome());
        assert!(is_decided, "{}", answer.metadata("reason"));
        let bound = stall.bound(UNHINDERED);
        assert!(answer.took <= bound, "a moved slot's check took {:?}, more than {bound:?}", answer.took);
    }
    let report = load.stop();
    report.was_answered_in_time();
    let (_hung, others) = report.split(|subject| cluster.shard(&keys::orders(subject)) == LOST);
    others.went_on_unhindered();
}
