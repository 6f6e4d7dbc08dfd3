//! A look at Redis with an operator's eyes: can this user count here, and will the counters last?
//!
//! Called by `tallygate doctor`. It writes nothing.

mod node;

use std::sync::Arc;

use tokio::sync::Notify;

use super::cluster::view::{self, View};
use super::dial::{Address, Dialer};
use super::sentinel::Sentinels;
use super::settings::{RedisSettings, Topology};
use crate::decision::verdict::FailureClass;
use crate::store::StoreError;

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

/// What a node should be part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Single,
    Cluster,
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

    fn unusable(&mut self, severity: Severity, error: &StoreError) {
        let remedy = match error.class {
            FailureClass::Permission => {
                "check the user name, the password and its file, and the user's list in docs/redis.md"
            }
            FailureClass::Timeout => {
                "the address answers too slowly or not at all: check network, TLS on both sides, and load"
            }
            FailureClass::Other => {
                "check that the address is of what it is configured as, and the master's name of a Sentinel"
            }
            _ => "check the address, that Redis runs, and that it speaks TLS if and only if it is configured",
        };
        self.add(severity, format!("cannot be used: {} ({})", error.detail, error.class.as_str()), remedy);
    }
}

/// Looks at every node that would serve checks, and at who says which ones these are.
pub async fn examine(settings: &RedisSettings, prefix: &str) -> Vec<Finding> {
    let dialer = &settings.dialer;
    let mut report = Report { place: String::new(), findings: Vec::new() };
    let (nodes, layout) = match &settings.topology {
        Topology::One(address) => (vec![address.clone()], Layout::Single),
        Topology::Sentinel { master, sentinels, dialer } => {
            let sentinels = Sentinels::new(master, sentinels.clone(), Arc::new(Dialer::clone(dialer)));
            (watched(&mut report, &sentinels).await.into_iter().collect(), Layout::Single)
        }
        Topology::Cluster { seeds } => (clustered(&mut report, dialer, seeds).await, Layout::Cluster),
    };
    for address in nodes {
        report.place = address.to_string();
        match dialer.dial(&address, Arc::new(Notify::new())).await {
            Ok(wire) => node::examine(&mut report, &wire, dialer.command_timeout, prefix, layout).await,
            Err(error) => report.unusable(Severity::Problem, &error),
        }
    }
    report.findings
}

/// The master that most Sentinels name, after a look at each of them.
async fn watched(report: &mut Report, sentinels: &Sentinels) -> Option<Address> {
    let master = sentinels.master().await;
    for (address, named) in sentinels.each().await {
        report.place = format!("sentinel {address}");
        match (named, &master) {
            (Ok(named), Ok(master)) if named == *master => report.good(format!("names {named}")),
            (Ok(named), _) => report.add(
                Severity::Warning,
                format!("names {named}, unlike others"),
                "compare SENTINEL MASTERS on each: this one lost touch, or a fail-over is under way",
            ),
            (Err(error), Ok(_)) => report.unusable(Severity::Warning, &error),
            (Err(error), Err(_)) => report.unusable(Severity::Problem, &error),
        }
    }
    report.place = format!("sentinel master {}", sentinels.name());
    match master {
        Ok(master) => {
            report.good(format!("is {master}"));
            Some(master)
        }
        Err(_) => {
            report.add(
                Severity::Problem,
                "is named by no Sentinel",
                "check the nodes of store.redis.sentinel and the master's name there",
            );
            None
        }
    }
}

/// The masters of the Cluster, after a look at each configured node.
async fn clustered(report: &mut Report, dialer: &Dialer, seeds: &[Address]) -> Vec<Address> {
    let answers = view::ask_all(&Arc::new(dialer.clone()), seeds.to_vec()).await;
    let severity = if answers.iter().any(|(_, answer)| answer.is_ok()) { Severity::Warning } else { Severity::Problem };
    for (address, answer) in &answers {
        if let Err(error) = answer {
            report.place = address.to_string();
            report.unusable(severity, error);
        }
    }
    report.place = "cluster".to_owned();
    match View::newest(answers) {
        Ok(view) => {
            whole(report, view.masters().len(), view.slots());
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
