//! One node, asked what a check depends on.

use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;

use super::{Layout, Report, Severity};
use crate::decision::verdict::FailureClass;
use crate::store::redis::connection::ask;
use crate::store::redis::self_test;
use crate::store::{StoreError, clock};

type Pairs = [(String, String)];

pub async fn examine(report: &mut Report, wire: &MultiplexedConnection, limit: Duration, prefix: &str, layout: Layout) {
    match info(wire, limit).await {
        Ok(info) if [field(&info, "redis_mode"), field(&info, "server_mode")].contains(&"sentinel") => {
            return report.add(
                Severity::Problem,
                "is a Sentinel, and is configured as a node",
                "configure store.redis.sentinel with it",
            );
        }
        Ok(info) => {
            version(report, &info);
            role(report, field(&info, "role"));
            memory(report, &info);
            mode(report, &info, layout);
        }
        Err(error) => {
            report.add(
                Severity::Warning,
                format!("INFO tells nothing: {}", error.detail),
                "allow +info to let this command see version, memory and eviction; checks do not need it",
            );
            if let Some(found) = asked_role(wire, limit).await {
                role(report, &found);
            }
        }
    }
    permissions(report, wire, limit, prefix, layout).await;
    latency(report, wire, limit).await;
}

async fn permissions(report: &mut Report, wire: &MultiplexedConnection, limit: Duration, prefix: &str, layout: Layout) {
    let mut needed = self_test::needed();
    if layout == Layout::Cluster {
        needed.extend(self_test::CLUSTER);
    }
    match self_test::denied(wire, prefix, &needed, limit).await {
        Ok(denied) if denied.is_empty() => report.good("this user may send every command that checks need"),
        Ok(denied) => report.add(
            Severity::Problem,
            format!("this user may not send {} on keys {prefix}:*", denied.join(", ")),
            "allow them (docs/redis.md has the whole list)",
        ),
        Err(error) => {
            return report.add(
                Severity::Problem,
                format!("scripts do not run: {}", error.detail),
                "allow +eval and +evalsha, and use Redis 7.0 or Valkey 7.2 or later",
            );
        }
    }
    match self_test::denied(wire, prefix, &self_test::COMFORT, limit).await {
        Ok(denied) if !denied.is_empty() => report.add(
            Severity::Warning,
            format!("this user may not send {}", denied.join(", ")),
            "allow them (docs/redis.md has the whole list): checks do without, but send the script's text each time, or \
             notice a replica late",
        ),
        _ => {}
    }
}

/// What the node says that it is, if this user may ask.
async fn asked_role(wire: &MultiplexedConnection, limit: Duration) -> Option<String> {
    let Ok(Value::Array(role)) = ask(wire, &redis::cmd("ROLE"), limit).await else { return None };
    match role.into_iter().next() {
        Some(Value::BulkString(role)) => String::from_utf8(role).ok(),
        _ => None,
    }
}

/// `INFO`, as pairs.
async fn info(wire: &MultiplexedConnection, limit: Duration) -> Result<Vec<(String, String)>, StoreError> {
    let text = match ask(wire, &redis::cmd("INFO"), limit).await? {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::VerbatimString { text, .. } => text,
        _ => return Err(StoreError::new(FailureClass::Malformed, "it does not answer a text")),
    };
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    Ok(pairs.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect())
}

fn field<'i>(info: &'i Pairs, key: &str) -> &'i str {
    info.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
}

fn version(report: &mut Report, info: &Pairs) {
    let valkey = field(info, "valkey_version");
    let (name, version, least) =
        if valkey.is_empty() { ("Redis", field(info, "redis_version"), (7, 0)) } else { ("Valkey", valkey, (7, 2)) };
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found >= least {
        report.good(format!("{name} {version}"));
    } else {
        report.add(
            Severity::Problem,
            format!("{name} {version} is too old"),
            "use Redis 7.0 or Valkey 7.2 or later: older ones answer checks from replicas and full nodes",
        );
    }
}

fn role(report: &mut Report, role: &str) {
    match role {
        "master" => report.good("is a master"),
        // What Redis still calls it.
        "slave" => self::role(report, "replica"),
        role => report.add(
            Severity::Problem,
            format!("is a {role}, which cannot count"),
            "point store.redis at the master, or use sentinel or cluster to follow it",
        ),
    }
}

fn memory(report: &mut Report, info: &Pairs) {
    match field(info, "maxmemory_policy") {
        "noeviction" => report.good("evicts nothing (noeviction)"),
        policy => report.add(
            Severity::Warning,
            format!("may evict counters (maxmemory-policy {policy}): an evicted counter is a fresh quota"),
            "give Tallygate an instance of its own with maxmemory-policy noeviction",
        ),
    }
    let number = |key| field(info, key).parse::<u64>().unwrap_or(0);
    let (used, most) = (number("used_memory"), number("maxmemory"));
    if most == 0 {
        report.add(
            Severity::Warning,
            "has no memory limit: the system may kill it when it grows",
            "set maxmemory to what the machine can spare",
        );
    } else if used > most / 10 * 9 {
        report.add(
            Severity::Problem,
            format!("uses {} of {} MiB: once full, checks fail with class oom", mib(used), mib(most)),
            "raise maxmemory, or shorten windows",
        );
    } else {
        report.good(format!("uses {} of {} MiB", mib(used), mib(most)));
    }
}

fn mode(report: &mut Report, info: &Pairs, layout: Layout) {
    match (field(info, "cluster_enabled"), layout) {
        ("1", Layout::Single) => report.add(
            Severity::Problem,
            "is part of a Cluster, and is configured as one node",
            "configure store.redis.cluster with some of its nodes",
        ),
        ("0", Layout::Cluster) => {
            report.add(Severity::Problem, "is no Cluster node", "configure store.redis.url for a single node");
        }
        _ => {}
    }
}

async fn latency(report: &mut Report, wire: &MultiplexedConnection, limit: Duration) {
    const ROUNDS: usize = 20;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let sent = clock::now();
        match ask(wire, &redis::cmd("TIME"), limit).await {
            Ok(_) => {}
            Err(error) if error.class == FailureClass::Timeout => {
                return report.add(
                    Severity::Problem,
                    "does not answer within command_timeout",
                    "check its load and the network",
                );
            }
            // Told as a permission that is missing.
            Err(error) if error.class == FailureClass::Permission => return,
            Err(error) => return report.unusable(Severity::Problem, &error),
        }
        times.push(clock::now() - sent);
    }
    times.sort();
    let (median, worst) = (times[ROUNDS / 2], times[ROUNDS - 1]);
    let text = format!("answers in {:.1} ms (worst of {ROUNDS}: {:.1} ms)", ms(median), ms(worst));
    if worst > limit / 4 {
        report.add(
            Severity::Warning,
            text,
            "a quarter of command_timeout is spent: put Redis nearer, or find what slows it",
        );
    } else {
        report.good(text);
    }
}

/// Rounded up: nothing but nothing is 0.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1024 * 1024)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
