//! One place where the operator said that identity may be read, and what it answers.

use std::borrow::Cow;

use super::{Evidence, MAX_VALUE_LEN, Missing};
use crate::decision::address::AddressSource;
use crate::decision::attributes::{Attributes, Claim};
use crate::decision::spiffe::TrustDomain;

/// The largest integer that a double tells apart from its neighbours: 2^53 - 1.
const MOST_EXACT: u64 = 9_007_199_254_740_991;

/// One place where the operator said that identity may be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    kind: Box<str>,
    origin: Origin,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Jwt(JwtClaim),
    Mtls(TrustDomain),
    Address,
    Route(Box<str>),
    /// With principals, only on connections of these: elsewhere the header is not there.
    Header {
        name: Box<str>,
        from_principals: Vec<Box<str>>,
    },
}

/// Where a claim stands, and whose counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtClaim {
    /// The filter's namespace in dynamic metadata.
    pub namespace: Box<str>,
    /// The key that holds the token's payload there.
    pub payload: Box<str>,
    /// One step a level.
    pub path: Vec<Box<str>>,
    /// Only these count; empty: whichever issuer Envoy accepted. The issuer is part of the key either way.
    pub issuers: Vec<Box<str>>,
    /// Whether exact integers are identities too, apart from texts that look like them.
    pub integers: bool,
}

impl Source {
    /// A claim of a token that Envoy's jwt_authn filter checked.
    pub fn jwt(claim: JwtClaim) -> Self {
        // The steps are joined as a JSON pointer (RFC 6901), so a dotted name and a nested one stay apart.
        let pointer: Vec<_> = claim.path.iter().map(|step| step.replace('~', "~0").replace('/', "~1")).collect();
        Self { kind: format!("jwt/{}", pointer.join("/")).into(), origin: Origin::Jwt(claim) }
    }

    /// What this source yields for a value as an operator writes it; `None` where it would yield nothing of this form.
    pub fn value_of<'v>(&self, text: &'v str, is_integer: bool) -> Option<Cow<'v, [u8]>> {
        if !is_integer {
            return Some(Cow::Borrowed(text.as_bytes()));
        }
        let takes_integers = matches!(&self.origin, Origin::Jwt(claim) if claim.integers);
        let integer = text.parse().ok().filter(|integer: &u64| takes_integers && integer.to_string() == text)?;
        (integer <= MOST_EXACT).then(|| Cow::Owned(integer_bytes(integer)))
    }

    /// Whether tokens that another filter checked could pass for one another: the same claim, and no issuer to tell them apart
    /// where a token names none.
    pub fn may_be_mistaken_for(&self, other: &Self) -> bool {
        match (&self.origin, &other.origin) {
            (Origin::Jwt(own), Origin::Jwt(theirs)) => {
                let another = (&own.namespace, &own.payload) != (&theirs.namespace, &theirs.payload);
                another && self.kind == other.kind && own.issuers.is_empty() && theirs.issuers.is_empty()
            }
            _ => false,
        }
    }

    /// The SPIFFE ID of the peer certificate, if it is of this trust domain.
    pub fn mtls(domain: TrustDomain) -> Self {
        Self { kind: "mtls".into(), origin: Origin::Mtls(domain) }
    }

    /// The client's address.
    pub fn address() -> Self {
        Self { kind: "address".into(), origin: Origin::Address }
    }

    /// A value that the operator wrote on the route (`context_extensions`).
    pub fn route(key: &str) -> Self {
        Self { kind: format!("route/{key}").into(), origin: Origin::Route(key.into()) }
    }

    /// A request header that the operator declared trustworthy, perhaps only on connections of some principals. `name` is
    /// lower-cased.
    pub fn header(name: &str, from_principals: &[String]) -> Self {
        let name = name.to_ascii_lowercase();
        let from_principals = from_principals.iter().map(|principal| principal.as_str().into()).collect();
        Self { kind: format!("header/{name}").into(), origin: Origin::Header { name: name.into(), from_principals } }
    }

    /// Whether the client proved who it is: by a token or a certificate.
    pub fn is_proof(&self) -> bool {
        matches!(self.origin, Origin::Jwt(_) | Origin::Mtls(_))
    }

    /// Whether a client may choose what this says, or share it with others, without proving anything.
    pub fn is_weak(&self) -> bool {
        match &self.origin {
            Origin::Header { from_principals, .. } => from_principals.is_empty(),
            Origin::Address => true,
            _ => false,
        }
    }

    /// The issuers that a JWT source accepts, none meaning every one; `None` for other sources, which have no issuer.
    pub fn issuers(&self) -> Option<&[Box<str>]> {
        match &self.origin {
            Origin::Jwt(claim) => Some(&claim.issuers),
            _ => None,
        }
    }

    /// Whether this is what the operator wrote on the route as `key`.
    pub fn is_route(&self, key: &str) -> bool {
        matches!(&self.origin, Origin::Route(read) if **read == *key)
    }

    /// As it stands in keys: `jwt/sub`, `header/x-user`, `route/tenant`, `mtls`, `address`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    pub fn ask<'a>(&'a self, request: &Attributes<'a>, address: &AddressSource) -> Result<Evidence<'a>, Missing> {
        let mut evidence = Evidence { kind: &self.kind, issuer: "", value: Cow::Borrowed(&[]) };
        match &self.origin {
            Origin::Jwt(claim) => {
                evidence.issuer = claim.issuer(request)?;
                evidence.value = claim.value(request)?;
            }
            Origin::Mtls(domain) if domain.owns(request.principal) => {
                evidence.value = request.principal.as_bytes().into();
            }
            Origin::Mtls(_) => return Err(Missing::Absent),
            Origin::Address => evidence.value = Cow::Owned(address.find(request)?),
            Origin::Route(key) => {
                let text = request.route.get(&**key).ok_or(Missing::Absent)?;
                evidence.value = bounded(text).ok_or(Missing::BadLength)?.into();
            }
            Origin::Header { name, from_principals } => {
                let trusted = from_principals.is_empty() || from_principals.iter().any(|p| **p == *request.principal);
                let text = if trusted { request.headers.single(name).map_err(Missing::BadHeader)? } else { None };
                evidence.value = bounded(text.ok_or(Missing::Absent)?).ok_or(Missing::BadLength)?.into();
            }
        }
        Ok(evidence)
    }
}

