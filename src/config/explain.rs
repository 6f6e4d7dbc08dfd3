//! The policies as a person reads them: order, match, limits in words, what failures become.

use std::fmt::Write as _;
use std::time::Duration;

use super::duration::shown;
use crate::decision::algorithm::Algorithm;
use crate::decision::identity::IdentitySources;
use crate::decision::limit::{Limit, Mode};
use crate::decision::matcher::{HostPattern, Matcher, PathPattern};
use crate::decision::policy::{Answer, Cost, DenyStatus, LocalLimit, OnFailure, OnUnidentified, Policy, Rules};

/// A page of text.
pub fn page(rules: &Rules) -> String {
    let mut page = String::new();
    for (place, policy) in rules.policies.iter().enumerate() {
        // Writing into a String cannot fail.
        let _infallible =
            writeln!(page, "{}. {} v{}{}", place + 1, policy.name, policy.version.get(), mode(policy.mode));
        for (title, text) in rows(policy, &rules.identity) {
            let _infallible = writeln!(page, "   {title:10} {text}");
        }
    }
    let _infallible = writeln!(page, "A request that no policy matches is {}.", answered(rules.unmatched));
    let ambiguous = match rules.ambiguous_path {
        Answer::Deny => "is denied (403)",
        Answer::Allow => "matches no policy that has a path",
    };
    let _infallible = writeln!(page, "A path that servers read differently {ambiguous}.");
    page
}

fn rows(policy: &Policy, identity: &IdentitySources) -> Vec<(&'static str, String)> {
    let mut rows = vec![("match", matched(&policy.matcher, identity))];
    for (place, limit) in policy.limits.iter().enumerate() {
        let title = if place == 0 { "limits" } else { "" };
        rows.push((title, format!("{}{}: {}", limit.name, mode(limit.mode), limit_in_words(limit, &limit.algorithm))));
    }
    match &policy.cost {
        Cost::Fixed(1) => {}
        Cost::Fixed(cost) => rows.push(("cost", format!("{cost} units a request"))),
        Cost::Route { key, default, max } => {
            rows.push(("cost", format!("the route's {key}, 1 to {max}; {default} where it has none")));
        }
    }
    match policy.overrides.len() {
        0 => {}
        count => rows.push(("overrides", format!("{count}"))),
    }
    let unidentified = match &policy.on_unidentified {
        OnUnidentified::Deny(DenyStatus::Unauthorized) => "denied (401)".to_owned(),
        OnUnidentified::Deny(DenyStatus::Forbidden) => "denied (403)".to_owned(),
        OnUnidentified::Allow => "allowed, uncounted".to_owned(),
        OnUnidentified::ByAddress(limit) => limit_in_words(limit, &limit.algorithm),
    };
    rows.push(("strangers", unidentified));
    let failure = match &policy.on_failure {
        OnFailure::Closed => "closed: 503".to_owned(),
        OnFailure::Envoy => "as Envoy's failure_mode_allow says, else 503".to_owned(),
        OnFailure::Open(LocalLimit::Unlimited) => "open: everything passes".to_owned(),
        OnFailure::Open(LocalLimit::Limited(limit)) => {
            format!("open: {} in each sidecar", limit_in_words(limit, &limit.algorithm))
        }
    };
    rows.push(("failure", failure));
    rows
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "",
        Mode::Shadow => " (shadow: counts, never refuses)",
        Mode::Off => " (off: counts nothing)",
    }
}

fn answered(answer: Answer) -> &'static str {
    match answer {
        Answer::Allow => "allowed",
        Answer::Deny => "denied (403)",
    }
}

fn matched(matcher: &Matcher, identity: &IdentitySources) -> String {
    let mut parts = Vec::new();
    match &matcher.path {
        None => {}
        Some(PathPattern::Exact(path)) => parts.push(format!("path {path}")),
        Some(PathPattern::Prefix(path)) => parts.push(match path.as_str() {
            "" => "every path".to_owned(),
            path => format!("path {path} and below"),
        }),
        Some(PathPattern::Template(segments)) => {
            let segments = segments.iter().map(|segment| segment.as_deref().unwrap_or("{}"));
            parts.push(format!("path /{}", segments.collect::<Vec<_>>().join("/")));
        }
    }
    if !matcher.methods.is_empty() {
        parts.push(matcher.methods.join(" or "));
    }
    match &matcher.host {
        None => {}
        Some(HostPattern::Exact(name)) => parts.push(format!("host {name}")),
        Some(HostPattern::Below(suffix)) => parts.push(format!("hosts *{suffix}")),
    }
    parts.extend(matcher.route.iter().map(|(key, value)| {
        // A value that names somebody is not shown: this page is open to whoever reaches the admin port.
        let names_somebody = identity.tenant.iter().chain(&identity.subject).any(|source| source.is_route(key));
        format!("route {key}={}", if names_somebody { "(not shown)" } else { value })
    }));
    if parts.is_empty() { "every request".to_owned() } else { parts.join(", ") }
}

/// `3 every 10s per tenant and subject (fixed window; up to 6 around a window's edge)`
pub fn limit_in_words(limit: &Limit, algorithm: &Algorithm) -> String {
    let span = |ms: u64| shown(Duration::from_millis(ms));
    let (amount, how) = match algorithm {
        Algorithm::FixedWindow(rule) => {
            let edge = 2 * rule.limit();
            (rule.limit(), format!("fixed window of {}; up to {edge} around a window's edge", span(rule.window_ms())))
        }
        Algorithm::SlidingWindow(rule) => {
            (rule.limit(), format!("sliding window of {}; somewhat more in an arbitrary one", span(rule.window_ms())))
        }
        Algorithm::SlidingLog(rule) => (rule.limit(), format!("sliding log; exact in any {}", span(rule.window_ms()))),
        Algorithm::TokenBucket(rule) => (rule.rate(), format!("token bucket; up to {} at once", rule.burst())),
    };
    let every = match algorithm {
        Algorithm::TokenBucket(rule) => span(rule.per_ms()),
        other => span(other.window_ms().unwrap_or_default()),
    };
    let per: Vec<_> = limit.per.iter().map(|part| part.as_str()).collect();
    let per = if per.is_empty() { "for all together".to_owned() } else { format!("per {}", per.join(" and ")) };
    format!("{amount} every {every} {per} ({how})")
}
