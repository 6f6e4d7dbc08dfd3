//! `policies` and `guard_rails`: what is limited, how, and what a failure becomes.

mod matching;

use std::time::Duration;

use crate::config::reader::{Field, Section};
use crate::decision::algorithm::{Algorithm, HARD_MAX_LIMIT, HARD_MAX_WINDOW_MS};
use crate::decision::fixed_window::FixedWindow;
use crate::decision::identity::{IdentitySources, Part};
use crate::decision::key::{KeyTemplate, MAX_KEY_LEN, Secret};
use crate::decision::limit::Limit;
use crate::decision::matcher::Matcher;
use crate::decision::name::{Name, Prefix, Version};
use crate::decision::policy::{DenyStatus, LocalLimit, OnFailure, OnUnidentified, Policy};

const MOST_POLICIES: usize = 1_000;
const MOST_LIMITS: usize = 8;

/// What the policies are read with.
pub struct Around {
    pub prefix: Prefix,
    pub rails: Rails,
    pub identity: IdentitySources,
    pub secret: Secret,
}

/// Ends that catch a slip of the hand; the operator may widen them up to the hard ends.
#[derive(Clone, Copy)]
pub struct Rails {
    max_limit: u64,
    max_window: Duration,
}

impl Default for Rails {
    fn default() -> Self {
        Self { max_limit: 1_000_000, max_window: Duration::from_secs(3600) }
    }
}

pub fn rails(field: Option<Field<'_>>) -> Rails {
    let mut rails = Rails::default();
    let Some(section) = field.and_then(|field| field.section()) else {
        return rails;
    };
    if let Some((field, limit)) = section.optional("max_limit").and_then(|field| Some((field.clone(), field.whole()?)))
    {
        rails.max_limit = limit;
        if !(1..=HARD_MAX_LIMIT).contains(&limit) {
            field.problem(format!("a limit can be 1 to {HARD_MAX_LIMIT}"));
        }
    }
    if let Some((field, window)) =
        section.optional("max_window").and_then(|field| Some((field.clone(), field.duration()?)))
    {
        rails.max_window = window;
        if window.is_zero() || window > Duration::from_millis(HARD_MAX_WINDOW_MS) {
            field.problem("a window can be 1ms to 366days");
        }
    }
    section.finish();
    rails
}

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
            if earlier.name == policy.name {
                item.problem(format!(
                    "a policy before this one is named {} too: counters would be shared",
                    policy.name
                ));
            }
            if earlier.matcher == Matcher::default() {
                item.problem(format!(
                    "is never reached: policy {} before it has no match and takes every request",
                    earlier.name
                ));
            } else if earlier.matcher == policy.matcher {
                item.problem(format!("is never reached: policy {} before it matches the same requests", earlier.name));
            }
        }
    }
    read.into_iter().collect()
}

fn policy(field: &Field<'_>, around: &Around) -> Option<Policy> {
    let section = field.section()?;
    let name = section.required("name").and_then(|field| field.parse(Name::parse));
    let version = section.required("version").and_then(|field| {
        let version = Version::try_new(field.whole()?);
        version.map_err(|error| field.problem(error)).ok()
    });
    let matcher = match section.optional("match") {
        Some(field) => matching::matcher(&field),
        None => Some(Matcher::default()),
    };
    let limits = section.required("limits");
    let on_unidentified = section
        .optional("on_unidentified")
        .map_or(Some(OnUnidentified::Deny(DenyStatus::Unauthorized)), |field| unidentified(&field));
    let on_failure = section.required("on_failure");
    section.finish();

    // Keys carry the policy's name and version; stand-ins let the limits be read where these are wrong.
    let keyed = |name: &Option<Name>| name.as_ref().map_or("x".to_owned(), |name| name.as_str().to_owned());
    let scope_name = keyed(&name);
    let scope = (around.prefix.as_str(), scope_name.as_str(), version.map_or(1, Version::get));
    let limits = limits.and_then(|field| read_limits(&field, scope, around));
    let on_failure = on_failure.and_then(|field| failure(&field, scope, limits.as_deref(), around));
    Some(Policy {
        name: name?,
        version: version?,
        matcher: matcher?,
        limits: limits?,
        on_unidentified: on_unidentified?,
        on_failure: on_failure?,
    })
}

fn read_limits(field: &Field<'_>, scope: (&str, &str, u32), around: &Around) -> Option<Vec<Limit>> {
    let items = field.list()?;
    if items.is_empty() || items.len() > MOST_LIMITS {
        field.problem(format!("a policy has 1 to {MOST_LIMITS} limits"));
        return None;
    }
    let alone = items.len() == 1;
    let limit = |field: &Field<'_>| {
        let section = field.section()?;
        let name = section.required("name").and_then(|field| field.parse(Name::parse));
        let per = section.required("per").and_then(|field| parts(&field, &around.identity));
        let algorithm = algorithm(&section, around.rails);
        section.finish();
        let (name, per, algorithm) = (name?, per?, algorithm?);
        let shape = algorithm.shape();
        let key = match alone {
            true => KeyTemplate::lone(&around.secret, scope, &shape),
            false => KeyTemplate::joint(&around.secret, scope, name.as_str(), &shape),
        };
        if key.key_len() > MAX_KEY_LEN {
            field.problem(format!(
                "the keys of this limit have {} bytes, more than {MAX_KEY_LEN}: shorten its name or the policy's",
                key.key_len()
            ));
        }
        Some(Limit { name, algorithm, per, key })
    };
    let read: Vec<_> = items.iter().map(limit).collect();
    for (index, (item, limit)) in items.iter().zip(&read).enumerate() {
        let same = |earlier: &&Limit| limit.as_ref().is_some_and(|limit| limit.name == earlier.name);
        if let Some(earlier) = read[..index].iter().flatten().find(same) {
            item.problem(format!("a limit before this one is named {} too", earlier.name));
        }
    }
    read.into_iter().collect()
}

