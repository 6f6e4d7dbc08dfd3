use std::collections::HashMap;

use super::*;
use crate::decision::attributes::{Headers, Metadata};

/// Metadata as jwt_authn leaves it: values by their full path.
struct Claims(Vec<(&'static [&'static str], Claim<'static>)>);

impl Metadata for Claims {
    fn claim(&self, namespace: &str, path: &[&str]) -> Option<Claim<'_>> {
        let found = self.0.iter().find(|(at, _)| at[0] == namespace && at[1..] == *path);
        found.map(|(_, claim)| *claim)
    }
}

fn jwt(claim: &str, issuers: &[&str]) -> Source {
    Source::jwt("ns", "p", &[claim.to_owned()], &issuers.iter().map(|&i| i.to_owned()).collect::<Vec<_>>())
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
    let nested = Source::jwt("ns", "p", &["a".into(), "b".into()], &[]);
    let dotted = Source::jwt("ns", "p", &["a/b".into()], &[]);
    assert_ne!(nested.kind, dotted.kind);
    assert_ne!(nested.kind, Source::jwt("ns", "p", &["a.b".into()], &[]).kind);
}

#[test]
fn a_principal_counts_only_in_its_trust_domain() {
    let source = || vec![Source::mtls(TrustDomain::parse("td").unwrap())];
    let with = |principal: &'static str| ask(source(), move |request| request.principal = principal, &Claims(vec![]));
    assert_eq!(with("spiffe://td/a"), "mtls||spiffe://td/a");
    assert_eq!(with("spiffe://other/a"), "absent");
    assert_eq!(with("a.example"), "absent");
}

#[test]
fn a_trusted_header_is_refused_rather_than_guessed() {
    let with = |lines: Vec<(&'static str, &'static [u8])>| {
        ask(
            vec![Source::header("X-User"), Source::route("tenant")],
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
