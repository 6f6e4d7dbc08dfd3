//! `policies`: what is limited, how, and what a failure becomes.

mod algorithm;
mod failure;
mod matching;
mod overrides;

pub use self::algorithm::{Rails, rails};
use crate::config::reader::Field;
use crate::decision::algorithm::Algorithm;
use crate::decision::identity::{IdentitySources, Part};
use crate::decision::key::{KeyTemplate, MAX_KEY_LEN, Secret};
use crate::decision::limit::{Limit, Mode};
use crate::decision::matcher::Matcher;
use crate::decision::name::{Name, Prefix, Version};
use crate::decision::overrides::Overrides;
use crate::decision::policy::{Cost, DenyStatus, OnUnidentified, Policy};

const MOST_POLICIES: usize = 1_000;
const MOST_LIMITS: usize = 8;
const DEFAULT_MAX_COST: u64 = 100;
/// What a policy without limits could have.
const LIMITS: &str = "[{ name: per-tenant, per: [tenant], fixed_window: { limit: 100, window: 1m } }]";

/// What the policies are read with.
pub struct Around {
    pub prefix: Prefix,
    pub rails: Rails,
    /// `None` where the section is wrong: nothing can be said about its sources then.
    pub identity: Option<IdentitySources>,
    pub secret: Secret,
    /// Whether counters live in a Cluster, where the keys of one call must lie in one slot.
    pub is_cluster: bool,
}

/// A key's prefix, policy and version.
type Scope<'s> = (&'s str, &'s str, u32);

pub fn policies(field: &Field<'_>, around: &Around) -> Option<Vec<Policy>> {
    let items = field.list()?;
    if items.is_empty() || items.len() > MOST_POLICIES {
        field.problem(format!("a configuration has 1 to {MOST_POLICIES} policies: without one nothing is limited"));
        return None;
    }
    let read: Vec<_> = items.iter().map(|item| policy(item, around)).collect();
    for (index, (item, policy)) in items.iter().zip(&read).enumerate() {
        let Some(policy) = policy else { continue };
        for earlier in read[..index].iter().flatten() {
            against(item, policy, earlier);
        }
    }
    read.into_iter().collect()
}

/// What is wrong with `policy` because of one before it.
fn against(field: &Field<'_>, policy: &Policy, earlier: &Policy) {
    if earlier.name == policy.name {
        field.problem(format!(
            "a policy before this one is named {} too, and they would share counters: rename one",
            policy.name
        ));
    }
    if !earlier.matcher.covers(&policy.matcher) {
        return;
    }
    let name = &earlier.name;
    if earlier.mode == Mode::Enforce {
        let which = if earlier.matcher == Matcher::default() { "every request" } else { "all of its requests" };
        field.problem(format!(
            "is never reached: policy {name} before it takes {which}: put this one first, or narrow the other's match"
        ));
    } else {
        field.warning(format!(
            "is not enforced: policy {name} before it is {} and takes all of its requests: put this one first, if it is \
             meant to act",
            earlier.mode.as_str()
        ));
    }
}

fn policy(field: &Field<'_>, around: &Around) -> Option<Policy> {
    let section = field.section()?;
    let name = section.required("name", "orders").and_then(|field| field.parse(Name::parse));
    let version = section.required("version", "1").and_then(|field| {
        let version = Version::try_new(field.whole()?);
        version.map_err(|error| field.problem(error)).ok()
    });
    let mode = section.optional("mode").map_or(Some(Mode::Enforce), |field| mode(&field));
    let matcher = section.optional("match").map_or(Some(Matcher::default()), |field| matching::matcher(&field));
    let cost = section.optional("cost").map_or(Some(Cost::Fixed(1)), |field| cost(&field));
    let limits = section.required("limits", LIMITS);
    let overrides = section.optional("overrides");
    let on_unidentified = section.optional("on_unidentified");
    let on_failure = section.required("on_failure", "closed");
    let one_slot = section.optional("one_slot").is_some_and(|field| field.boolean() == Some(true));
    section.finish();

    // Keys carry the policy's name and version; stand-ins let the limits be read where these are wrong.
    let scope_name = name.as_ref().map_or("x", Name::as_str);
    let scope = (around.prefix.as_str(), scope_name, version.map_or(1, Version::get));
    let limits = limits.and_then(|field| limits_of(&field, scope, cost.as_ref(), around));
    let overrides = match overrides {
        Some(field) => overrides::overrides(&field, limits.as_deref(), cost.as_ref(), around),
        None => Some(Overrides::default()),
    };
    let on_unidentified = match on_unidentified {
        Some(field) => failure::on_unidentified(&field, scope, cost.as_ref(), around),
        None => Some(OnUnidentified::Deny(DenyStatus::Unauthorized)),
    };
    let first = limits.as_deref().and_then(<[Limit]>::first);
    let on_failure = on_failure.and_then(|field| failure::on_failure(&field, scope, first, cost.as_ref(), around));
    let policy = Policy {
        name: name?,
        version: version?,
        matcher: matcher?,
        mode: mode?,
        limits: limits?,
        cost: cost?,
        overrides: overrides?,
        on_unidentified: on_unidentified?,
        on_failure: on_failure?,
    };
    if around.is_cluster && policy.limits.len() > 1 && policy.shared_parts().is_empty() && !one_slot {
        field.problem(
            "its limits share no part of the identity, so every counter of this policy would lie in one slot of the \
             Cluster: write one_slot: true if one shard can carry them all, or split the policy",
        );
    }
    Some(policy)
}

