//! `overrides`: numbers of their own for single tenants.

use super::Around;
use super::algorithm::with_numbers;
use crate::config::reader::{Field, Section};
use crate::decision::identity::Part;
use crate::decision::limit::Limit;
use crate::decision::overrides::{Override, Overrides, Set, TenantMatch};

const MOST_OVERRIDES: usize = 100_000;

pub fn overrides(field: &Field<'_>, limits: &[Limit], around: &Around) -> Option<Overrides> {
    let items = field.list()?;
    if items.len() > MOST_OVERRIDES {
        field.problem(format!("a policy has at most {MOST_OVERRIDES} overrides"));
        return None;
    }
    let read: Vec<_> = items.iter().map(|item| entry(item, limits, around)).collect();
    let read: Vec<Override> = read.into_iter().collect::<Option<_>>()?;
    let mut seen = std::collections::HashMap::new();
    for (item, entry) in items.iter().zip(&read) {
        let whom = (&entry.tenant.value, &entry.tenant.source, &entry.tenant.issuer, entry.limit);
        if seen.insert(whom, ()).is_some() {
            item.problem("an override before this one is for the same tenant and limit");
        }
    }
    Some(Overrides::new(read))
}

fn entry(field: &Field<'_>, limits: &[Limit], around: &Around) -> Option<Override> {
    let section = field.section()?;
    let tenant = section.required("tenant").and_then(|field| tenant(&field, around));
    let limit = match section.optional("limit") {
        Some(field) => limit(&field, limits),
        None if limits.len() == 1 => Some(0),
        None => {
            section.problem("\"limit\" is missing: the policy has several");
            None
        }
    };
    let set = section.required("set");
    section.finish();
    let limit = limit?;
    if !limits.get(limit)?.per.contains(&Part::Tenant) {
        field.problem("this limit does not count by tenant, so one tenant cannot have numbers of its own");
    }
    let set = self::set(&set?, limits.get(limit)?, around);
    Some(Override { tenant: tenant?, limit, set: set? })
}

fn limit(field: &Field<'_>, limits: &[Limit]) -> Option<usize> {
    let name = field.text()?;
    let place = limits.iter().position(|limit| limit.name.as_str() == name);
    if place.is_none() {
        let names: Vec<_> = limits.iter().map(|limit| limit.name.as_str()).collect();
        field.problem(format!("{name:?} is no limit of this policy: it has {}", names.join(", ")));
    }
    place
}

/// A tenant with its evidence, as far as the sources leave a choice.
fn tenant(field: &Field<'_>, around: &Around) -> Option<TenantMatch> {
    let section = field.section()?;
    let value = section.required("value").and_then(|field| field.text());
    let source = section.optional("source").map(|field| source(&field, around));
    let issuer = section.optional("issuer").map(|field| field.text());
    let kinds = kinds(around);
    if source.is_none() && kinds.len() > 1 {
        section.problem(format!(
            "identity.tenant has several sources: say which with source: one of {}",
            kinds.join(", ")
        ));
    }
    section.finish();
    let boxed = |text: Option<Option<&str>>| match text {
        None => Some(None),
        Some(text) => text.map(|text| Some(text.into())),
    };
    Some(TenantMatch { value: value?.into(), source: boxed(source)?, issuer: boxed(issuer)? })
}

fn source<'n>(field: &Field<'n>, around: &Around) -> Option<&'n str> {
    let kind = field.text()?;
    let kinds = kinds(around);
    if around.identity.is_none() || kinds.contains(&kind) {
        return Some(kind);
    }
    field.problem(format!("{kind:?} is no source of identity.tenant: it has {}", kinds.join(", ")));
    None
}

/// The kinds of the tenant's sources, each once; none where they are not known.
fn kinds(around: &Around) -> Vec<&str> {
    let sources = around.identity.iter().flat_map(|identity| &identity.tenant);
    let mut kinds = Vec::new();
    for kind in sources.map(|source| source.kind()) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

fn set(field: &Field<'_>, limit: &Limit, around: &Around) -> Option<Set> {
    let section = field.section()?;
    let read = read_set(field, &section, limit, around);
    section.finish();
    read
}

fn read_set(field: &Field<'_>, section: &Section<'_>, limit: &Limit, around: &Around) -> Option<Set> {
    if let Some(field) = section.optional("unlimited") {
        return match field.boolean()? {
            true => Some(Set::Unlimited),
            false => {
                field.problem("write true, or leave the override out");
                None
            }
        };
    }
    if section.optional("limit").is_some_and(|field| field.is_zero()) {
        return Some(Set::Block);
    }
    with_numbers(&limit.algorithm, field, section, around.rails).map(Set::Numbers)
}
