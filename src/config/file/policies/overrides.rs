//! `overrides`: numbers of their own for single tenants.

mod tenant;

use std::collections::HashSet;

use super::algorithm::with_numbers;
use super::{Around, can_pass};
use crate::config::reader::{Field, Section};
use crate::config::tree::MAX_NODES;
use crate::config::words;
use crate::decision::algorithm::Algorithm;
use crate::decision::identity::Part;
use crate::decision::limit::Limit;
use crate::decision::overrides::{Override, Overrides, Set, TenantMatch};
use crate::decision::policy::Cost;

const MOST_OVERRIDES: usize = 10_000;
/// The longest form of an override is fourteen values; a file must have room for as many as a policy may have.
const _: () = assert!(14 * MOST_OVERRIDES < MAX_NODES);

/// `limits` are the policy's, or `None` where they are wrong: nothing can be said about names and numbers then.
pub fn overrides(
    field: &Field<'_>,
    limits: Option<&[Limit]>,
    cost: Option<&Cost>,
    around: &Around,
) -> Option<Overrides> {
    let items = field.list()?;
    if items.len() > MOST_OVERRIDES {
        field.problem(format!("a policy has at most {MOST_OVERRIDES} overrides"));
        return None;
    }
    let read: Vec<_> = items.iter().map(|item| entry(item, limits, cost, around)).collect();
    let read: Vec<Override> = read.into_iter().collect::<Option<_>>()?;
    let mut seen = HashSet::new();
    for (item, entry) in items.iter().zip(&read) {
        let TenantMatch { value, source, issuer } = &entry.tenant;
        // The first that fits rules, and one that names neither source nor issuer fits them all.
        let reached = [(source, issuer), (&None, issuer), (source, &None), (&None, &None)]
            .into_iter()
            .all(|(source, issuer)| !seen.contains(&(value, entry.limit, source, issuer)));
        if !reached {
            item.problem("is never reached: an override before it is for the same tenant and limit: remove one");
        }
        seen.insert((value, entry.limit, source, issuer));
    }
    Some(Overrides::new(read))
}

fn entry(field: &Field<'_>, limits: Option<&[Limit]>, cost: Option<&Cost>, around: &Around) -> Option<Override> {
    let section = field.section()?;
    let tenant = section.required("tenant", "{ value: acme }").and_then(|field| tenant::tenant(&field, around));
    let name = section.optional("limit");
    let set = section.required("set", "{ limit: 500 }");
    let place = limits.and_then(|limits| match &name {
        Some(field) => limit(field, limits),
        None if limits.len() == 1 => Some(0),
        None => {
            section.problem(format!("\"limit\" is missing: the policy has several, {}", names(limits)));
            None
        }
    });
    section.finish();
    let whose = place.zip(limits).and_then(|(place, limits)| limits.get(place));
    if whose.is_some_and(|limit| !limit.per.contains(&Part::Tenant)) {
        field.problem("this limit does not count by tenant, so one tenant cannot have numbers of its own");
    }
    let set = self::set(&set?, whose, cost, around);
    Some(Override { tenant: tenant?, limit: place?, set: set? })
}

fn names(limits: &[Limit]) -> String {
    limits.iter().map(|limit| limit.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn limit(field: &Field<'_>, limits: &[Limit]) -> Option<usize> {
    let name = field.text()?;
    let place = limits.iter().position(|limit| limit.name.as_str() == name);
    if place.is_none() {
        field.problem(format!("{} is no limit of this policy: it has {}", words::key(name), names(limits)));
    }
    place
}

/// What the override sets, for `limit`, or for one that is not known.
fn set(field: &Field<'_>, limit: Option<&Limit>, cost: Option<&Cost>, around: &Around) -> Option<Set> {
    let section = field.section()?;
    let read = match limit {
        Some(limit) => read_set(field, &section, limit, around),
        None => {
            for key in ["unlimited", "limit", "rate", "burst"] {
                section.optional(key);
            }
            None
        }
    };
    section.finish();
    if let Some(Set::Numbers(algorithm)) = &read {
        can_pass(field, algorithm, cost);
    }
    read
}

fn read_set(field: &Field<'_>, section: &Section<'_>, limit: &Limit, around: &Around) -> Option<Set> {
    let is_bucket = matches!(limit.algorithm, Algorithm::TokenBucket(_));
    let (unlimited, count) = (section.optional("unlimited"), section.optional("limit"));
    let numbers: Vec<_> = match is_bucket {
        true => ["rate", "burst"].into_iter().filter_map(|key| section.optional(key)).collect(),
        false => Vec::new(),
    };
    if let Some(field) = unlimited {
        if count.is_some() || !numbers.is_empty() {
            section.problem("unlimited stands beside numbers: write one of them");
            return None;
        }
        return match field.boolean()? {
            true => Some(Set::Unlimited),
            false => {
                field.problem("write true, or leave the override out");
                None
            }
        };
    }
    match count {
        Some(count) if count.is_zero() && numbers.is_empty() => return Some(Set::Block),
        Some(count) if is_bucket => {
            count.problem("a token bucket has rate and burst: write those, or limit: 0 alone to block");
            return None;
        }
        None if is_bucket && numbers.is_empty() => {
            section.problem("nothing is set: write rate, burst or both, limit: 0 to block, or unlimited: true");
            return None;
        }
        _ => {}
    }
    with_numbers(&limit.algorithm, field, section, around.rails).map(Set::Numbers)
}
