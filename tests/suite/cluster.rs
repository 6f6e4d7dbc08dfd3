//! A Redis Cluster counts as one Redis does: each key at its own shard, and all keys of one check at the same.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::cluster::{Cluster, MASTERS};
use crate::support::keys;
use crate::support::proxy::{Fault, FaultProxy};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::wait::{poll, wait_for};

/// A narrow limit for each address of a subject, and a broad one for the subject.
const NARROW_AND_BROAD: &str = "
  - name: orders
    version: 1
    match: { path: { prefix: /orders } }
    limits:
      - { name: narrow, per: [subject, address], fixed_window: { limit: 3, window: 60s } }
      - { name: broad, per: [subject], fixed_window: { limit: 10, window: 60s } }
    on_failure: closed";

fn from(subject: &str, address: usize) -> Check {
    Check::of(subject).source(&format!("192.0.2.{address}"))
}

#[test]
fn many_subjects_land_on_all_shards_and_each_is_counted_exactly() {
    let cluster = Cluster::start();
    let sidecar = Setup::store(&cluster.store()).policy("orders", 3, "60s", "closed").start();
    let client = sidecar.client();
    cluster.wait_for_all_shards(&sidecar);
    let mut shards = BTreeSet::new();
    for n in 0..60 {
        let subject = format!("subject-{n}");
        let key = keys::orders(&subject);
        let answers = client.check_times(&Check::of(&subject), 5);
        assert_eq!((count(&answers, Outcome::Allowed), count(&answers, Outcome::Limited)), (3, 2), "{subject}");
        let shard = cluster.shard(&key);
        assert_eq!(cluster.nodes[shard].get(&key).as_deref(), Some("3"), "{subject}");
        shards.insert(shard);
    }
    assert_eq!(shards.len(), MASTERS);
    assert_eq!(cluster.counters(&[0, 1, 2]).len(), 60, "one key a subject, at one shard");
}

// RL-04
#[test]
fn all_limits_of_a_check_are_charged_or_none_whatever_the_shard() {
    let cluster = Cluster::start();
    let sidecar = Setup::store(&cluster.store()).policies(NARROW_AND_BROAD).start();
    let client = sidecar.client();
    cluster.wait_for_all_shards(&sidecar);
    for n in 0..50 {
        let subject = format!("subject-{n}");
        let answers = client.check_times(&from(&subject, 1), 8);
        assert_eq!((count(&answers, Outcome::Allowed), count(&answers, Outcome::Limited)), (3, 5), "{subject}");
        let others: Vec<_> = (2..10).map(|address| from(&subject, address)).collect();
        let answers = client.check_all(&others);
        assert_eq!((count(&answers, Outcome::Allowed), count(&answers, Outcome::Limited)), (7, 1), "{subject}");
    }
    let mut slots = BTreeSet::new();
    let (mut narrow, mut broad) = (Vec::new(), Vec::new());
    for (key, counted) in cluster.counters(&[0, 1, 2]) {
        slots.insert(cluster.slot(&key));
        if key.contains(":narrow:") { narrow.push(counted) } else { broad.push(counted) }
    }
    assert_eq!(broad, [10; 50], "five checks that only the narrow limit refused took nothing from the broad one");
    narrow.sort_unstable();
    assert_eq!(narrow, [[1; 7 * 50].as_slice(), &[3; 50]].concat(), "nor the other way round");
    assert!(slots.len() > 40, "the keys of a subject share a slot, and subjects do not: {} slots", slots.len());
}

// No check was there to ask, and nothing else made it look again for 5 s.
#[test]
fn a_cluster_that_could_not_be_reached_is_found_without_a_check() {
    let cluster = Cluster::start();
    let proxy = FaultProxy::start(cluster.nodes[0].port());
    proxy.set(Fault::Cut);
    let seed = format!("{{ redis: {{ cluster: {{ nodes: ['127.0.0.1:{}'] }} }} }}", proxy.port());
    let sidecar = Setup::store(&seed).policy("orders", 3, "60s", "closed").start_without_store();
    let vain = "no node of the Redis Cluster says who serves which slots";
    wait_for("a vain look", Duration::from_secs(5), || sidecar.log().contains(vain));
    proxy.set(Fault::Pass);
    let is_up = || sidecar.metrics().count("tallygate_store_up", &[]) == 1;
    wait_for("the sidecar to find the cluster", Duration::from_secs(2), is_up);
}

