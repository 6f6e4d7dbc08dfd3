//! Who pays and who asks: identity from the evidence that the operator listed, and from nothing else.
//!
//! Each part (tenant, subject, address) has an ordered list of sources. A source *yields* evidence, is *absent*
//! (the next one is asked), or is *refused* (present but not to be believed: the search stops, so that a client
//! cannot choose the weaker source by spoiling the stronger). A part that is missing is an explicit verdict, never
//! a shared or random bucket.

use std::borrow::Cow;

use super::address::{self, Ipv6Prefix};
use super::attributes::{Attributes, Claim, HeaderFault};
use super::spiffe::TrustDomain;

/// What a limit can count by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Tenant,
    Subject,
    Address,
}

impl Part {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Subject => "subject",
            Self::Address => "address",
        }
    }
}

/// Evidence longer than this is refused: no honest identity is, and it bounds the hashing of a request.
pub const MAX_VALUE_LEN: usize = 1024;

/// Verified evidence of one part: what goes into the key, framed, in this order. It has no `Debug`: an identity is
/// never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Evidence<'a> {
    /// The source's kind and, where it has one, the place that it was read from: `jwt/sub`, `header/x-user`,
    /// `route/tenant`, `mtls`, `address`. The same text from two places is two identities.
    pub kind: &'a str,
    /// The JWT's `iss`; empty for every other kind.
    pub issuer: &'a str,
    pub value: Cow<'a, [u8]>,
}

/// Why a part has no evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// No source had anything.
    Absent,
    /// A claim that is there but is not a text, or is empty or too long.
    BadClaim,
    /// A trusted header that is there but is not one certain value.
    BadHeader(HeaderFault),
    /// A trusted header or route value that is empty or too long.
    BadLength,
}

impl Missing {
    /// A word of a closed set, for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::BadClaim => "bad_claim",
            Self::BadHeader(HeaderFault::Repeated) => "header_repeated",
            Self::BadHeader(HeaderFault::Lossy) => "header_lossy",
            Self::BadHeader(HeaderFault::Contradictory) => "header_contradictory",
            Self::BadLength => "bad_length",
        }
    }
}

/// One place where the operator said that identity may be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    kind: Box<str>,
    origin: Origin,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Jwt { namespace: Box<str>, payload: Box<str>, claim: Vec<Box<str>>, issuers: Vec<Box<str>> },
    Mtls(TrustDomain),
    Address,
    Route(Box<str>),
    Header(Box<str>),
}

