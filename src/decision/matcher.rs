//! Which requests a policy is for: all of its conditions must hold.

mod covers;

use std::borrow::Cow;
use std::cell::OnceCell;

use super::attributes::Attributes;
use super::path::{self, Ambiguous};

/// A policy's conditions; one that is not stated always holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matcher {
    pub path: Option<PathPattern>,
    /// Methods, compared as sent: they are case-sensitive.
    pub methods: Vec<String>,
    pub host: Option<HostPattern>,
    /// Keys and values of the route's `context_extensions`.
    pub route: Vec<(String, String)>,
}

/// A pattern over the normalised path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    Exact(String),
    /// Ends at a segment's edge: `/orders` holds for `/orders` and `/orders/7`, not for `/orders2`.
    Prefix(String),
    /// Segments, of which `None` stands for any one that is not empty: `/users/{id}/orders`.
    Template(Vec<Option<String>>),
}

/// Why a text is not a path pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    #[error("a path starts with '/'")]
    Relative,
    #[error("a path is written in its normal form, as requests are compared: write {0:?}")]
    NotNormal(String),
    #[error("a path holds no '?' or '#', no encoded '/' and no '\\': such a request can never match")]
    Unmatchable,
    #[error("a template's segment is a literal or '{{name}}' as a whole")]
    Segment,
    #[error("a host is a lower-case name without scheme, port or path, perhaps with a leading '*.'")]
    Host,
}

impl PathPattern {
    pub fn exact(text: &str) -> Result<Self, BadPattern> {
        normal(text).map(Self::Exact)
    }

    pub fn prefix(text: &str) -> Result<Self, BadPattern> {
        // `/orders/` as a prefix means the same requests as `/orders`, and the shorter form meets the bare path too.
        let text = normal(text)?;
        Ok(Self::Prefix(text.strip_suffix('/').unwrap_or(&text).to_owned()))
    }

    pub fn template(text: &str) -> Result<Self, BadPattern> {
        let text = normal(text)?;
        let segments = text.split('/').skip(1).map(|segment| {
            match segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                Some(name) if !name.is_empty() && !name.contains(['{', '}']) => Ok(None),
                None if !segment.contains(['{', '}']) => Ok(Some(segment.to_owned())),
                _ => Err(BadPattern::Segment),
            }
        });
        segments.collect::<Result<_, _>>().map(Self::Template)
    }

    fn holds(&self, path: &str) -> bool {
        match self {
            Self::Exact(wanted) => path == wanted,
            Self::Prefix(wanted) => {
                path.strip_prefix(&**wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Self::Template(segments) => {
                let mut found = path.split('/').skip(1);
                let each = segments.iter().all(|wanted| match (wanted, found.next()) {
                    (Some(literal), Some(segment)) => literal == segment,
                    (None, Some(segment)) => !segment.is_empty(),
                    (_, None) => false,
                });
                each && found.next().is_none()
            }
        }
    }
}

fn normal(text: &str) -> Result<String, BadPattern> {
    if !text.starts_with('/') {
        return Err(BadPattern::Relative);
    }
    if text.contains(['?', '#']) {
        return Err(BadPattern::Unmatchable);
    }
    match path::normalise(text) {
        Ok(normal) if normal == text => Ok(normal.into_owned()),
        Ok(normal) => Err(BadPattern::NotNormal(normal.into_owned())),
        Err(Ambiguous) => Err(BadPattern::Unmatchable),
    }
}

/// A host, or every name below one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    Exact(String),
    /// `*.example.com`: one or more labels before the dot; held as `.example.com`.
    Below(String),
}

impl HostPattern {
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let (name, below) = text.strip_prefix("*.").map_or((text, false), |rest| (rest, true));
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-_[]:".contains(&b);
        let port_free = name.starts_with('[') || !name.contains(':');
        // A request's host is compared without the root's dot.
        if name.is_empty() || name.ends_with('.') || name.len() > 253 || !name.bytes().all(allowed) || !port_free {
            return Err(BadPattern::Host);
        }
        Ok(if below { Self::Below(format!(".{name}")) } else { Self::Exact(name.to_owned()) })
    }

    fn holds(&self, host: &str) -> bool {
        let host = without_port(host).trim_end_matches('.').to_ascii_lowercase();
        match self {
            Self::Exact(name) => host == *name,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
        }
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|b| b.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

/// One request while policies are tried in turn: its path is normalised at most once, and only if some policy asks.
pub struct Candidate<'a> {
    request: &'a Attributes<'a>,
    path: OnceCell<Result<Cow<'a, str>, Ambiguous>>,
}

impl<'a> Candidate<'a> {
    pub fn new(request: &'a Attributes<'a>) -> Self {
        Self { request, path: OnceCell::new() }
    }
}

/// The condition that a request does not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    Method,
    Route,
    Host,
    Path,
}

impl Mismatch {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Method => "its method is not listed",
            Self::Route => "the route's values differ",
            Self::Host => "its host is another",
            Self::Path => "its path is another",
        }
    }
}

impl Matcher {
    /// `Ok(None)` if the policy is for this request. The path is asked last: a request that other conditions rule out
    /// need not have a clear one.
    pub fn mismatch(&self, candidate: &Candidate<'_>) -> Result<Option<Mismatch>, Ambiguous> {
        let request = candidate.request;
        if !(self.methods.is_empty() || self.methods.iter().any(|method| method == request.method)) {
            return Ok(Some(Mismatch::Method));
        }
        if !self.route.iter().all(|(key, value)| request.route.get(key) == Some(value)) {
            return Ok(Some(Mismatch::Route));
        }
        if !self.host.as_ref().is_none_or(|host| host.holds(request.host)) {
            return Ok(Some(Mismatch::Host));
        }
        let Some(pattern) = &self.path else { return Ok(None) };
        let path = candidate.path.get_or_init(|| path::normalise(request.path)).as_ref().map_err(|_| Ambiguous)?;
        Ok((!pattern.holds(path)).then_some(Mismatch::Path))
    }

    pub fn holds(&self, candidate: &Candidate<'_>) -> Result<bool, Ambiguous> {
        self.mismatch(candidate).map(|mismatch| mismatch.is_none())
    }
}

#[cfg(test)]
mod tests;