/// What a limit counts by, and whether there is a source for each part.
fn parts(field: &Field<'_>, identity: &IdentitySources) -> Option<Vec<Part>> {
    let items = field.list()?;
    let choices = [("tenant", Part::Tenant), ("subject", Part::Subject), ("address", Part::Address)];
    let mut parts = Vec::new();
    let mut sound = true;
    for item in &items {
        match item.choice(&choices) {
            Some(part) if parts.contains(&part) => item.problem("stands here twice"),
            Some(part) => {
                let sources = match part {
                    Part::Tenant => Some(&identity.tenant),
                    Part::Subject => Some(&identity.subject),
                    Part::Address => None,
                };
                if sources.is_some_and(Vec::is_empty) {
                    item.problem(format!("identity.{} names no source, so no request has one", part.as_str()));
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

fn algorithm(section: &Section<'_>, rails: Rails) -> Option<Algorithm> {
    let (_, field) = section.one_of(&["fixed_window"])?;
    let section = field.section()?;
    let limit = section.required("limit");
    let window = section.required("window");
    section.finish();
    let limit = limit.and_then(|field| within_rails(&field, rails));
    let window = window.and_then(|field| window_within_rails(&field, rails));
    let rule = FixedWindow::try_new(limit?, window?);
    rule.map_err(|error| field.problem(error)).ok().map(Algorithm::FixedWindow)
}

fn within_rails(field: &Field<'_>, rails: Rails) -> Option<u64> {
    let limit = field.whole()?;
    if limit == 0 {
        field.problem("a limit of 0 lets nothing pass: to block, deny the route in Envoy");
        return None;
    }
    if limit > rails.max_limit {
        field.problem(format!(
            "{limit} is above {}: if it is meant, raise guard_rails.max_limit (at most {HARD_MAX_LIMIT})",
            rails.max_limit
        ));
        return None;
    }
    Some(limit)
}

fn window_within_rails(field: &Field<'_>, rails: Rails) -> Option<u64> {
    let window = field.duration()?;
    if window.subsec_nanos() % 1_000_000 != 0 || window.is_zero() {
        field.problem("a window is whole milliseconds, at least 1ms");
        return None;
    }
    if window > rails.max_window {
        field.problem(format!(
            "the window is longer than {}: if it is meant, raise guard_rails.max_window (at most 366days)",
            humantime::format_duration(rails.max_window)
        ));
        return None;
    }
    u64::try_from(window.as_millis()).ok()
}

fn unidentified(field: &Field<'_>) -> Option<OnUnidentified> {
    let deny = OnUnidentified::Deny(DenyStatus::Unauthorized);
    if field.is_text() {
        return field.choice(&[("deny", deny), ("allow", OnUnidentified::Allow)]);
    }
    let section = field.section()?;
    let deny = section.required("deny").and_then(|field| field.section());
    section.finish();
    let deny = deny?;
    let status = deny.required("status");
    deny.finish();
    let field = status?;
    match field.whole()? {
        401 => Some(OnUnidentified::Deny(DenyStatus::Unauthorized)),
        403 => Some(OnUnidentified::Deny(DenyStatus::Forbidden)),
        _ => {
            field.problem("the status is 401 or 403");
            None
        }
    }
}

fn failure(
    field: &Field<'_>,
    scope: (&str, &str, u32),
    limits: Option<&[Limit]>,
    around: &Around,
) -> Option<OnFailure> {
    if field.is_text() {
        // Written so that `closed` and `envoy` stay plain words.
        return field.choice(&[("closed", false), ("envoy", true)]).map(|to_envoy| match to_envoy {
            true => OnFailure::Envoy,
            false => OnFailure::Closed,
        });
    }
    let section = field.section()?;
    let open = section.required("open");
    section.finish();
    let field = open?;
    if field.is_text() {
        field.choice(&[("unlimited", ())])?;
        return Some(OnFailure::Open(LocalLimit::Unlimited));
    }
    let section = field.section()?;
    let per = match section.optional("per") {
        Some(field) => parts(&field, &around.identity),
        None => limits.and_then(|limits| limits.first()).map(|limit| limit.per.clone()),
    };
    let algorithm = algorithm(&section, around.rails);
    section.finish();
    let (per, algorithm) = (per?, algorithm?);
    let name = Name::parse("local").ok()?;
    let key = KeyTemplate::joint(&around.secret, scope, name.as_str(), &algorithm.shape());
    Some(OnFailure::Open(LocalLimit::Limited(Box::new(Limit { name, algorithm, per, key }))))
}
