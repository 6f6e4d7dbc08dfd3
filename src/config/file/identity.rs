//! `identity`: where tenant, subject and address may be read, in order.

use ipnet::IpNet;

use crate::config::reader::{Field, Section};
use crate::decision::address::{AddressOrigin, AddressSource, Ipv6Prefix};
use crate::decision::identity::{IdentitySources, JwtClaim, Source};
use crate::decision::spiffe::{self, TrustDomain};

const JWT_NAMESPACE: &str = "envoy.filters.http.jwt_authn";
const JWT_PAYLOAD: &str = "jwt_payload";
const MOST_SOURCES: usize = 16;

pub fn sources(field: &Field<'_>) -> Option<IdentitySources> {
    let section = field.section()?;
    let tenant = section.optional("tenant").map_or(Some(Vec::new()), |field| list(&field));
    let subject = section.optional("subject").map_or(Some(Vec::new()), |field| list(&field));
    let address = match section.optional("address") {
        None => Some(AddressSource::default()),
        Some(field) => field.section().and_then(|section| address(section)),
    };
    section.finish();
    Some(IdentitySources { tenant: tenant?, subject: subject?, address: address? })
}

fn address(section: Section<'_>) -> Option<AddressSource> {
    let origin = section.optional("source").map_or(Some(AddressOrigin::Peer), |field| origin(&field));
    let ipv6_prefix = section.optional("ipv6_prefix").map_or(Some(Ipv6Prefix::default()), |field| {
        let prefix = Ipv6Prefix::try_new(field.whole()?);
        prefix.map_err(|error| field.problem(error)).ok()
    });
    section.finish();
    Some(AddressSource { origin: origin?, ipv6_prefix: ipv6_prefix? })
}

/// `peer`, or a map that says where else and why that is believed.
fn origin(field: &Field<'_>) -> Option<AddressOrigin> {
    if field.is_text() {
        return field.choice(&[("peer", AddressOrigin::Peer)]);
    }
    let section = field.section()?;
    let chosen = section.one_of(&["header", "call_metadata", "forwarded"]);
    section.finish();
    match chosen? {
        ("header", field) => {
            let section = field.section()?;
            let (name, why) =
                (section.required("name", "x-client-ip").and_then(|field| header_name(&field)), reason(&section));
            section.finish();
            why.and(name).map(|name| AddressOrigin::Header(name.into()))
        }
        ("call_metadata", field) => header_name(&field).map(|key| AddressOrigin::CallMetadata(key.into())),
        (_, field) => forwarded(field.section()?),
    }
}

fn forwarded(section: Section<'_>) -> Option<AddressOrigin> {
    let network =
        |text: &str| text.parse::<IpNet>().map_err(|_| "a network is ADDRESS/BITS, like 10.0.0.0/8 or fd00::/8");
    let peers = section.required("trusted_peers", "[10.0.0.0/8]").and_then(|field| {
        let empty = "the list is empty, so every peer would speak for itself: write source: peer";
        field.each(empty, |item| item.parse(network))
    });
    if let Some(everybody) = peers.iter().flatten().find(|network| network.prefix_len() == 0) {
        section.warning(format!(
            "everybody is in {everybody}, so every client can write its own address: name the proxies"
        ));
    }
    let hops = section.optional("trusted_hops").map_or(Some(1), |field| match field.whole().map(usize::try_from)? {
        Ok(hops @ 1..=32) => Some(hops),
        _ => {
            field.problem("the hops are 1 to 32: 1 is the entry that the trusted peer itself wrote");
            None
        }
    });
    section.finish();
    Some(AddressOrigin::Forwarded { trusted_peers: peers?, hops: hops? })
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
            items[index].problem("this source stands in the list already, and the first one answers: remove it");
            return None;
        }
        if let Some(strong) = read[..index].iter().find(|earlier| earlier.is_proof() && source.is_weak()) {
            items[index].warning(format!(
                "{} stands behind {}: whoever leaves the proof out is counted by this and has a second quota: remove it, unless that is meant",
                source.kind(),
                strong.kind()
            ));
        }
        if read[..index].iter().any(|earlier| source.may_be_mistaken_for(earlier)) {
            items[index].warning(
                "a source before this one reads the same claim of other tokens, and neither says which issuers count: where tokens \
                 name no issuer, the same text in both is one identity: list the issuers",
            );
        }
    }
    Some(read)
}

fn source(field: &Field<'_>) -> Option<Source> {
    if field.is_text() {
        if field.text() != Some("address") {
            field.problem(
                "a source is address, or one of jwt, mtls, route, header with its settings, like route: tenant",
            );
            return None;
        }
        return Some(Source::address());
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
    let path = section.required("claim", "tid").and_then(|field| match field.is_list() {
        true => texts(&field),
        false => field.nonempty().map(|text| vec![text.into()]),
    });
    let issuers = section.optional("issuers").map_or(Some(Vec::new()), |field| texts(&field));
    let name = |key, default| section.optional(key).map_or(Some(default), |field| field.nonempty());
    let (namespace, payload) = (name("namespace", JWT_NAMESPACE), name("payload", JWT_PAYLOAD));
    let integers = section.optional("integers").map_or(Some(false), |field| field.boolean());
    section.finish();
    Some(Source::jwt(JwtClaim {
        namespace: namespace?.into(),
        payload: payload?.into(),
        path: path?,
        issuers: issuers?,
        integers: integers?,
    }))
}

fn mtls(section: Section<'_>) -> Option<Source> {
    let domain = section.required("trust_domain", "td.example").and_then(|field| field.parse(TrustDomain::parse));
    section.finish();
    domain.map(Source::mtls)
}

fn header(section: Section<'_>) -> Option<Source> {
    let name = section.required("name", "x-tenant").and_then(|field| header_name(&field));
    let why = reason(&section);
    let principals = section.optional("from_principals").map_or(Some(Vec::new()), |field| {
        field.each("the list is empty: leave it out to believe every caller", |item| item.parse(principal))
    });
    section.finish();
    why?;
    Some(Source::header(&name?, &principals?))
}

/// Why something that any client could write is believed all the same. Whoever reads the file later needs to know.
fn reason(section: &Section<'_>) -> Option<()> {
    let like = "\"the edge's auth filter overwrites it\"";
    section.required("trusted_because", like).and_then(|field| field.nonempty()).map(|_| ())
}

/// The SPIFFE ID of a workload.
pub fn principal(text: &str) -> Result<String, &'static str> {
    match spiffe::is_id(text) {
        true => Ok(text.to_owned()),
        false => Err("a principal is a SPIFFE ID, like spiffe://td.example/ns/istio-system/sa/gateway"),
    }
}

fn header_name(field: &Field<'_>) -> Option<String> {
    field.parse(|text| {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let fits = !text.is_empty() && text.len() <= 128 && text.bytes().all(token);
        if fits { Ok(text.to_ascii_lowercase()) } else { Err("a name is 1 to 128 of letters, digits and '-'") }
    })
}

fn texts(field: &Field<'_>) -> Option<Vec<Box<str>>> {
    field.each("the list is empty: name at least one", |item| item.nonempty().map(Into::into))
}
