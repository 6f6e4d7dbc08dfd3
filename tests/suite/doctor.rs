//! `tallygate doctor` tells what would keep checks from being decided, what to do, and by its exit code how bad it is.

use tempfile::TempDir;

use crate::support::cli;
use crate::support::cluster::Cluster;
use crate::support::ports;
use crate::support::process::Finished;
use crate::support::redis::RedisServer;
use crate::support::sentinel::{Passwords, Watched};
use crate::support::setup::Setup;
use crate::support::sidecar::write_files;
use crate::support::stub::Stub;

const GOOD: i32 = 0;
const WARNING: i32 = 1;
const PROBLEM: i32 = 69;

/// What it says about this `store` section. How fast the machine is must be no finding, so time-outs are long.
#[track_caller]
fn doctor(store: &str) -> Finished {
    let dir = TempDir::with_prefix("tallygate-doctor-").unwrap();
    let store = store.replace("{ redis: {", "{ redis: { command_timeout: 5s, connect_timeout: 5s,");
    let config = write_files(&dir, &Setup::store(&store).policy("orders", 3, "60s", "closed"));
    cli::run(&["doctor", "--config", config.to_str().unwrap()])
}

fn url(port: u16) -> String {
    format!("{{ redis: {{ url: 'redis://127.0.0.1:{port}' }} }}")
}

/// It ends with this code and says just these lines; `NODE` stands for the server on this port. How fast it answered is
/// left out, where it did.
#[track_caller]
fn says(found: &Finished, code: i32, port: u16, wanted: &[&str]) {
    let said = found.stdout.replace(&format!("127.0.0.1:{port}"), "NODE");
    let said: Vec<_> = said.lines().filter(|line| !line.starts_with("ok       NODE answers in ")).collect();
    assert_eq!(said, wanted, "it wrote:\n{}{}", found.stdout, found.stderr);
    assert_eq!(found.code, Some(code), "{}", found.stdout);
}

/// A server with a bound on its memory.
fn bounded() -> RedisServer {
    let redis = RedisServer::start();
    redis.run(&["CONFIG", "SET", "maxmemory", "1gb"]);
    redis
}

/// The version line of the server under test, which may be either make.
fn version(redis: &RedisServer) -> String {
    let server = redis.run(&["INFO", "server"]).text();
    let field = |name: &str| server.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let valkey = field("valkey_version:").map(|version| format!("ok       NODE Valkey {version}"));
    valkey.or_else(|| Some(format!("ok       NODE Redis {}", field("redis_version:")?))).unwrap()
}

const MASTER: &str = "ok       NODE is a master";
const KEEPS: &str = "ok       NODE evicts nothing (noeviction)";
const MAY: &str = "ok       NODE this user may send every command that checks need";
const UNBOUNDED: [&str; 2] = [
    "warning  NODE has no memory limit: the system may kill it when it grows",
    "         -> set maxmemory to what the machine can spare",
];

#[test]
fn a_good_node_is_good() {
    let redis = bounded();
    let found = doctor(&url(redis.port()));
    let used = found.stdout.lines().find_map(|line| line.split_once(" uses ")).expect("it tells the memory").1;
    let used = format!("ok       NODE uses {used}");
    assert!(used.ends_with(" of 1024 MiB"), "{used}");
    says(&found, GOOD, redis.port(), &[&version(&redis), MASTER, KEEPS, &used, MAY]);
    assert!(found.stdout.contains(" answers in "), "{}", found.stdout);
}

