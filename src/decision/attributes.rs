//! What a request looks like to the core: a borrowed view of Envoy's CheckRequest without its types.
//!
//! Filled by `authz/request`, read by `matcher` and `identity`. Nothing here is trusted by itself: which of
//! these fields may name a tenant or a subject is written by the operator (see `identity`).

use std::collections::HashMap;
use std::net::IpAddr;

/// One request, borrowed from the message that Envoy sent. An empty string means that Envoy sent none.
pub struct Attributes<'a> {
    /// Request method, as sent: methods are case-sensitive (RFC 9110, 9.1).
    pub method: &'a str,
    /// `Host` or `:authority`, as sent: any case, perhaps with a port.
    pub host: &'a str,
    /// The request target, as sent: query included, not normalised. Empty for CONNECT.
    pub path: &'a str,
    pub headers: Headers<'a>,
    /// The TCP peer of the connection that Envoy accepted; `None` for a Unix socket or an internal listener.
    pub source: Option<IpAddr>,
    /// The peer certificate's identity as Envoy read it: URI SAN, else DNS SAN, else subject. Empty without mTLS.
    pub principal: &'a str,
    /// `context_extensions`: written by the operator on the route, out of a client's reach.
    pub route: &'a HashMap<String, String>,
    /// Dynamic metadata that Envoy forwarded: as good as the filter that wrote it.
    pub metadata: &'a dyn Metadata,
}

/// Metadata beside the request, looked up where the operator said.
pub trait Metadata: Sync {
    /// The value at `path` (one step a level) below `namespace`, or `None` where a step is missing.
    fn claim(&self, namespace: &str, path: &[&str]) -> Option<Claim<'_>>;

    /// A value of the check's own gRPC metadata, which Envoy's configuration writes (`initial_metadata`).
    fn call(&self, key: &str) -> Option<&str>;
}

/// A value in dynamic metadata. Envoy keeps numbers as doubles, so a number is never read as text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Claim<'a> {
    Text(&'a str),
    Number(f64),
    /// Null, a boolean, a list or an object.
    Other,
}

/// Request headers in the two forms that Envoy has; names are lower-case.
#[derive(Default)]
pub struct Headers<'a> {
    /// `headers`: one entry a name. Envoy joined repeated lines with a comma and turned bytes that are not
    /// UTF-8 into `!`, so neither can be told from a value that a client sent that way.
    pub joined: Option<&'a HashMap<String, String>>,
    /// `header_map` (`encode_raw_headers: true`): one entry a line, exact bytes.
    pub lines: Vec<(&'a str, &'a [u8])>,
}

/// Why a header that is present cannot be read as one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderFault {
    /// More than one line, or a comma: a list is not an identity.
    Repeated,
    /// Not UTF-8, or holds the `!` that Envoy writes for such bytes.
    Lossy,
    /// The two forms disagree.
    Contradictory,
}

impl<'a> Headers<'a> {
    /// The one value of header `name` (lower-case), if it has exactly one that is certain.
    pub fn single(&self, name: &str) -> Result<Option<&'a str>, HeaderFault> {
        let joined = match self.joined.and_then(|map| map.get(name)) {
            Some(value) if value.contains('!') => return Err(HeaderFault::Lossy),
            other => other.map(String::as_str),
        };
        let mut lines = self.lines.iter().filter(|(line, _)| line.eq_ignore_ascii_case(name));
        let line = match lines.next() {
            Some((_, bytes)) => Some(std::str::from_utf8(bytes).map_err(|_| HeaderFault::Lossy)?),
            None => None,
        };
        if lines.next().is_some() {
            return Err(HeaderFault::Repeated);
        }
        let value = match (joined, line) {
            (Some(a), Some(b)) if a != b => return Err(HeaderFault::Contradictory),
            (a, b) => a.or(b),
        };
        match value {
            Some(value) if value.contains(',') => Err(HeaderFault::Repeated),
            value => Ok(value),
        }
    }
}

impl<'a> Headers<'a> {
    /// Every line of a header that is a list by nature, in order. A line that is not UTF-8 reads as an empty one.
    pub fn list(&self, name: &str) -> Vec<&'a str> {
        let lines = self.lines.iter().filter(|(line, _)| line.eq_ignore_ascii_case(name));
        let lines: Vec<_> = lines.map(|(_, bytes)| std::str::from_utf8(bytes).unwrap_or_default()).collect();
        let joined = self.joined.and_then(|map| map.get(name)).map(String::as_str);
        if lines.is_empty() { joined.into_iter().collect() } else { lines }
    }
}

/// No metadata at all: what a listener without filters before ours forwards.
pub struct NoMetadata;

impl Metadata for NoMetadata {
    fn claim(&self, _: &str, _: &[&str]) -> Option<Claim<'_>> {
        None
    }

    fn call(&self, _: &str) -> Option<&str> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RL-14: a trusted header is one certain value or none.
    #[test]
    fn a_header_is_one_certain_value_or_none() {
        let joined = |value: &str| HashMap::from([("x-user".to_owned(), value.to_owned())]);
        type Case = (Option<&'static str>, &'static [&'static [u8]], Result<Option<&'static str>, HeaderFault>);
        let cases: &[Case] = &[
            (None, &[], Ok(None)),
            (Some("ada"), &[], Ok(Some("ada"))),
            (Some(""), &[], Ok(Some(""))),
            (Some("a,b"), &[], Err(HeaderFault::Repeated)),
            (Some("a, a"), &[], Err(HeaderFault::Repeated)),
            (Some("us!r"), &[], Err(HeaderFault::Lossy)),
            (None, &[b"ada"], Ok(Some("ada"))),
            (None, &[b"us!r"], Ok(Some("us!r"))),
            (None, &[b"a", b"b"], Err(HeaderFault::Repeated)),
            (None, &[b"a", b"a"], Err(HeaderFault::Repeated)),
            (None, &[b"a,b"], Err(HeaderFault::Repeated)),
            (None, &[b"us\xe9r"], Err(HeaderFault::Lossy)),
            (Some("ada"), &[b"ada"], Ok(Some("ada"))),
            (Some("ada"), &[b"eve"], Err(HeaderFault::Contradictory)),
        ];
        for (map, lines, wanted) in cases {
            let map = map.map(joined);
            let headers = Headers { joined: map.as_ref(), lines: lines.iter().map(|l| ("x-user", *l)).collect() };
            assert_eq!(headers.single("x-user"), *wanted, "{map:?} {lines:?}");
        }
    }
}
