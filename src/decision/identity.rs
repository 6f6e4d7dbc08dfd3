//! Who pays and who asks: identity from the evidence that the operator listed, and from nothing else.
//!
//! Each part (tenant, subject, address) has an ordered list of sources. A source *yields* evidence, is *absent*
//! (the next one is asked), or is *refused* (present but not to be believed: the search stops, so that a client
//! cannot choose the weaker source by spoiling the stronger). A part that is missing is an explicit verdict, never
//! a shared or random bucket.

mod source;

use std::borrow::Cow;

pub use self::source::{JwtClaim, Source};
use super::address::AddressSource;
use super::attributes::{Attributes, HeaderFault};

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

/// Evidence longer than this is refused: no honest identity is, and it bounds the hashing of a request. A SPIFFE ID has the
/// bound of its own standard, [`MAX_ID_LEN`](super::spiffe::MAX_ID_LEN).
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
    /// A claim that is there but is not a text (or an integer, where these count), or is empty or too long.
    BadClaim,
    /// A trusted header that is there but is not one certain value.
    BadHeader(HeaderFault),
    /// A trusted header or route value that is empty or too long.
    BadLength,
    /// An address that is there but is none, or a chain of proxies that is shorter than the trusted hops.
    BadAddress,
}

impl Missing {
    const REASONS: [Self; 7] = [
        Self::Absent,
        Self::BadClaim,
        Self::BadHeader(HeaderFault::Repeated),
        Self::BadHeader(HeaderFault::Lossy),
        Self::BadHeader(HeaderFault::Contradictory),
        Self::BadLength,
        Self::BadAddress,
    ];

    /// Every part with every reason.
    pub fn all() -> impl Iterator<Item = (Part, Self)> {
        let parts = [Part::Tenant, Part::Subject, Part::Address].into_iter();
        parts.flat_map(|part| Self::REASONS.into_iter().map(move |reason| (part, reason)))
    }

    /// A word of a closed set, for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::BadClaim => "bad_claim",
            Self::BadHeader(HeaderFault::Repeated) => "header_repeated",
            Self::BadHeader(HeaderFault::Lossy) => "header_lossy",
            Self::BadHeader(HeaderFault::Contradictory) => "header_contradictory",
            Self::BadLength => "bad_length",
            Self::BadAddress => "bad_address",
        }
    }
}

/// Where each part is looked for, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentitySources {
    pub tenant: Vec<Source>,
    pub subject: Vec<Source>,
    pub address: AddressSource,
}

impl IdentitySources {
    /// What each source of a part answers, up to the one that ends the search: for operators.
    pub fn trace<'a>(&'a self, part: Part, request: &Attributes<'a>) -> Vec<(&'a str, Result<(), Missing>)> {
        let sources = match part {
            Part::Tenant => &self.tenant,
            Part::Subject => &self.subject,
            Part::Address => return vec![("address", self.find(part, request).map(|_| ()))],
        };
        let mut answers = Vec::new();
        for source in sources {
            let answer = source.ask(request, &self.address).map(|_| ());
            let ends = answer != Err(Missing::Absent);
            answers.push((source.kind(), answer));
            if ends {
                break;
            }
        }
        answers
    }

    /// The evidence of one part: the first source that yields, unless one before it is refused.
    pub fn find<'a>(&'a self, part: Part, request: &Attributes<'a>) -> Result<Evidence<'a>, Missing> {
        let sources = match part {
            Part::Tenant => &self.tenant,
            Part::Subject => &self.subject,
            Part::Address => {
                let value = Cow::Owned(self.address.find(request)?);
                return Ok(Evidence { kind: "address", issuer: "", value });
            }
        };
        sources
            .iter()
            .map(|source| source.ask(request, &self.address))
            .find(|answer| !matches!(answer, Err(Missing::Absent)))
            .unwrap_or(Err(Missing::Absent))
    }
}

#[cfg(test)]
mod tests;
