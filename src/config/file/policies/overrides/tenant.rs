//! `overrides[].tenant`: whom an override is for, with as much evidence as it takes to tell tenants apart.

use crate::config::file::policies::Around;
use crate::config::reader::Field;
use crate::decision::identity::Source;
use crate::decision::overrides::TenantMatch;

/// A tenant with its evidence, as far as the sources leave a choice.
pub fn tenant(field: &Field<'_>, around: &Around) -> Option<TenantMatch> {
    let section = field.clone().private().section()?;
    let value = section.required("value", "acme").and_then(|field| field.nonempty());
    let source = section.optional("source").map(|field| source(&field, around));
    let kind = source.flatten();
    let issuer = section.optional("issuer").map(|field| issuer(&field, kind, around));
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
    field.problem(format!("this is no source of identity.tenant: it has {}", kinds.join(", ")));
    None
}

/// An issuer that some source of this kind accepts; of any kind where none is named.
fn issuer<'n>(field: &Field<'n>, kind: Option<&str>, around: &Around) -> Option<&'n str> {
    let issuer = field.nonempty()?;
    let Some(identity) = &around.identity else { return Some(issuer) };
    let asked = identity.tenant.iter().filter(|source| kind.is_none_or(|kind| kind == source.kind()));
    let lists: Vec<_> = asked.filter_map(Source::issuers).collect();
    if lists.is_empty() {
        field.problem("only a jwt source has an issuer: leave it out");
        return None;
    }
    // A source without a list accepts every issuer.
    if !lists.iter().any(|list| list.is_empty() || list.iter().any(|listed| **listed == *issuer)) {
        let listed: Vec<_> = lists.into_iter().flatten().map(|issuer| &**issuer).collect();
        field.problem(format!("no source of identity.tenant accepts this issuer: it has {}", listed.join(", ")));
        return None;
    }
    Some(issuer)
}

/// The kinds of the tenant's sources, each once; none where they are not known.
fn kinds(around: &Around) -> Vec<&str> {
    let mut kinds = Vec::new();
    for source in around.identity.iter().flat_map(|identity| &identity.tenant) {
        if !kinds.contains(&source.kind()) {
            kinds.push(source.kind());
        }
    }
    kinds
}