fn mode(field: &Field<'_>) -> Option<Mode> {
    field.choice(&[("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)])
}

/// A number, or a value of the route.
fn cost(field: &Field<'_>) -> Option<Cost> {
    let bounded = |field: &Field<'_>| {
        let cost = field.whole()?;
        if !(1..=Cost::MAX).contains(&cost) {
            field.problem(format!("a cost is 1 to {}", Cost::MAX));
            return None;
        }
        Some(cost)
    };
    if !field.is_map() {
        return bounded(field).map(Cost::Fixed);
    }
    let section = field.section()?;
    let key = section.required("route", "cost").and_then(|field| field.nonempty());
    let default = section.optional("default").map_or(Some(1), |field| bounded(&field));
    let max = section.optional("max").map_or(Some(DEFAULT_MAX_COST), |field| bounded(&field));
    section.finish();
    let (key, default, max) = (key?.into(), default?, max?);
    if default > max {
        field.problem(format!("the default of {default} is above the max of {max}: raise max or lower default"));
    }
    Some(Cost::Route { key, default, max })
}

fn limits_of(field: &Field<'_>, scope: Scope<'_>, cost: Option<&Cost>, around: &Around) -> Option<Vec<Limit>> {
    let items = field.list()?;
    if items.is_empty() || items.len() > MOST_LIMITS {
        field.problem(format!("a policy has 1 to {MOST_LIMITS} limits"));
        return None;
    }
    let read: Vec<_> = items.iter().map(|item| limit(item, scope, items.len() == 1, cost, around)).collect();
    for (index, (item, limit)) in items.iter().zip(&read).enumerate() {
        let same = |earlier: &&Limit| limit.as_ref().is_some_and(|limit| limit.name == earlier.name);
        if let Some(earlier) = read[..index].iter().flatten().find(same) {
            item.problem(format!("a limit before this one is named {} too: rename one", earlier.name));
        }
    }
    read.into_iter().collect()
}

fn limit(field: &Field<'_>, scope: Scope<'_>, alone: bool, cost: Option<&Cost>, around: &Around) -> Option<Limit> {
    let section = field.section()?;
    let name = section.required("name", "per-tenant").and_then(|field| field.parse(Name::parse));
    let per = section.required("per", "[tenant]").and_then(|field| parts(&field, around.identity.as_ref()));
    let mode = section.optional("mode").map_or(Some(Mode::Enforce), |field| mode(&field));
    let algorithm = algorithm::algorithm(&section, around.rails);
    section.finish();
    let (name, per, mode, algorithm) = (name?, per?, mode?, algorithm?);
    if failure::OWN_NAMES.contains(&name.as_str()) {
        field.problem(format!("{name} is a name of Tallygate's own limits: choose another"));
    }
    let shape = algorithm.shape();
    let key = match alone {
        true => KeyTemplate::lone(&around.secret, scope, &shape),
        false => KeyTemplate::joint(&around.secret, scope, name.as_str(), &shape),
    };
    if key.key_len() > MAX_KEY_LEN {
        let found = key.key_len();
        field
            .problem(format!("its keys have {found} bytes, more than {MAX_KEY_LEN}: shorten its name or the policy's"));
    }
    can_pass(field, &algorithm, cost);
    spares_redis(field, &algorithm, cost, around.rails);
    Some(Limit { name, algorithm, per, mode, key })
}

/// Whether a request of the usual cost passes at all: one that costs more than a limit lets through at once never does.
fn can_pass(field: &Field<'_>, algorithm: &Algorithm, cost: Option<&Cost>) {
    let (cost, when) = match cost {
        None => return,
        Some(Cost::Fixed(cost)) => (*cost, ""),
        Some(Cost::Route { default, .. }) => (*default, " where its route does not say"),
    };
    let quota = algorithm.quota();
    if cost > quota {
        field.problem(format!(
            "lets {quota} pass at once, and a request costs {cost}{when}, so none can ever pass: raise it to {cost} or more, \
             or lower the cost"
        ));
    }
}

/// A sliding log holds Redis up for each unit, so its cost has an end of its own.
fn spares_redis(field: &Field<'_>, algorithm: &Algorithm, cost: Option<&Cost>, rails: Rails) {
    let (rail, most) = (rails.max_log_cost, cost.map_or(0, Cost::most));
    if matches!(algorithm, Algorithm::SlidingLog(_)) && most > rail {
        field.problem(format!(
            "a sliding log holds Redis up for each unit, and a request may cost {most}, above {rail}: \
             lower the cost, take a sliding_window, or raise guard_rails.max_log_cost"
        ));
    }
}

/// What a limit counts by, and whether there is a source for each part.
fn parts(field: &Field<'_>, identity: Option<&IdentitySources>) -> Option<Vec<Part>> {
    let items = field.list()?;
    let choices = [("tenant", Part::Tenant), ("subject", Part::Subject), ("address", Part::Address)];
    let mut parts = Vec::new();
    let mut sound = true;
    for item in &items {
        match item.choice(&choices) {
            Some(part) if parts.contains(&part) => item.problem("stands here twice: remove one"),
            Some(part) => {
                let sources = identity.and_then(|identity| match part {
                    Part::Tenant => Some(&identity.tenant),
                    Part::Subject => Some(&identity.subject),
                    Part::Address => None,
                });
                if sources.is_some_and(Vec::is_empty) {
                    let part = part.as_str();
                    item.problem(format!(
                        "identity.{part} names no source, so no request has one: add one, like {part}: [{{ route: {part} }}]"
                    ));
                }
                parts.push(part);
                continue;
            }
            None => {}
        }
        sound = false;
    }
    parts.sort();
    sound.then_some(parts)
}