#[test]
fn no_bound_on_memory_and_eviction_are_warnings() {
    let redis = RedisServer::start();
    says(
        &doctor(&url(redis.port())),
        WARNING,
        redis.port(),
        &[&version(&redis), MASTER, KEEPS, UNBOUNDED[0], UNBOUNDED[1], MAY],
    );
    redis.run(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    says(
        &doctor(&url(redis.port())),
        WARNING,
        redis.port(),
        &[
            &version(&redis),
            MASTER,
            "warning  NODE may evict counters (maxmemory-policy allkeys-lru): an evicted counter is a fresh quota",
            "         -> give Tallygate an instance of its own with maxmemory-policy noeviction",
            UNBOUNDED[0],
            UNBOUNDED[1],
            MAY,
        ],
    );
}

#[test]
fn a_replica_is_a_problem() {
    let redis = RedisServer::start();
    redis.run(&["REPLICAOF", "127.0.0.1", &ports::free().to_string()]);
    let wanted = [
        "problem  NODE is a replica, which cannot count",
        "         -> point store.redis at the master, or use sentinel or cluster to follow it",
    ];
    let found = doctor(&url(redis.port()));
    says(
        &found,
        PROBLEM,
        redis.port(),
        &[&version(&redis), wanted[0], wanted[1], KEEPS, UNBOUNDED[0], UNBOUNDED[1], MAY],
    );
    // The minimal list does not allow INFO, and a replica is found all the same.
    redis.run(&["ACL", "SETUSER", "default", "-info"]);
    let found = doctor(&url(redis.port()));
    assert!(
        found.stdout.contains(&wanted.join("\n").replace("NODE", &format!("127.0.0.1:{}", redis.port()))),
        "{found:?}"
    );
    assert_eq!(found.code, Some(PROBLEM));
}

#[test]
fn what_the_user_may_not_send_is_named() {
    let redis = bounded();
    let user = |rules: &str| {
        let rules: Vec<_> = rules.split(' ').collect();
        redis.run(&[&["ACL", "SETUSER", "default"], &rules[..]].concat());
    };
    let told = |code: i32, line: &str, remedy: &str| {
        let found = doctor(&url(redis.port()));
        let wanted = format!("127.0.0.1:{} {line}\n         -> {remedy}\n", redis.port());
        assert!(found.stdout.contains(&wanted), "{wanted:?} is not in:\n{}", found.stdout);
        assert_eq!(found.code, Some(code), "{}", found.stdout);
    };
    let list = "allow them (docs/redis.md has the whole list)";
    user("-evalsha -zadd -time");
    told(PROBLEM, "this user may not send ZADD, TIME, EVALSHA on keys rl:*", list);
    user("+@all resetkeys ~other:*");
    told(
        PROBLEM,
        "this user may not send GET, PEXPIRETIME, SET, INCRBY, ZRANGE, ZCARD, ZCOUNT, ZADD, ZREMRANGEBYSCORE, PEXPIREAT, EVALSHA on keys rl:*",
        list,
    );
    user("allkeys -eval");
    let refused = doctor(&url(redis.port()));
    assert!(refused.stdout.contains("scripts do not run: "), "{}", refused.stdout);
    assert_eq!(refused.code, Some(PROBLEM));
    user("+@all -script|load");
    let without = "checks do without, but send the script's text each time, or notice a replica late";
    told(WARNING, "this user may not send SCRIPT|LOAD", &format!("{list}: {without}"));
    user("+@all -info");
    let info = doctor(&url(redis.port()));
    assert!(info.stdout.contains("INFO tells nothing: "), "{}", info.stdout);
    assert_eq!(info.code, Some(WARNING));
}

#[test]
fn a_server_that_is_too_old_is_a_problem() {
    let stub = Stub::start();
    let port = stub.port();
    stub.inform(
        "redis_version:6.2.14\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nmaxmemory:1048576000\r\nused_memory:10000000\r\n",
    );
    says(
        &doctor(&url(port)),
        PROBLEM,
        port,
        &[
            "problem  NODE Redis 6.2.14 is too old",
            "         -> use Redis 7.0 or Valkey 7.2 or later: older ones answer checks from replicas and full nodes",
            MASTER,
            KEEPS,
            "ok       NODE uses 10 of 1000 MiB",
            MAY,
        ],
    );
    stub.inform("valkey_version:7.2.0\r\nredis_version:7.2.4\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nmaxmemory:1048576000\r\nused_memory:996000000\r\n");
    says(
        &doctor(&url(port)),
        PROBLEM,
        port,
        &[
            "ok       NODE Valkey 7.2.0",
            MASTER,
            KEEPS,
            "problem  NODE uses 950 of 1000 MiB: once full, checks fail with class oom",
            "         -> raise maxmemory, or shorten windows",
            MAY,
        ],
    );
}

#[test]
fn a_server_that_is_not_there_is_a_problem() {
    let port = ports::free();
    says(
        &doctor(&url(port)),
        PROBLEM,
        port,
        &[
            "problem  NODE cannot be used: Connection refused (os error 111) (disconnected)",
            "         -> check the address, that Redis runs, and that it speaks TLS if and only if it is configured",
        ],
    );
}

#[test]
fn a_password_that_is_wanted_and_not_configured_is_told_in_a_line() {
    let redis = RedisServer::start();
    redis.run(&["CONFIG", "SET", "requirepass", "CANARY"]);
    says(
        &doctor(&url(redis.port())),
        PROBLEM,
        redis.port(),
        &[
            "problem  NODE cannot be used: the server wants a password, and none is configured (NOAUTH) (permission)",
            "         -> check the user name, the password and its file, and the user's list in docs/redis.md",
        ],
    );
}

// RL-35: no password is in the output, whatever is wrong.
#[test]
fn a_wrong_password_is_told_and_never_shown() {
    let redis = RedisServer::start();
    let port = redis.port();
    let found = doctor(&format!("{{ redis: {{ url: 'redis://limiter:CANARY@127.0.0.1:{port}' }} }}"));
    says(
        &found,
        PROBLEM,
        port,
        &[
            "problem  NODE cannot be used: \"WRONGPASS\": invalid username-password pair or user is disabled. (permission)",
            "         -> check the user name, the password and its file, and the user's list in docs/redis.md",
        ],
    );
    let passwords = Passwords { nodes: Some("CANARY-of-nodes"), sentinels: Some("CANARY-of-sentinels") };
    let watched = Watched::start_with(passwords);
    let store = watched.store();
    let right = doctor(&store);
    assert_eq!(right.code, Some(WARNING), "{}", right.stdout);
    watched.write_passwords(Passwords { sentinels: Some("CANARY-wrong"), ..passwords });
    let wrong = doctor(&store);
    assert_eq!(wrong.stdout.matches("WRONGPASS").count(), 3, "{}", wrong.stdout);
    assert_eq!(wrong.code, Some(PROBLEM));
    for found in [found, right, wrong] {
        assert!(!format!("{found:?}").contains("CANARY"), "{found:?}");
    }
}

#[test]
fn each_sentinel_is_looked_at_and_then_the_master() {
    let mut watched = Watched::start();
    let ports: Vec<_> = watched.sentinels.iter().map(|sentinel| sentinel.port()).collect();
    let master = watched.nodes[0].port();
    let place = |n: usize| format!("sentinel 127.0.0.1:{}", ports[n]);
    watched.sentinels[1].kill9();
    let found = doctor(&watched.store());
    says(
        &found,
        WARNING,
        master,
        &[
            &format!("ok       {} names NODE", place(0)),
            &format!("warning  {} cannot be used: Connection refused (os error 111) (disconnected)", place(1)),
            "         -> check the address, that Redis runs, and that it speaks TLS if and only if it is configured",
            &format!("ok       {} names NODE", place(2)),
            "ok       sentinel master mymaster is NODE",
            &version(&watched.nodes[0]),
            MASTER,
            KEEPS,
            UNBOUNDED[0],
            UNBOUNDED[1],
            MAY,
        ],
    );
    let unknown = doctor(&watched.store().replace("mymaster", "another"));
    assert!(
        unknown.stdout.contains("problem  sentinel master another is named by no Sentinel\n"),
        "{}",
        unknown.stdout
    );
    assert_eq!(unknown.code, Some(PROBLEM));
}

#[test]
fn a_cluster_is_looked_at_whole() {
    let cluster = Cluster::start();
    let whole = doctor(&cluster.store());
    assert!(whole.stdout.starts_with("ok       cluster 3 masters serve every slot\n"), "{}", whole.stdout);
    for node in &cluster.nodes {
        let master = format!("ok       127.0.0.1:{} is a master\n", node.port());
        assert!(whole.stdout.contains(&master), "{}", whole.stdout);
    }
    assert_eq!(whole.code, Some(WARNING), "no memory limit: {}", whole.stdout);

    // It is not told from node to node.
    cluster.nodes.iter().for_each(|node| drop(node.run(&["CLUSTER", "DELSLOTS", "16383"])));
    let torn = "problem  cluster 3 masters serve 16383 of 16384 slots
         -> mend the cluster (redis-cli --cluster check), and consider cluster-require-full-coverage no, so that one lost shard does not stop the others
";
    let found = doctor(&cluster.store());
    assert!(found.stdout.starts_with(torn), "{}", found.stdout);
    assert_eq!(found.code, Some(PROBLEM));
}

#[test]
fn a_layout_that_is_not_the_configured_one_is_a_problem() {
    let cluster = Cluster::start();
    let node = cluster.nodes[0].port();
    let found = doctor(&url(node));
    let line = format!(
        "problem  127.0.0.1:{node} is part of a Cluster, and is configured as one node
         -> configure store.redis.cluster with some of its nodes
"
    );
    assert!(found.stdout.contains(&line), "{}", found.stdout);
    assert_eq!(found.code, Some(PROBLEM));

    let watched = Watched::start();
    let (single, sentinel) = (watched.nodes[0].port(), watched.sentinels[0].port());
    says(
        &doctor(&url(sentinel)),
        PROBLEM,
        sentinel,
        &[
            "problem  NODE is a Sentinel, and is configured as a node",
            "         -> configure store.redis.sentinel with it",
        ],
    );
    let found = doctor(&watched.store_by(&[single]));
    assert!(found.stdout.contains("problem  sentinel master mymaster is named by no Sentinel\n"), "{}", found.stdout);
    assert_eq!(found.code, Some(PROBLEM));
    let found = doctor(&format!("{{ redis: {{ cluster: {{ nodes: ['127.0.0.1:{single}'] }} }} }}"));
    assert!(
        found.stdout.contains("problem  cluster no configured node says who serves which slots\n"),
        "{}",
        found.stdout
    );
    assert_eq!(found.code, Some(PROBLEM));
}