impl JwtClaim {
    /// The token's issuer, if there is a token and the operator lists its issuer. A token without `iss` has the empty
    /// issuer, which no list contains.
    fn issuer<'a>(&self, request: &Attributes<'a>) -> Result<&'a str, Missing> {
        let issuer = match request.metadata.claim(&self.namespace, &[&*self.payload, "iss"]) {
            Some(Claim::Text(text)) if text.len() <= MAX_VALUE_LEN => text,
            Some(_) => return Err(Missing::BadClaim),
            None => "",
        };
        let listed = self.issuers.is_empty() || self.issuers.iter().any(|listed| **listed == *issuer);
        if listed { Ok(issuer) } else { Err(Missing::Absent) }
    }

    /// A text that is not empty; where the operator said so, an integer that a double holds exactly. An integer begins
    /// with a NUL byte in the key, which no text from JSON metadata that we accept does, so 1 and "1" never meet.
    fn value<'a>(&self, request: &Attributes<'a>) -> Result<Cow<'a, [u8]>, Missing> {
        let path: Vec<&str> = std::iter::once(&*self.payload).chain(self.path.iter().map(|step| &**step)).collect();
        match request.metadata.claim(&self.namespace, &path).ok_or(Missing::Absent)? {
            Claim::Text(text) if !text.starts_with('\0') => bounded(text).map(Cow::Borrowed).ok_or(Missing::BadClaim),
            Claim::Number(number) if self.integers => {
                exact_integer(number).map(|integer| Cow::Owned(integer_bytes(integer))).ok_or(Missing::BadClaim)
            }
            _ => Err(Missing::BadClaim),
        }
    }
}

/// An integer claim as it goes into a key: marked, so that it never meets a text.
fn integer_bytes(integer: u64) -> Vec<u8> {
    format!("\0{integer}").into_bytes()
}

/// 0 to 2^53 - 1: beyond that two integers are one double.
fn exact_integer(number: f64) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "a double holds it exactly, by definition")]
    let whole = (0.0..=MOST_EXACT as f64).contains(&number) && number.fract() == 0.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number within 0 and 2^53 - 1")]
    whole.then_some(number as u64)
}

fn bounded(text: &str) -> Option<&[u8]> {
    (1..=MAX_VALUE_LEN).contains(&text.len()).then_some(text.as_bytes())
}
