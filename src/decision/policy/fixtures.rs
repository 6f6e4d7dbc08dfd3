//! Small policies and requests for the unit tests of the core.

use std::collections::HashMap;

use super::*;
use crate::decision::algorithm::Algorithm;
use crate::decision::attributes::{Headers, NoMetadata};
use crate::decision::fixed_window::FixedWindow;
use crate::decision::key::{KeyTemplate, Secret};

/// A policy that matches everything, with limits `(name, limit a second, per)`.
pub fn policy(limits: &[(&str, u64, &[Part])]) -> Policy {
    let secret = Secret::read([7; 32]).unwrap();
    let scope = ("rl", "p", 1);
    let limit = |(name, limit, per): &(&str, u64, &[Part])| {
        let algorithm = Algorithm::FixedWindow(FixedWindow::try_new(*limit, 1000).unwrap());
        let key = match limits.len() {
            1 => KeyTemplate::lone(&secret, scope, &algorithm.shape()),
            _ => KeyTemplate::joint(&secret, scope, name, &algorithm.shape()),
        };
        Limit { name: Name::parse(name).unwrap(), algorithm, per: per.to_vec(), mode: Mode::Enforce, key }
    };
    Policy {
        name: Name::parse("p").unwrap(),
        version: Version::try_new(1).unwrap(),
        matcher: Matcher::default(),
        mode: Mode::Enforce,
        limits: limits.iter().map(limit).collect(),
        cost: Cost::Fixed(1),
        overrides: Overrides::default(),
        on_unidentified: OnUnidentified::Deny(DenyStatus::Unauthorized),
        on_failure: OnFailure::Closed,
    }
}

pub fn route(entries: &[(&str, &str)]) -> HashMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub fn request(route: &HashMap<String, String>) -> Attributes<'_> {
    Attributes {
        method: "GET",
        host: "",
        path: "/",
        headers: Headers::default(),
        source: None,
        principal: "",
        route,
        metadata: &NoMetadata,
    }
}

/// The plan of a request with nothing to it, for a policy that counts by nothing.
pub fn plan<'p>(policy: &'p Policy, sources: &'p IdentitySources) -> Plan<'p> {
    static NOTHING: std::sync::LazyLock<HashMap<String, String>> = std::sync::LazyLock::new(HashMap::new);
    policy.plan(sources, &request(&NOTHING)).unwrap_or_else(|_| panic!("counts by nothing"))
}
