//! A slot that moves from one shard to another: each check is counted once, here or there, or fails.

use std::time::Duration;

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::cluster::Cluster;
use crate::support::grpc::Client;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;

const TWO_LIMITS: &str = "
  - name: orders
    version: 1
    match: { path: { prefix: /orders } }
    limits:
      - { name: first, per: [tenant, subject], fixed_window: { limit: 5, window: 60s } }
      - { name: second, per: [tenant, subject], fixed_window: { limit: 9, window: 60s } }
    on_failure: closed";

/// A cluster, a sidecar that uses all of it, and a subject of its first master.
fn start(cluster: &Cluster, setup: Setup) -> (Sidecar, Client) {
    let sidecar = setup.start();
    let client = sidecar.client();
    cluster.wait_for_all_shards(&sidecar);
    (sidecar, client)
}

fn one_limit(cluster: &Cluster) -> Setup {
    Setup::store(&cluster.store()).policy("orders", 5, "60s", "closed")
}

#[track_caller]
fn pass(client: &Client, subject: &str, n: usize) {
    for _ in 0..n {
        let answer = client.check(&Check::of(subject));
        assert_eq!(answer.outcome(), Outcome::Allowed, "{}", answer.metadata("reason"));
    }
}

#[track_caller]
fn is_limited(client: &Client, subject: &str) {
    assert_eq!(client.check(&Check::of(subject)).outcome(), Outcome::Limited);
}

/// How often `node` has told a client to ask another for good.
fn moved(node: &RedisServer) -> u64 {
    node.info("errorstats", "errorstat_MOVED")
}

/// Checks of `subject` no longer take the way by `old`.
#[track_caller]
fn goes_straight(client: &Client, subject: &str, old: &RedisServer) {
    // Sooner than the map is looked at without any sign of change.
    wait_for("the map to be right", Duration::from_secs(3), || {
        let before = moved(old);
        client.check(&Check::of(subject));
        moved(old) == before
    });
}

#[test]
fn a_counter_of_a_migrating_slot_is_followed_and_counted_once() {
    let cluster = Cluster::start();
    let (_sidecar, client) = start(&cluster, one_limit(&cluster));
    let subject = &cluster.one_a_shard("subject")[0];
    let key = keys::orders(subject);
    pass(&client, subject, 2);

    let migration = cluster.migrate(cluster.slot(&key), 0, 1);
    pass(&client, subject, 1);
    assert_eq!(migration.from.get(&key).as_deref(), Some("3"), "a key that has not moved is counted where it is");
    migration.move_key(&key);
    pass(&client, subject, 2);
    is_limited(&client, subject);
    migration.finish();
    is_limited(&client, subject);
    assert_eq!(migration.to.get(&key).as_deref(), Some("5"), "each allowed check counted once");
    assert_eq!(migration.from.counters().get(&key), None, "nothing was left behind");
}

#[test]
fn a_new_counter_of_a_migrating_slot_begins_where_the_slot_goes() {
    let cluster = Cluster::start();
    let (_sidecar, client) = start(&cluster, one_limit(&cluster));
    let subject = &cluster.one_a_shard("subject")[0];
    let key = keys::orders(subject);
    let migration = cluster.migrate(cluster.slot(&key), 0, 1);
    // Without the script there, too.
    migration.to.run(&["SCRIPT", "FLUSH"]);
    let answers = client.check_times(&Check::of(subject), 20);
    assert_eq!((count(&answers, Outcome::Allowed), count(&answers, Outcome::Limited)), (5, 15));
    migration.finish();
    assert_eq!(migration.to.get(&key).as_deref(), Some("5"));
    is_limited(&client, subject);
}

#[test]
fn a_slot_that_has_moved_is_followed_at_once_and_then_asked_directly() {
    let cluster = Cluster::start();
    let (_sidecar, client) = start(&cluster, one_limit(&cluster));
    let subject = &cluster.one_a_shard("subject")[0];
    let key = keys::orders(subject);
    pass(&client, subject, 2);
    let migration = cluster.migrate(cluster.slot(&key), 0, 2);
    migration.move_key(&key);
    migration.finish();
    let before = moved(migration.from);
    pass(&client, subject, 1);
    assert_eq!(moved(migration.from), before + 1, "the first one was sent on");
    assert_eq!(migration.to.get(&key).as_deref(), Some("3"));
    goes_straight(&client, subject, migration.from);
}

