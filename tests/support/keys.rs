//! Keys, worked out from their published description and not by the code under test: a test can seed a counter before
//! anybody was counted, and two implementations have to agree.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::setup::SECRET;

/// Evidence as it goes into a key: kind, issuer, value.
pub type Part<'a> = (&'a str, &'a str, &'a [u8]);

/// What goes into the keys of a limit beside who asks.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    pub policy: &'a str,
    pub version: u32,
    /// Algorithm and window: `fixed_window/10000ms`.
    pub shape: &'a str,
}

/// A subject of tenant `acme`, both named by the route: who [`Check::of`](super::check::Check::of) is about.
pub fn acme(subject: &str) -> [Part<'_>; 2] {
    [("route/tenant", "", b"acme"), ("route/subject", "", subject.as_bytes())]
}

/// The key of a policy's only limit.
pub fn lone(scope: Scope<'_>, parts: &[Part<'_>]) -> String {
    let Scope { policy, version, shape } = scope;
    let version_text = version.to_string();
    let fields = [b"tallygate/1", policy.as_bytes(), version_text.as_bytes(), shape.as_bytes()];
    format!("rl:{policy}:v{version}:{}", hmac(&fields, parts))
}

/// The key of one of a policy's several limits, which all count by `shared`.
pub fn joint(scope: Scope<'_>, limit: &str, parts: &[Part<'_>], shared: &[Part<'_>]) -> String {
    let Scope { policy, version, shape } = scope;
    let version_text = version.to_string();
    let (name, number) = (policy.as_bytes(), version_text.as_bytes());
    let digest = hmac(&[b"tallygate/1", name, number, limit.as_bytes(), shape.as_bytes()], parts);
    let tag = hmac(&[b"tallygate-tag/1", name, number], shared);
    format!("rl:{policy}:v{version}:{{{}}}:{limit}:{digest}", &tag[..16])
}

/// What the keys of a policy with several limits have in common: their beginning, and so their slot in a Cluster.
pub fn tagged(policy: &str, shared: &[Part<'_>]) -> String {
    let tag = hmac(&[b"tallygate-tag/1", policy.as_bytes(), b"1"], shared);
    format!("rl:{policy}:v1:{{{}}}:", &tag[..16])
}

/// Each field is its length in 4 bytes and the bytes.
fn hmac(fields: &[&[u8]], parts: &[Part<'_>]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("HMAC takes a key of any length");
    let parts = parts.iter().flat_map(|(kind, issuer, value)| [kind.as_bytes(), issuer.as_bytes(), value]);
    for field in fields.iter().copied().chain(parts) {
        let length = u32::try_from(field.len()).expect("short fields");
        mac.update(&length.to_be_bytes());
        mac.update(field);
    }
    hex::encode(mac.finalize().into_bytes())
}

/// The key of a policy (version 1) with one fixed window, for the given identity parts.
pub fn key(policy: &str, window_ms: u64, parts: &[Part<'_>]) -> String {
    lone(Scope { policy, version: 1, shape: &format!("fixed_window/{window_ms}ms") }, parts)
}

/// The key of a subject of tenant `acme`, both named by the route, in policy `orders` with a window of 60 s: what
/// [`Check::of`](super::check::Check::of) asks about.
pub fn orders(subject: &str) -> String {
    key("orders", 60_000, &acme(subject))
}

/// The same for a policy `orders` whose limits are all per tenant and subject: the beginning of its keys.
pub fn orders_tagged(subject: &str) -> String {
    tagged("orders", &acme(subject))
}

/// The key of a subject behind the shipped Envoy configuration, whose tenant is `demo`: what
/// [`Stack::orders`](super::stack::Stack::orders) asks about.
pub fn demo(subject: &str) -> String {
    key("orders", 60_000, &[("route/tenant", "", b"demo"), ("header/x-user", "", subject.as_bytes())])
}
