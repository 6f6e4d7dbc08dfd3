//! `identity`: where tenant, subject and address may be read, in order.

use crate::config::reader::{Field, Section};
use crate::decision::address::Ipv6Prefix;
use crate::decision::identity::{IdentitySources, Source};
use crate::decision::spiffe::TrustDomain;

const JWT_NAMESPACE: &str = "envoy.filters.http.jwt_authn";
const JWT_PAYLOAD: &str = "jwt_payload";
const MOST_SOURCES: usize = 16;

pub fn sources(field: &Field<'_>) -> Option<IdentitySources> {
    let section = field.section()?;
    let tenant = section.optional("tenant").map_or(Some(Vec::new()), |field| list(&field));
    let subject = section.optional("subject").map_or(Some(Vec::new()), |field| list(&field));
    let ipv6_prefix = match section.optional("address") {
        None => Some(Ipv6Prefix::default()),
        Some(field) => field.section().and_then(|section| address(section)),
    };
    section.finish();
    Some(IdentitySources { tenant: tenant?, subject: subject?, ipv6_prefix: ipv6_prefix? })
}

fn address(section: Section<'_>) -> Option<Ipv6Prefix> {
    if let Some(field) = section.optional("source") {
        field.choice(&[("peer", ())]);
    }
    let prefix = section.optional("ipv6_prefix").map_or(Some(Ipv6Prefix::default()), |field| {
        let prefix = Ipv6Prefix::try_new(field.whole()?);
        prefix.map_err(|error| field.problem(error)).ok()
    });
    section.finish();
    prefix
}

fn list(field: &Field<'_>) -> Option<Vec<Source>> {
    let items = field.list()?;
    if items.is_empty() || items.len() > MOST_SOURCES {
        field.problem(format!("a list of sources has 1 to {MOST_SOURCES} entries"));
        return None;
    }
    let read: Vec<_> = items.iter().map(source).collect();
    let read: Vec<Source> = read.into_iter().collect::<Option<_>>()?;
    for (index, source) in read.iter().enumerate() {
        if read[..index].contains(source) {
            items[index].problem("this source stands in the list already, and the first one answers");
            return None;
        }
        if let Some(strong) = read[..index].iter().find(|earlier| earlier.is_proof() && source.is_weak()) {
            items[index].warning(format!(
                "{} stands behind {}: whoever leaves the proof out is counted by this and has a second quota",
                source.kind(),
                strong.kind()
            ));
        }
    }
    Some(read)
}

fn source(field: &Field<'_>) -> Option<Source> {
    if field.is_text() {
        return field.choice(&[("address", Source::address())]);
    }
    let section = field.section()?;
    let chosen = section.one_of(&["jwt", "mtls", "route", "header"]);
    section.finish();
    match chosen? {
        ("jwt", field) => jwt(field.section()?),
        ("mtls", field) => mtls(field.section()?),
        ("route", field) => field.nonempty().map(Source::route),
        (_, field) => header(field.section()?),
    }
}

fn jwt(section: Section<'_>) -> Option<Source> {
    let claim = section.required("claim").and_then(|field| match field.is_list() {
        true => texts(&field),
        false => field.nonempty().map(|text| vec![text.to_owned()]),
    });
    let issuers = section.optional("issuers").map_or(Some(Vec::new()), |field| texts(&field));
    let name = |key, default| section.optional(key).map_or(Some(default), |field| field.nonempty());
    let (namespace, payload) = (name("namespace", JWT_NAMESPACE), name("payload", JWT_PAYLOAD));
    section.finish();
    Some(Source::jwt(namespace?, payload?, &claim?, &issuers?))
}

fn mtls(section: Section<'_>) -> Option<Source> {
    let domain = section.required("trust_domain").and_then(|field| field.parse(TrustDomain::parse));
    section.finish();
    domain.map(Source::mtls)
}

fn header(section: Section<'_>) -> Option<Source> {
    let name = section.required("name").and_then(|field| {
        field.parse(|text| {
            let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            let fits = !text.is_empty() && text.len() <= 128 && text.bytes().all(token);
            if fits { Ok(Source::header(text)) } else { Err("a header's name is 1 to 128 of letters, digits and '-'") }
        })
    });
    let why = section.required("trusted_because").and_then(|field| field.nonempty().map(str::len));
    section.finish();
    why.and(name)
}

fn texts(field: &Field<'_>) -> Option<Vec<String>> {
    let items = field.list()?;
    if items.is_empty() {
        field.problem("the list is empty");
        return None;
    }
    items.iter().map(|item| item.nonempty().map(str::to_owned)).collect()
}