// Once it was forgotten with each look at the map, since it serves no slot yet.
#[test]
fn a_slot_may_move_to_a_node_that_served_none() {
    let mut cluster = Cluster::start();
    let fourth = cluster.join();
    let (_sidecar, client) = start(&cluster, one_limit(&cluster));
    let [moving, other] = [0, 1].map(|shard| cluster.one_a_shard("subject").swap_remove(shard));
    let key = keys::orders(&moving);
    let migration = cluster.migrate(cluster.slot(&key), 0, fourth);
    // Nobody has heard of that node before: the first check that is sent there finds no connection yet.
    wait_for("a check to pass", Duration::from_secs(2), || {
        client.check(&Check::of(&moving)).outcome() == Outcome::Allowed
    });
    pass(&client, &moving, 1);
    // Another slot that has moved makes the sidecar look at the map.
    let moved_on = cluster.migrate(cluster.slot(&keys::orders(&other)), 1, 2);
    moved_on.finish();
    pass(&client, &other, 1);
    goes_straight(&client, &other, moved_on.from);
    pass(&client, &moving, 3);
    migration.finish();
    is_limited(&client, &moving);
    goes_straight(&client, &moving, migration.from);
    assert_eq!(migration.to.get(&key).as_deref(), Some("5"));
}

// A node need not say its own name: then the host that was asked is meant.
#[test]
fn nodes_without_a_name_are_followed_by_their_ports() {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        node.run(&["CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint"]);
    }
    let (_sidecar, client) = start(&cluster, one_limit(&cluster));
    let subject = &cluster.one_a_shard("subject")[0];
    let key = keys::orders(subject);
    pass(&client, subject, 2);
    let migration = cluster.migrate(cluster.slot(&key), 0, 1);
    migration.move_key(&key);
    pass(&client, subject, 1);
    migration.finish();
    pass(&client, subject, 1);
    assert_eq!(migration.to.get(&key).as_deref(), Some("4"));
    goes_straight(&client, subject, migration.from);
}

#[test]
fn several_limits_of_a_migrating_slot_fail_until_their_keys_have_moved_and_count_once() {
    let cluster = Cluster::start();
    let (_sidecar, client) = start(&cluster, Setup::store(&cluster.store()).policies(TWO_LIMITS));
    let at_first = |subject: &String| cluster.shard(&keys::orders_tagged(subject)) == 0;
    let subject = &(0..).map(|n| format!("subject-{n}")).find(at_first).unwrap();
    let slot = cluster.slot(&keys::orders_tagged(subject));
    let keys = |node: &RedisServer| -> Vec<String> {
        node.keys().into_iter().filter(|key| key.starts_with(&keys::orders_tagged(subject))).collect()
    };
    let counts = |node: &RedisServer| keys(node).iter().filter_map(|key| node.get(key)).collect::<Vec<_>>();
    let fails = || {
        for _ in 0..3 {
            let answer = client.check(&Check::of(subject));
            assert_eq!((answer.outcome(), answer.metadata("reason").as_str()), (Outcome::Failed, "cluster"));
        }
    };

    // New keys begin nowhere: neither node holds the whole slot.
    let migration = cluster.migrate(slot, 0, 1);
    fails();
    assert_eq!((keys(migration.from), keys(migration.to)), (vec![], vec![]));
    migration.call_off();
    pass(&client, subject, 2);

    let migration = cluster.migrate(slot, 0, 1);
    pass(&client, subject, 1);
    assert_eq!(counts(migration.from), ["3", "3"], "both keys are still there");
    let [first, second] = keys(migration.from).try_into().unwrap();
    migration.move_key(&first);
    fails();
    assert_eq!((keys(migration.from), keys(migration.to)), (vec![second.clone()], vec![first]), "torn apart");
    migration.move_key(&second);
    pass(&client, subject, 1);
    migration.finish();
    pass(&client, subject, 1);
    is_limited(&client, subject);
    assert_eq!(counts(migration.to), ["5", "5"], "each allowed check counted once for both limits, and no other");
    assert_eq!(keys(migration.from), [""; 0]);
}
