//! A look at Redis with an operator's eyes: can this user count here, and will the counters last?
//!
//! Called by `tallygate doctor`. It writes nothing.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;

use super::cluster::view_of;
use super::connection::ask;
use super::dial::Dialer;
use super::self_test;
use super::sentinel::Sentinels;
use super::settings::{RedisSettings, Topology};
use crate::decision::verdict::FailureClass;
use crate::store::{StoreError, clock};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Good,
    /// It works, and may not always.
    Warning,
    /// Checks fail, or will.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// Which node, as it is configured or was found.
    pub place: String,
    pub text: String,
    /// What to do; empty for what is good.
    pub remedy: &'static str,
}

struct Report {
    place: String,
    findings: Vec<Finding>,
}

impl Report {
    fn add(&mut self, severity: Severity, text: impl Into<String>, remedy: &'static str) {
        self.findings.push(Finding { severity, place: self.place.clone(), text: text.into(), remedy });
    }

    fn good(&mut self, text: impl Into<String>) {
        self.add(Severity::Good, text, "");
    }
}

/// Looks at every node that would serve checks.
pub async fn examine(settings: &RedisSettings, prefix: &str) -> Vec<Finding> {
    let dialer = &settings.dialer;
    let mut report = Report { place: String::new(), findings: Vec::new() };
    let nodes = match &settings.topology {
        Topology::One(address) => vec![address.clone()],
        Topology::Sentinel { master, sentinels, dialer } => {
            report.place = format!("sentinel master {master}");
            let sentinels = Sentinels::new(master, sentinels.clone(), Arc::new(Dialer::clone(dialer)));
            match sentinels.master().await {
                Ok(address) => {
                    report.good(format!("is {address}"));
                    vec![address]
                }
                Err(error) => {
                    unreachable_node(&mut report, &error);
                    Vec::new()
                }
            }
        }
        Topology::Cluster { seeds } => {
            report.place = "cluster".to_owned();
            match view_of(dialer, seeds).await {
                Ok(view) => {
                    whole(&mut report, view.masters().len(), view.slots());
                    view.masters()
                }
                Err(_) => {
                    report.add(
                        Severity::Problem,
                        "no configured node says who serves which slots",
                        "check the nodes of store.redis.cluster, and that they run with cluster-enabled yes",
                    );
                    Vec::new()
                }
            }
        }
    };
    let is_cluster = matches!(settings.topology, Topology::Cluster { .. });
    for address in nodes {
        report.place = address.to_string();
        match dialer.dial(&address, Arc::new(Notify::new())).await {
            Ok(wire) => node(&mut report, &wire, dialer, prefix, is_cluster).await,
            Err(error) => unreachable_node(&mut report, &error),
        }
    }
    report.findings
}

fn whole(report: &mut Report, masters: usize, slots: usize) {
    if slots == usize::from(super::slot::SLOTS) {
        report.good(format!("{masters} masters serve every slot"));
    } else {
        report.add(
            Severity::Problem,
            format!("{masters} masters serve {slots} of {} slots", super::slot::SLOTS),
            "mend the cluster (redis-cli --cluster check), and consider cluster-require-full-coverage no, so that one \
             lost shard does not stop the others",
        );
    }
}

fn unreachable_node(report: &mut Report, error: &StoreError) {
    let remedy = match error.class {
        FailureClass::Permission => "check the user name, the password and its file",
        FailureClass::Timeout => {
            "the address answers too slowly or not at all: check network, TLS on both sides, and load"
        }
        _ => "check the address, that Redis runs, and that it speaks TLS if and only if it is configured",
    };
    report.add(Severity::Problem, format!("cannot be used: {} ({})", error.detail, error.class.as_str()), remedy);
}

async fn node(report: &mut Report, wire: &MultiplexedConnection, dialer: &Dialer, prefix: &str, is_cluster: bool) {
    let limit = dialer.command_timeout;
    match info(wire, limit).await {
        Ok(info) => {
            version(report, &info);
            role(report, &info);
            memory(report, &info);
            mode(report, &info, is_cluster);
        }
        Err(error) => report.add(
            Severity::Warning,
            format!("INFO tells nothing: {}", error.detail),
            "allow +info to let this command see version, memory and eviction; checks do not need it",
        ),
    }
    match self_test::denied(wire, prefix, limit).await {
        Ok(denied) if denied.is_empty() => report.good("this user may send every command that checks need"),
        Ok(denied) => report.add(
            Severity::Problem,
            format!("this user may not send {} on keys {prefix}:*", denied.join(", ")),
            "give it the minimal list of the README",
        ),
        Err(error) => report.add(
            Severity::Problem,
            format!("scripts do not run: {}", error.detail),
            "allow +eval and +evalsha, and use Redis 7.0 or Valkey 7.2 or later",
        ),
    }
    latency(report, wire, limit).await;
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

fn field<'i>(info: &'i [(String, String)], key: &str) -> &'i str {
    info.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
}

fn version(report: &mut Report, info: &[(String, String)]) {
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

fn role(report: &mut Report, info: &[(String, String)]) {
    match field(info, "role") {
        "master" => report.good("is a master"),
        role => report.add(
            Severity::Problem,
            format!("is a {role}, which cannot count"),
            "point store.redis at the master, or use sentinel or cluster to follow it",
        ),
    }
}

fn memory(report: &mut Report, info: &[(String, String)]) {
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
            format!("uses {used} of {most} bytes: once full, checks fail with class oom"),
            "raise maxmemory, or shorten windows",
        );
    } else {
        report.good(format!("uses {used} of {most} bytes"));
    }
}

fn mode(report: &mut Report, info: &[(String, String)], is_cluster: bool) {
    match (field(info, "cluster_enabled"), is_cluster) {
        ("1", false) => report.add(
            Severity::Problem,
            "is part of a Cluster, and is configured as one node",
            "configure store.redis.cluster with some of its nodes",
        ),
        ("0", true) => {
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
        if ask(wire, &redis::cmd("TIME"), limit).await.is_err() {
            return report.add(
                Severity::Problem,
                "does not answer within command_timeout",
                "check its load and the network",
            );
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

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
