//! A real Redis Cluster on loopback ports: three masters, with or without a replica each.
//!
//! It is put together over the raw client, so that nothing of the code under test takes part. Every node is ready when all
//! nodes agree on who serves what.

use std::collections::BTreeMap;
use std::time::Duration;

use super::keys;
use super::ports;
use super::proxy::FaultProxy;
use super::redis::RedisServer;
use super::resp::Value;
use super::sidecar::Sidecar;
use super::wait::wait_for;

const SLOTS: u16 = 16_384;
pub const MASTERS: usize = 3;
/// Meeting and electing take some gossip.
const READY: Duration = Duration::from_secs(30);

pub struct Cluster {
    /// The masters in the order of their slots, then their replicas in the same order, as they were put together.
    pub nodes: Vec<RedisServer>,
}

/// The instructions of CLUSTER SETSLOT that tell a migrating slot's two ends of each other.
#[derive(Clone, Copy)]
pub struct Migration<'c> {
    pub slot: u16,
    pub from: &'c RedisServer,
    pub to: &'c RedisServer,
}

impl Cluster {
    pub fn start() -> Self {
        Self::of(MASTERS)
    }

    pub fn with_replicas() -> Self {
        Self::of(2 * MASTERS)
    }

    fn of(count: usize) -> Self {
        let nodes: Vec<_> = (0..count).map(|_| RedisServer::start_with(settings)).collect();
        for (n, node) in (0..).zip(&nodes) {
            // Different from the start, as an election would make them.
            node.run(&["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
        }
        for (n, master) in (0..).zip(&nodes[..MASTERS]) {
            let (first, last) = range(n);
            master.run(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        let cluster = Self { nodes };
        cluster.meet(&cluster.nodes[1..]);
        let ids: Vec<_> = cluster.nodes.iter().map(id).collect();
        for (replica, master) in cluster.nodes[MASTERS..].iter().zip(&ids) {
            replica.run(&["CLUSTER", "REPLICATE", master]);
        }
        wait_for("all nodes to agree, and replicas to follow", READY, || cluster.is_whole());
        cluster
    }

    /// Introduces these nodes to the first one, and by it to all.
    fn meet(&self, fresh: &[RedisServer]) {
        let (port, bus) = (self.nodes[0].port().to_string(), self.nodes[0].setting("--cluster-port"));
        for node in fresh {
            node.run(&["CLUSTER", "MEET", "127.0.0.1", &port, bus]);
        }
        let ids: Vec<_> = self.nodes.iter().map(id).collect();
        wait_for("all nodes to know each other", READY, || {
            self.nodes.iter().all(|node| knows(node, &ids) && info(node, "cluster_state") == "ok")
        });
    }

    /// A proxy in front of each node, which the nodes name to clients and to each other from now on.
    pub fn announce_proxies(&self) -> Vec<FaultProxy> {
        let proxies: Vec<_> = self.nodes.iter().map(|node| FaultProxy::start(node.port())).collect();
        self.announce(&proxies.iter().map(FaultProxy::port).collect::<Vec<_>>());
        proxies
    }

    /// Each node is found at another port from now on.
    pub fn announce(&self, ports: &[u16]) {
        for (node, port) in self.nodes.iter().zip(ports) {
            node.run(&["CONFIG", "SET", "cluster-announce-port", &port.to_string()]);
        }
        let masters = || ports[..MASTERS].iter().map(|port| i64::from(*port));
        let told = |node: &RedisServer| owners(node).into_iter().map(|(_, _, port)| port).eq(masters());
        wait_for("all nodes to know of the new ports", READY, || self.nodes.iter().all(told));
    }

    /// One more node, which serves no slot; its place among the nodes.
    pub fn join(&mut self) -> usize {
        self.nodes.push(RedisServer::start_with(settings));
        let place = self.nodes.len() - 1;
        self.meet(&self.nodes[place..]);
        place
    }

    fn is_whole(&self) -> bool {
        let owners = owners(&self.nodes[0]);
        let agrees = |node: &RedisServer| info(node, "cluster_state") == "ok" && self::owners(node) == owners;
        let follows = |node: &RedisServer| node.run(&["INFO", "replication"]).text().contains("master_link_status:up");
        owners.len() == MASTERS && self.nodes.iter().all(agrees) && self.nodes[MASTERS..].iter().all(follows)
    }

    /// The `store` section that knows these nodes.
    pub fn store_by(&self, seeds: &[usize]) -> String {
        let seeds: Vec<_> = seeds.iter().map(|n| format!("'127.0.0.1:{}'", self.nodes[*n].port())).collect();
        format!("{{ redis: {{ cluster: {{ nodes: [{}] }} }} }}", seeds.join(", "))
    }

    /// The `store` section that knows the first node.
    pub fn store(&self) -> String {
        self.store_by(&[0])
    }

    /// The slot of `key`, by a server's own reckoning.
    pub fn slot(&self, key: &str) -> u16 {
        let slot = self.nodes[0].run(&["CLUSTER", "KEYSLOT", key]).integer();
        u16::try_from(slot).expect("a slot")
    }

    /// Which of the masters was given the slot of `key` at the start.
    pub fn shard(&self, key: &str) -> usize {
        let slot = self.slot(key);
        (0..MASTERS).find(|n| range(*n).1 >= slot).expect("every slot was given away")
    }

    /// A subject for each master: one whose key in policy `orders` that master was given at the start.
    pub fn one_a_shard(&self, name: &str) -> Vec<String> {
        let at = |shard| move |subject: &String| self.shard(&keys::orders(subject)) == shard;
        (0..MASTERS).map(|shard| (0..).map(|n| format!("{name}-{n}")).find(at(shard)).expect("one of many")).collect()
    }

    /// Waits until the sidecar says of each master that it is in use: they are reached one by one.
    #[track_caller]
    pub fn wait_for_all_shards(&self, sidecar: &Sidecar) {
        let owners = owners(&self.nodes[0]).into_iter();
        let masters: Vec<_> = owners.map(|(_, _, port)| format!("127.0.0.1:{port}\"")).collect();
        wait_for("every shard to be in use", READY, || {
            let log = sidecar.log();
            let in_use: Vec<_> = log.lines().filter(|line| line.contains("is in use")).collect();
            masters.iter().all(|master| in_use.iter().any(|line| line.contains(master)))
        });
    }

    /// Every counter of these nodes. No key may be at two of them.
    #[track_caller]
    pub fn counters(&self, nodes: &[usize]) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for n in nodes {
            for (key, count) in self.nodes[*n].counters() {
                assert_eq!(all.insert(key.clone(), count), None, "{key} is at two masters");
            }
        }
        all
    }

    /// Starts to move `slot` from one node to another.
    pub fn migrate(&self, slot: u16, from: usize, to: usize) -> Migration<'_> {
        let migration = Migration { slot, from: &self.nodes[from], to: &self.nodes[to] };
        let slot = slot.to_string();
        migration.to.run(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(migration.from)]);
        migration.from.run(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(migration.to)]);
        migration
    }
}

