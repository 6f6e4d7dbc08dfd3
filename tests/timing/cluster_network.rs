//! Nodes that are well and that the sidecar cannot reach: their shards fail, the others do not notice, and it ends soon after
//! the network is back.

use std::time::{Duration, Instant};

use crate::support::cluster::Cluster;
use crate::support::keys;
use crate::support::proxy::Fault;
use crate::support::setup::Setup;
use crate::timing::steady::{BUDGET, Load};

/// After the network is back.
const PROMISED: Duration = Duration::from_secs(2);

/// Puts `fault` between the sidecar, which began with the node `seed`, and the nodes `cut_off`, which serve a shard each.
#[track_caller]
fn only_their_shards_fail(fault: Fault, seed: usize, cut_off: &[usize]) {
    let cluster = Cluster::start();
    let proxies = cluster.announce_proxies();
    let seed = format!("{{ redis: {{ cluster: {{ nodes: ['127.0.0.1:{}'] }} }} }}", proxies[seed].port());
    let sidecar = Setup::store(&seed).policy("orders", 100, "60s", "closed").start();
    cluster.wait_for_all_shards(&sidecar);
    let load = Load::start(&sidecar.client());
    load.goes_on_for(50);

    let began = Instant::now();
    cut_off.iter().for_each(|n| proxies[*n].set(fault));
    load.goes_on_for(200);
    let ended = Instant::now();
    cut_off.iter().for_each(|n| proxies[*n].set(Fault::Pass));
    load.goes_on_for(250);

    let report = load.stop();
    report.was_answered_in_time();
    report.is_explained_by(&[&cluster.counters(&[0, 1, 2])]);
    let (lost, others) = report.split(|subject| cut_off.contains(&cluster.shard(&keys::orders(subject))));
    others.went_on_unhindered();
    lost.recovered_within(PROMISED, began, ended);
    lost.failed_at_once(began + 2 * BUDGET);
}

#[test]
fn a_node_that_is_cut_off_fails_its_own_shard_alone() {
    only_their_shards_fail(Fault::Cut, 0, &[1]);
}

#[test]
fn all_nodes_but_the_first_known_may_be_cut_off() {
    only_their_shards_fail(Fault::Cut, 0, &[1, 2]);
}

#[test]
fn the_first_known_node_may_be_cut_off() {
    only_their_shards_fail(Fault::Cut, 0, &[0]);
}

// A firewall that drops what it does not like: nobody says that a connection is gone.
#[test]
fn a_node_that_falls_silent_fails_its_own_shard_alone() {
    only_their_shards_fail(Fault::Swallow, 0, &[1]);
}
