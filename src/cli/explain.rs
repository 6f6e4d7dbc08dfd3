//! `tallygate explain`: what a request would meet, and why. It needs no Redis unless asked.

use std::process::ExitCode;

use clap::Args;

use super::keys::{show, unasked};
use super::{ConfigFile, asked, exit, runtime};
use crate::config::explain::limit_in_words;
use crate::config::{Config, StoreSettings};
use crate::decision::algorithm::Role;
use crate::decision::attributes::Attributes;
use crate::decision::identity::Part;
use crate::decision::limit::Mode;
use crate::decision::matcher::Candidate;
use crate::decision::policy::{Answer, DenyStatus, Found, OnUnidentified, Policy, Unplanned};
use crate::store::redis::operator::peek;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    request: asked::RequestArguments,
    /// Also say what Redis holds for the keys
    #[arg(long)]
    store: bool,
}

pub fn run(arguments: Arguments) -> ExitCode {
    let config = match arguments.config.load() {
        Ok(config) => config,
        Err(code) => return code,
    };
    let asked = match arguments.request.read() {
        Ok(asked) => asked,
        Err(error) => {
            tell!("{error}");
            return ExitCode::from(exit::USAGE);
        }
    };
    let request = asked.attributes();
    let Some(policy) = policy(&config, &request) else { return ExitCode::SUCCESS };
    if policy.mode == Mode::Off {
        say!("verdict  allowed: the policy is off, so nothing is counted");
        return ExitCode::SUCCESS;
    }
    for part in [Part::Tenant, Part::Subject, Part::Address].into_iter().filter(|part| policy.counts_by(*part)) {
        for (kind, answer) in config.rules.identity.trace(part, &request) {
            let answer = answer.map_or_else(|missing| missing.as_str(), |()| "yields");
            say!("{:8} {kind}: {answer}", part.as_str());
        }
    }
    let keys = match policy.plan(&config.rules.identity, &request) {
        Ok(plan) => {
            if let Some(missing) = plan.stranger {
                say!("stranger without a {}, counted by address", missing.part.as_str());
            }
            for charge in &plan.charges {
                let own = if charge.algorithm == charge.limit.algorithm { "" } else { ", by an override" };
                let shadow = if charge.role == Role::Shadow { " (shadow: never refuses)" } else { "" };
                let words = limit_in_words(charge.limit, &charge.algorithm);
                say!("limit    {}: {words}{own}{shadow}", charge.limit.name);
                say!("         cost {}, key {}", charge.cost, charge.key.text);
            }
            plan.charges.iter().map(|charge| (charge.limit.name.to_string(), charge.key.text.clone())).collect()
        }
        Err(unplanned) => {
            say!("verdict  {}", without_counting(policy, &unplanned));
            Vec::new()
        }
    };
    if arguments.store { held(&config, &keys) } else { ExitCode::SUCCESS }
}

/// Which policy decides, and why those before it do not.
fn policy<'c>(config: &'c Config, request: &Attributes<'_>) -> Option<&'c Policy> {
    let candidate = Candidate::new(request);
    for policy in &config.rules.policies {
        match policy.matcher.mismatch(&candidate) {
            Ok(Some(why)) => say!("policy   {}: no, {}", policy.name, why.as_str()),
            Ok(None) => {
                say!("policy   {} v{}: yes ({})", policy.name, policy.version.get(), policy.mode.as_str());
                return Some(policy);
            }
            Err(_) => say!("policy   {}: the path can be read in two ways", policy.name),
        }
    }
    match config.rules.find(request) {
        Found::AmbiguousPath => say!("verdict  denied (403): the path can be read in two ways"),
        _ => say!("verdict  {}: no policy matches", answered(config.rules.unmatched)),
    }
    None
}

fn answered(answer: Answer) -> &'static str {
    match answer {
        Answer::Allow => "allowed",
        Answer::Deny => "denied (403)",
    }
}

fn without_counting(policy: &Policy, unplanned: &Unplanned<'_>) -> String {
    match unplanned {
        Unplanned::Unidentified(missing) => {
            let answer = match policy.on_unidentified {
                _ if policy.mode == Mode::Shadow => "allowed, since the policy is a shadow",
                OnUnidentified::Allow => "allowed",
                OnUnidentified::Deny(DenyStatus::Forbidden) => "denied (403)",
                OnUnidentified::Deny(DenyStatus::Unauthorized) | OnUnidentified::ByAddress(_) => "denied (401)",
            };
            format!("unidentified: the {} is {}; {answer}", missing.part.as_str(), missing.missing.as_str())
        }
        Unplanned::Blocked(limit) => format!("denied: an override blocks this tenant under {}", limit.name),
        Unplanned::BadCost => "failed: the route's cost is no whole number within the policy's bounds".to_owned(),
        Unplanned::Uncounted => "allowed: no limit counts this request".to_owned(),
    }
}

/// What Redis holds, for the key of each limit.
fn held(config: &Config, keys: &[(String, String)]) -> ExitCode {
    let StoreSettings::Redis(settings) = &config.fixed.store else {
        say!("store    embedded: only the running process knows");
        return ExitCode::SUCCESS;
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    for (limit, key) in keys {
        match runtime.block_on(peek(settings, key)) {
            Ok(held) => say!("store    {limit}: {}", show(&held)),
            Err(error) => return unasked(&error),
        }
    }
    ExitCode::SUCCESS
}
