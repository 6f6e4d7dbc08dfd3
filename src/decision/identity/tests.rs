use std::collections::HashMap;

use super::*;
use crate::decision::address::{AddressOrigin, AddressSource};
use crate::decision::attributes::{Claim, Headers, Metadata};
use crate::decision::spiffe::TrustDomain;

/// Metadata as jwt_authn leaves it: values by their full path.
struct Claims(Vec<(&'static [&'static str], Claim<'static>)>);

impl Metadata for Claims {
    fn claim(&self, namespace: &str, path: &[&str]) -> Option<Claim<'_>> {
        let found = self.0.iter().find(|(at, _)| at[0] == namespace && at[1..] == *path);
        found.map(|(_, claim)| *claim)
    }

    fn call(&self, key: &str) -> Option<&str> {
        (key == "x-clientip").then_some("203.0.113.7")
    }
}

fn claim(path: &[&str], issuers: &[&str], integers: bool) -> Source {
    Source::jwt(JwtClaim {
        namespace: "ns".into(),
        payload: "p".into(),
        path: path.iter().map(|&step| step.into()).collect(),
        issuers: issuers.iter().map(|&issuer| issuer.into()).collect(),
        integers,
    })
}

fn jwt(name: &str, issuers: &[&str]) -> Source {
    claim(&[name], issuers, false)
}

