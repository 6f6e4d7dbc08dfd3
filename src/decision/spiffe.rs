//! Strict SPIFFE IDs: the only form of a peer certificate's name that counts as identity.
//!
//! Envoy puts a URI SAN, a DNS SAN or the certificate's subject into one text field, so whatever is not a
//! well-formed ID of the configured trust domain is no mTLS identity at all (RL-15).

/// The longest SPIFFE ID (SPIFFE-ID, 2.3).
pub const MAX_ID_LEN: usize = 2048;

/// A trust domain: `[a-z0-9._-]`, 1 to 255 characters (SPIFFE-ID, 2.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustDomain(Box<str>);

/// Why a text is not a [`TrustDomain`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a trust domain is 1 to 255 of a-z, 0-9, '.', '-' and '_', without a scheme or path")]
pub struct BadTrustDomain;

impl TrustDomain {
    pub fn parse(text: &str) -> Result<Self, BadTrustDomain> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-_".contains(&b);
        if (1..=255).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.into()))
        } else {
            Err(BadTrustDomain)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `principal` is a well-formed ID of a workload in this trust domain. Nothing is normalised:
    /// forms that SPIFFE treats as different stay different.
    pub fn owns(&self, principal: &str) -> bool {
        let path = principal
            .strip_prefix("spiffe://")
            .and_then(|rest| rest.strip_prefix(&*self.0))
            .and_then(|rest| rest.strip_prefix('/'));
        principal.len() <= MAX_ID_LEN && path.is_some_and(|path| path.split('/').all(is_segment))
    }
}

/// Whether a text is a well-formed ID of a workload in any trust domain.
pub fn is_id(text: &str) -> bool {
    let domain = text.strip_prefix("spiffe://").and_then(|rest| rest.split_once('/'));
    domain.and_then(|(domain, _)| TrustDomain::parse(domain).ok()).is_some_and(|domain| domain.owns(text))
}

fn is_segment(segment: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
    !segment.is_empty() && segment != "." && segment != ".." && segment.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    // RL-15: no prefix or substring matching, no fallback form.
    #[test]
    fn only_a_well_formed_id_of_the_trust_domain_counts() {
        let domain = TrustDomain::parse("td.example").unwrap();
        assert!(domain.owns("spiffe://td.example/ns/a/sa/b"));
        for other in [
            "spiffe://other.example/ns/a/sa/b",
            "SPIFFE://td.example/ns/a/sa/b",
            "spiffe://TD.example/ns/a/sa/b",
            "spiffe://td.example",
            "spiffe://td.example/",
            "spiffe://td.example/ns/a/sa/b/",
            "spiffe://td.example/ns//b",
            "spiffe://td.example/ns/a/../c",
            "spiffe://td.example/ns/./c",
            "spiffe://td.example/ns/a?x",
            "spiffe://td.example/ns/%61",
            "spiffe://td.example:443/ns/a",
            "spiffe://td.example.evil/ns/a",
            "schemexyz://td.example/a",
            "a.example",
            "CN=spiffe://td.example/ns/a/sa/b,O=x",
            "spiffe://td.example/a,spiffe://td.example/b",
            "",
        ] {
            assert!(!domain.owns(other), "{other}");
        }
    }

    #[test]
    fn an_id_has_the_length_that_spiffe_allows_and_no_more() {
        let domain = TrustDomain::parse("td.example").unwrap();
        let id = |length: usize| format!("spiffe://td.example/{}", "a".repeat(length - "spiffe://td.example/".len()));
        assert!(domain.owns(&id(MAX_ID_LEN)));
        assert!(!domain.owns(&id(MAX_ID_LEN + 1)));
    }

    #[test]
    fn a_trust_domain_is_a_bare_lower_case_name() {
        for bad in ["", "TD.example", "spiffe://td.example", "td.example/", "td example", &"x".repeat(256)] {
            assert_eq!(TrustDomain::parse(bad), Err(BadTrustDomain), "{bad}");
        }
    }
}