impl Source {
    /// A claim of a token that Envoy's jwt_authn filter checked. `claim` has one step a level. With `issuers` only
    /// these count; without, whichever issuer Envoy accepted. The issuer is part of the key either way.
    pub fn jwt(namespace: &str, payload: &str, claim: &[String], issuers: &[String]) -> Self {
        // The steps are joined as a JSON pointer (RFC 6901), so a dotted name and a nested one stay apart.
        let pointer: Vec<_> = claim.iter().map(|step| step.replace('~', "~0").replace('/', "~1")).collect();
        Self {
            kind: format!("jwt/{}", pointer.join("/")).into(),
            origin: Origin::Jwt {
                namespace: namespace.into(),
                payload: payload.into(),
                claim: claim.iter().map(|step| step.as_str().into()).collect(),
                issuers: issuers.iter().map(|issuer| issuer.as_str().into()).collect(),
            },
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

    /// A request header that the operator declared trustworthy. `name` is lower-cased.
    pub fn header(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        Self { kind: format!("header/{name}").into(), origin: Origin::Header(name.into()) }
    }

    /// Whether the client proved who it is: by a token or a certificate.
    pub fn is_proof(&self) -> bool {
        matches!(self.origin, Origin::Jwt { .. } | Origin::Mtls(_))
    }

    /// Whether a client can choose what this says, or share it with others, without proving anything.
    pub fn is_weak(&self) -> bool {
        matches!(self.origin, Origin::Header(_) | Origin::Address)
    }

    /// The issuers that a JWT source accepts, none meaning every one; `None` for other sources, which have no issuer.
    pub fn issuers(&self) -> Option<&[Box<str>]> {
        match &self.origin {
            Origin::Jwt { issuers, .. } => Some(issuers),
            _ => None,
        }
    }

    /// As it stands in keys: `jwt/sub`, `header/x-user`, `route/tenant`, `mtls`, `address`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    fn ask<'a>(&'a self, request: &Attributes<'a>, prefix: Ipv6Prefix) -> Result<Evidence<'a>, Missing> {
        let mut issuer = "";
        let value = match &self.origin {
            Origin::Jwt { namespace, payload, claim, issuers } => {
                issuer = jwt_issuer(request, namespace, payload, issuers)?;
                let path: Vec<&str> = std::iter::once(&**payload).chain(claim.iter().map(|s| &**s)).collect();
                match request.metadata.claim(namespace, &path).ok_or(Missing::Absent)? {
                    Claim::Text(text) => bounded(text).ok_or(Missing::BadClaim)?.into(),
                    Claim::Number(_) | Claim::Other => return Err(Missing::BadClaim),
                }
            }
            Origin::Mtls(domain) if domain.owns(request.principal) => request.principal.as_bytes().into(),
            Origin::Mtls(_) => return Err(Missing::Absent),
            Origin::Address => {
                let address = request.source.ok_or(Missing::Absent)?;
                Cow::Owned(address::identity_bytes(address, prefix))
            }
            Origin::Route(key) => {
                let text = request.route.get(&**key).ok_or(Missing::Absent)?;
                bounded(text).ok_or(Missing::BadLength)?.into()
            }
            Origin::Header(name) => {
                let text = request.headers.single(name).map_err(Missing::BadHeader)?.ok_or(Missing::Absent)?;
                bounded(text).ok_or(Missing::BadLength)?.into()
            }
        };
        Ok(Evidence { kind: &self.kind, issuer, value })
    }
}

/// The token's issuer, if there is a token and the operator lists its issuer. A token without `iss` has the
/// empty issuer, which no list contains.
fn jwt_issuer<'a>(
    request: &Attributes<'a>,
    namespace: &str,
    payload: &str,
    issuers: &[Box<str>],
) -> Result<&'a str, Missing> {
    let issuer = match request.metadata.claim(namespace, &[payload, "iss"]) {
        Some(Claim::Text(text)) if text.len() <= MAX_VALUE_LEN => text,
        Some(_) => return Err(Missing::BadClaim),
        None => "",
    };
    if issuers.is_empty() || issuers.iter().any(|listed| **listed == *issuer) {
        Ok(issuer)
    } else {
        Err(Missing::Absent)
    }
}

fn bounded(text: &str) -> Option<&[u8]> {
    (1..=MAX_VALUE_LEN).contains(&text.len()).then_some(text.as_bytes())
}

/// Where each part is looked for, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentitySources {
    pub tenant: Vec<Source>,
    pub subject: Vec<Source>,
    pub ipv6_prefix: Ipv6Prefix,
}

impl IdentitySources {
    /// The evidence of one part: the first source that yields, unless one before it is refused.
    pub fn find<'a>(&'a self, part: Part, request: &Attributes<'a>) -> Result<Evidence<'a>, Missing> {
        let sources = match part {
            Part::Tenant => &self.tenant,
            Part::Subject => &self.subject,
            Part::Address => {
                let address = request.source.ok_or(Missing::Absent)?;
                let value = Cow::Owned(address::identity_bytes(address, self.ipv6_prefix));
                return Ok(Evidence { kind: "address", issuer: "", value });
            }
        };
        sources
            .iter()
            .map(|source| source.ask(request, self.ipv6_prefix))
            .find(|answer| !matches!(answer, Err(Missing::Absent)))
            .unwrap_or(Err(Missing::Absent))
    }
}

#[cfg(test)]
mod tests;