#[test]
fn why_the_cluster_is_not_found_is_told_by_node_and_class() {
    let redis = RedisServer::start();
    let seed = format!("127.0.0.1:{}", redis.port());
    for (class, words, more) in [
        ("other", "cluster support disabled", ""),
        ("permission", "WRONGPASS", ", username: nobody, password_file: '/dev/null'"),
    ] {
        let store = format!("{{ redis: {{ cluster: {{ nodes: ['{seed}'] }}{more} }} }}");
        let sidecar = Setup::store(&store).policy("orders", 3, "60s", "closed").start_without_store();
        let line =
            || sidecar.log().lines().find(|line| line.contains("no node of the Redis Cluster")).map(str::to_owned);
        let line = poll(Duration::from_secs(5), line).expect("the log to tell why");
        for wanted in [&format!("\"class\":\"{class}\""), words, &seed] {
            assert!(line.contains(wanted), "{wanted} is not in: {line}");
        }
    }
}

// RL-23
#[test]
fn a_flush_of_one_shards_scripts_is_noticed_by_nobody() {
    let cluster = Cluster::start();
    let sidecar = Setup::store(&cluster.store()).policy("orders", 5, "60s", "closed").start();
    let client = sidecar.client();
    cluster.wait_for_all_shards(&sidecar);
    let subjects = cluster.one_a_shard("subject");
    for n in 1..=5 {
        cluster.nodes[1].run(&["SCRIPT", "FLUSH"]);
        for (shard, subject) in subjects.iter().enumerate() {
            assert_eq!(client.check(&Check::of(subject)).outcome(), Outcome::Allowed, "shard {shard}");
            assert_eq!(cluster.nodes[shard].get(&keys::orders(subject)), Some(n.to_string()), "shard {shard}");
        }
    }
}

// RL-20, and trial C2: a client library sent the command again and counted it twice.
#[test]
fn a_lost_reply_of_a_shard_counts_at_most_once_and_is_not_asked_for_again() {
    let cluster = Cluster::start();
    let proxies = cluster.announce_proxies();
    let sidecar = Setup::store(&cluster.store()).policy("orders", 100, "60s", "closed").start();
    let client = sidecar.client();
    cluster.wait_for_all_shards(&sidecar);
    let subjects = cluster.one_a_shard("subject");
    let counted =
        |n: usize| cluster.nodes[n].get(&keys::orders(&subjects[n])).map_or(0, |count| count.parse().unwrap());
    // Puts the script there: the reply to be lost is not NOSCRIPT.
    let before = cluster.one_a_shard("before").swap_remove(1);
    assert_eq!(client.check(&Check::of(&before)).outcome(), Outcome::Allowed);
    proxies[1].set(Fault::SwallowReplies);
    let first = client.check(&Check::of(&subjects[1]));
    assert_eq!(first.outcome(), Outcome::Failed, "a lost reply may have counted: the caller hears *failed*");
    assert_eq!(counted(1), 1, "it arrived in time, and once");
    let answers = client.check_times(&Check::of(&subjects[1]), 10);
    assert_eq!(count(&answers, Outcome::Failed), 10);
    for n in [0, 2] {
        assert_eq!(client.check(&Check::of(&subjects[n])).outcome(), Outcome::Allowed, "shard {n}");
    }
    proxies[1].set(Fault::Pass);
    let mut asked = 11;
    wait_for("a check to pass again", Duration::from_secs(5), || {
        asked += 1;
        client.check(&Check::of(&subjects[1])).outcome() == Outcome::Allowed
    });
    assert!(counted(1) <= asked, "{asked} checks, {} counted", counted(1));
    assert_eq!((counted(0), counted(2)), (1, 1));
}

// The replica that takes over has never seen our script; the old master lives on and says where to go.
#[test]
fn a_switch_over_is_followed_and_no_count_is_lost() {
    let cluster = Cluster::with_replicas();
    // A replica alone is known at the start: it leads to the masters, and is not asked to count.
    let sidecar = Setup::store(&cluster.store_by(&[4])).policy("orders", 5, "60s", "closed").start();
    let client = sidecar.client();
    cluster.wait_for_all_shards(&sidecar);
    let subject = &cluster.one_a_shard("subject")[0];
    let (key, replica) = (keys::orders(subject), &cluster.nodes[MASTERS]);
    for _ in 0..2 {
        assert_eq!(client.check(&Check::of(subject)).outcome(), Outcome::Allowed);
    }
    replica.run(&["CLUSTER", "FAILOVER"]);
    wait_for("the replica to be master", Duration::from_secs(10), || {
        replica.info("replication", "connected_slaves") == 1
    });
    wait_for("a check to pass", Duration::from_secs(3), || {
        client.check(&Check::of(subject)).outcome() == Outcome::Allowed
    });
    assert_eq!(replica.get(&key).as_deref(), Some("3"), "what had been counted, and one more");
}