/// `kind|issuer|value` of the part, or the reason.
fn ask(sources: Vec<Source>, adjust: impl FnOnce(&mut Attributes<'_>), claims: &Claims) -> String {
    let sources = IdentitySources { subject: sources, ..Default::default() };
    let route = HashMap::from([("tenant".to_owned(), "acme".to_owned())]);
    let mut request = Attributes {
        method: "GET",
        host: "",
        path: "/",
        headers: Headers::default(),
        source: None,
        principal: "",
        route: &route,
        metadata: claims,
    };
    adjust(&mut request);
    match sources.find(Part::Subject, &request) {
        Ok(e) => format!("{}|{}|{}", e.kind, e.issuer, String::from_utf8_lossy(&e.value)),
        Err(missing) => missing.as_str().to_owned(),
    }
}

const ISS: (&[&str], Claim<'static>) = (&["ns", "p", "iss"], Claim::Text("https://idp"));

#[test]
fn a_verified_claim_yields_with_its_issuer() {
    let claims = Claims(vec![ISS, (&["ns", "p", "sub"], Claim::Text("ada"))]);
    assert_eq!(ask(vec![jwt("sub", &["https://idp"])], |_| {}, &claims), "jwt/sub|https://idp|ada");
}

// RL-16: only non-empty text is an identity; a number is never turned into one by printing it.
#[test]
fn a_claim_of_another_type_is_refused_and_the_next_source_is_not_asked() {
    for claim in [Claim::Number(1.0), Claim::Number(9007199254740992.0), Claim::Other, Claim::Text("")] {
        let claims = Claims(vec![ISS, (&["ns", "p", "sub"], claim)]);
        assert_eq!(ask(vec![jwt("sub", &[]), Source::route("tenant")], |_| {}, &claims), "bad_claim", "{claim:?}");
    }
}

#[test]
fn an_unlisted_issuer_or_a_missing_claim_lets_the_next_source_answer() {
    let other = || Claims(vec![ISS, (&["ns", "p", "sub"], Claim::Text("ada"))]);
    let sources = |issuer| vec![jwt("sub", &[issuer]), Source::route("tenant")];
    assert_eq!(ask(sources("https://else"), |_| {}, &other()), "route/tenant||acme");
    assert_eq!(ask(sources("https://idp"), |_| {}, &Claims(vec![ISS])), "route/tenant||acme");
    assert_eq!(ask(vec![jwt("sub", &[])], |_| {}, &Claims(vec![])), "absent");
}

#[test]
fn a_nested_claim_and_a_dotted_name_are_two_identities() {
    let nested = claim(&["a", "b"], &[], false);
    let dotted = claim(&["a/b"], &[], false);
    assert_ne!(nested.kind(), dotted.kind());
    assert_ne!(nested.kind(), claim(&["a.b"], &[], false).kind());
}

#[test]
fn a_principal_counts_only_in_its_trust_domain() {
    let source = || vec![Source::mtls(TrustDomain::parse("td").unwrap())];
    let with = |principal: &'static str| ask(source(), move |request| request.principal = principal, &Claims(vec![]));
    assert_eq!(with("spiffe://td/a"), "mtls||spiffe://td/a");
    assert_eq!(with("spiffe://other/a"), "absent");
    assert_eq!(with("a.example"), "absent");
    // RL-15: whoever is of another domain is asked by the next source.
    let next = || vec![Source::mtls(TrustDomain::parse("td").unwrap()), Source::route("tenant")];
    let with = |principal: &'static str| ask(next(), move |request| request.principal = principal, &Claims(vec![]));
    assert_eq!(with("spiffe://td/a"), "mtls||spiffe://td/a");
    for other in ["spiffe://other/a", "spiffe://td.evil/a", "CN=spiffe://td/a", "spiffe://td/a,spiffe://td/b", ""] {
        assert_eq!(with(other), "route/tenant||acme", "{other}");
    }
}

#[test]
fn a_trusted_header_is_refused_rather_than_guessed() {
    let with = |lines: Vec<(&'static str, &'static [u8])>| {
        ask(
            vec![Source::header("X-User", &[]), Source::route("tenant")],
            move |request| request.headers = Headers { joined: None, lines },
            &Claims(vec![]),
        )
    };
    assert_eq!(with(vec![("x-user", b"ada")]), "header/x-user||ada");
    assert_eq!(with(vec![]), "route/tenant||acme");
    assert_eq!(with(vec![("x-user", b"a"), ("x-user", b"b")]), "header_repeated");
    assert_eq!(with(vec![("x-user", b"")]), "bad_length");
    assert_eq!(with(vec![("x-user", &[b'x'; MAX_VALUE_LEN + 1])]), "bad_length");
}

// RL-17: nobody home is a reason, never a bucket.
#[test]
fn without_any_source_the_part_is_absent() {
    assert_eq!(ask(vec![], |_| {}, &Claims(vec![])), "absent");
    assert_eq!(ask(vec![Source::address()], |_| {}, &Claims(vec![])), "absent");
}

// RL-16: exact integers only where the operator said so, and apart from texts.
#[test]
fn an_integer_claim_counts_by_an_explicit_setting_and_never_meets_a_text() {
    let with = |value| ask(vec![claim(&["n"], &[], true)], |_| {}, &Claims(vec![(&["ns", "p", "n"], value)]));
    assert_eq!(with(Claim::Number(1.0)), "jwt/n||\u{0}1");
    assert_eq!(with(Claim::Text("1")), "jwt/n||1");
    assert_eq!(with(Claim::Number(9_007_199_254_740_991.0)), "jwt/n||\u{0}9007199254740991");
    for bad in [1.5, -1.0, 1e30, 9_007_199_254_740_992.0, f64::NAN, f64::INFINITY] {
        assert_eq!(with(Claim::Number(bad)), "bad_claim", "{bad}");
    }
    assert_eq!(with(Claim::Text("\x001")), "bad_claim", "a text cannot pass for an integer");
}

#[test]
fn a_header_of_named_principals_is_not_there_on_other_connections() {
    let gateway = || vec![Source::header("x-user", &["spiffe://td/gateway".to_owned()]), Source::route("tenant")];
    let with = |principal: &'static str| {
        let adjust = move |request: &mut Attributes<'_>| {
            request.principal = principal;
            request.headers = Headers { joined: None, lines: vec![("x-user", b"ada")] };
        };
        ask(gateway(), adjust, &Claims(vec![]))
    };
    assert_eq!(with("spiffe://td/gateway"), "header/x-user||ada");
    for other in ["", "spiffe://td/gateway2", "spiffe://td"] {
        assert_eq!(with(other), "route/tenant||acme", "{other}");
    }
}

/// The address that `origin` finds, as text, or the reason.
fn address(origin: AddressOrigin, peer: Option<&str>, lines: Vec<(&'static str, &'static [u8])>) -> String {
    let source = AddressSource { origin, ..Default::default() };
    let route = HashMap::new();
    let request = Attributes {
        method: "GET",
        host: "",
        path: "/",
        headers: Headers { joined: None, lines },
        source: peer.map(|peer| peer.parse().unwrap()),
        principal: "",
        route: &route,
        metadata: &Claims(vec![]),
    };
    match source.find(&request) {
        Ok(bytes) => bytes[2..].iter().map(u8::to_string).collect::<Vec<_>>().join("."),
        Err(missing) => missing.as_str().to_owned(),
    }
}

