//! `tallygate explain`: what a request would meet, and why. It needs no Redis unless asked.

use std::process::ExitCode;

use clap::Args;

use super::keys::show;
use super::{ConfigFile, asked, exit, runtime};
use crate::config::explain::limit_in_words;
use crate::config::{Config, StoreSettings};
use crate::decision::attributes::Attributes;
use crate::decision::identity::Part;
use crate::decision::matcher::Candidate;
use crate::decision::policy::{Found, Policy, Unplanned};
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
            eprintln!("{error}");
            return ExitCode::from(exit::USAGE);
        }
    };
    let request = asked.attributes();
    let Some(policy) = policy(&config, &request) else { return ExitCode::SUCCESS };
    for part in [Part::Tenant, Part::Subject, Part::Address].into_iter().filter(|part| policy.counts_by(*part)) {
        for (kind, answer) in config.rules.identity.trace(part, &request) {
            let answer = answer.map_or_else(|missing| missing.as_str(), |()| "yields");
            println!("{:8} {kind}: {answer}", part.as_str());
        }
    }
    let keys = match policy.plan(&config.rules.identity, &request) {
        Ok(plan) => {
            if let Some(missing) = plan.stranger {
                println!("stranger without a {}, counted by address", missing.part.as_str());
            }
            for charge in &plan.charges {
                println!("limit    {}: {}", charge.limit.name, limit_in_words(charge.limit, &charge.algorithm));
                println!("         cost {}, key {}", charge.cost, charge.key.text);
            }
            plan.charges.iter().map(|charge| charge.key.text.clone()).collect()
        }
        Err(unplanned) => {
            println!("verdict  {}", without_counting(&unplanned));
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
            Ok(Some(why)) => println!("policy   {}: no, {}", policy.name, why.as_str()),
            Ok(None) => {
                println!("policy   {} v{}: yes ({})", policy.name, policy.version.get(), policy.mode.as_str());
                return Some(policy);
            }
            Err(_) => println!("policy   {}: the path can be read in two ways", policy.name),
        }
    }
    match config.rules.find(request) {
        Found::AmbiguousPath => println!("verdict  denied (403): the path can be read in two ways"),
        _ => println!("verdict  no policy matches: {:?}", config.rules.unmatched),
    }
    None
}

fn without_counting(unplanned: &Unplanned<'_>) -> String {
    match unplanned {
        Unplanned::Unidentified(missing) => {
            format!("unidentified: the {} is {}", missing.part.as_str(), missing.missing.as_str())
        }
        Unplanned::Blocked(limit) => format!("denied: an override blocks this tenant under {}", limit.name),
        Unplanned::BadCost => "failed: the route's cost is no whole number within the policy's bounds".to_owned(),
        Unplanned::Uncounted => "allowed: no limit counts this request".to_owned(),
    }
}

fn held(config: &Config, keys: &[String]) -> ExitCode {
    let StoreSettings::Redis(settings) = &config.fixed.store else {
        println!("store    embedded: only the running process knows");
        return ExitCode::SUCCESS;
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    for key in keys {
        match runtime.block_on(peek(settings, key)) {
            Ok(held) => println!("store    {}", show(&held)),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::from(exit::UNAVAILABLE);
            }
        }
    }
    ExitCode::SUCCESS
}