impl Migration<'_> {
    /// Moves one key.
    #[track_caller]
    pub fn move_key(&self, key: &str) {
        let port = self.to.port().to_string();
        let moved = self.from.run(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        assert_eq!(moved, Value::Text("OK".into()), "{key}");
    }

    /// Leaves the slot where it was.
    pub fn call_off(&self) {
        for node in [self.to, self.from] {
            node.run(&["CLUSTER", "SETSLOT", &self.slot.to_string(), "STABLE"]);
        }
    }

    /// Ends it: the receiving node first, which then wins every argument about the slot.
    pub fn finish(&self) {
        let (slot, owner) = (self.slot.to_string(), id(self.to));
        for node in [self.to, self.from] {
            node.run(&["CLUSTER", "SETSLOT", &slot, "NODE", &owner]);
        }
    }
}

/// Settings of a cluster node; its bus has a port of its own choice, since the usual one may be a client's.
fn settings() -> Vec<String> {
    let bus = ports::free().to_string();
    let settings = [
        ["--cluster-enabled", "yes"],
        ["--cluster-config-file", "nodes.conf"],
        ["--cluster-port", &bus],
        ["--cluster-node-timeout", "1200"],
        // One lost shard must not stop the others.
        ["--cluster-require-full-coverage", "no"],
        ["--repl-diskless-sync-delay", "0"],
        ["--appendonly", "yes"],
        ["--appendfsync", "no"],
    ];
    settings.concat().into_iter().map(str::to_owned).collect()
}

/// First and last slot of a master.
fn range(n: usize) -> (u16, u16) {
    let share = |n: usize| u16::try_from(usize::from(SLOTS) * n / MASTERS).expect("at most all slots");
    (share(n), share(n + 1) - 1)
}

pub fn id(node: &RedisServer) -> String {
    node.run(&["CLUSTER", "MYID"]).text()
}

/// A line of CLUSTER INFO.
pub fn info(node: &RedisServer, field: &str) -> String {
    let text = node.run(&["CLUSTER", "INFO"]).text();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("CLUSTER INFO has no {field}")).to_owned()
}

/// Whether `node` has shaken hands with all of these.
fn knows(node: &RedisServer, ids: &[String]) -> bool {
    let nodes = node.run(&["CLUSTER", "NODES"]).text();
    let met = |line: &&str| line.contains(" connected") && !line.contains("handshake");
    let met: Vec<_> = nodes.lines().filter(met).collect();
    ids.iter().all(|id| met.iter().any(|line| line.starts_with(id)))
}

/// Who serves which slots, as this node sees it: first slot, last slot and port, in order.
pub fn owners(node: &RedisServer) -> Vec<(i64, i64, i64)> {
    let Value::Array(entries) = node.run(&["CLUSTER", "SLOTS"]) else { panic!("CLUSTER SLOTS answers a list") };
    let read = |entry: &Value| match entry {
        Value::Array(fields) => match &fields[..3] {
            [Value::Integer(first), Value::Integer(last), Value::Array(master)] => (*first, *last, master[1].integer()),
            other => panic!("not an entry of CLUSTER SLOTS: {other:?}"),
        },
        other => panic!("not an entry of CLUSTER SLOTS: {other:?}"),
    };
    let mut owners: Vec<_> = entries.iter().map(read).collect();
    owners.sort_unstable();
    owners
}