#[test]
fn the_address_is_the_peers_the_edges_or_what_envoy_wrote_into_the_call() {
    assert_eq!(address(AddressOrigin::Peer, Some("10.0.0.9"), vec![]), "10.0.0.9");
    assert_eq!(address(AddressOrigin::Peer, None, vec![]), "absent");
    let edge = || AddressOrigin::Header("x-envoy-external-address".into());
    assert_eq!(address(edge(), Some("10.0.0.9"), vec![("x-envoy-external-address", b"203.0.113.7")]), "203.0.113.7");
    assert_eq!(address(edge(), Some("10.0.0.9"), vec![("x-envoy-external-address", b"unknown")]), "bad_address");
    assert_eq!(address(edge(), Some("10.0.0.9"), vec![]), "absent");
    assert_eq!(address(AddressOrigin::CallMetadata("x-clientip".into()), None, vec![]), "203.0.113.7");
    assert_eq!(address(AddressOrigin::CallMetadata("other".into()), None, vec![]), "absent");
}

// RL-13: each spelling means the same wherever it is read, and what is no address is none everywhere.
#[test]
fn a_spelling_means_the_same_in_every_place_that_an_address_is_read_from() {
    let edge = |text: &'static str| {
        let lines = vec![("x-real-ip", text.as_bytes())];
        address(AddressOrigin::Header("x-real-ip".into()), Some("10.0.0.9"), lines)
    };
    let forwarded = |text: &'static str| {
        let origin = AddressOrigin::Forwarded { trusted_peers: vec!["10.0.0.0/8".parse().unwrap()], hops: 1 };
        address(origin, Some("10.0.0.9"), vec![("x-forwarded-for", text.as_bytes())])
    };
    for text in [
        "203.0.113.7",
        "203.0.113.7:4711",
        " 203.0.113.7 ",
        "::ffff:203.0.113.7",
        "::ffff:cb00:7107",
        "[::ffff:203.0.113.7]:443",
    ] {
        assert_eq!((edge(text), forwarded(text)), ("203.0.113.7".into(), "203.0.113.7".into()), "{text}");
    }
    let site = edge("2001:db8::1");
    for text in ["2001:DB8:0:0:0:0:0:1", "[2001:db8::1]:8443", "2001:db8::ffff:0:0:1"] {
        assert_eq!((edge(text), forwarded(text)), (site.clone(), site.clone()), "{text}");
    }
    assert_ne!(edge("2001:db8:0:1::1"), site);
    assert_ne!(edge("2001:db8::1.2.3.4"), edge("1.2.3.4"), "plain IPv6");
    for text in ["fe80::1%eth0", "203.0.113.007", "1.2.3", "unknown", "", "_hidden", "203.0.113.7:x"] {
        assert_eq!((edge(text), forwarded(text)), ("bad_address".into(), "bad_address".into()), "{text:?}");
    }
}

#[test]
fn forwarded_addresses_count_from_the_right_and_only_from_trusted_proxies() {
    let hops = |hops| AddressOrigin::Forwarded { trusted_peers: vec!["10.0.0.0/8".parse().unwrap()], hops };
    let list = || vec![("x-forwarded-for", &b"9.9.9.9, 203.0.113.7"[..]), ("x-forwarded-for", b" 10.1.1.1:80")];
    assert_eq!(address(hops(1), Some("10.0.0.9"), list()), "10.1.1.1");
    assert_eq!(address(hops(2), Some("10.0.0.9"), list()), "203.0.113.7");
    assert_eq!(address(hops(1), Some("198.51.100.1"), list()), "198.51.100.1", "a stranger speaks for itself");
    assert_eq!(address(hops(1), Some("::ffff:10.0.0.9"), list()), "10.1.1.1");
    assert_eq!(address(hops(4), Some("10.0.0.9"), list()), "bad_address", "shorter than the trusted hops");
    assert_eq!(address(hops(1), Some("10.0.0.9"), vec![]), "absent");
    assert_eq!(address(hops(1), Some("10.0.0.9"), vec![("x-forwarded-for", b"1.2.3.4, ")]), "bad_address");
    assert_eq!(address(hops(1), Some("10.0.0.9"), vec![("x-forwarded-for", b"1.2.3.4, \xff")]), "bad_address");
}
