//! Keys, worked out from their published description and not by the code under test: a test can seed a counter before
//! anybody was counted, and two implementations have to agree.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::setup::SECRET;

/// Evidence as it goes into a key: kind, issuer, value.
pub type Part<'a> = (&'a str, &'a str, &'a [u8]);

/// The key of a policy (version 1) with one fixed window, for the given identity parts.
pub fn key(policy: &str, window_ms: u64, parts: &[Part<'_>]) -> String {
    let shape = format!("fixed_window/{window_ms}ms");
    let mut fields: Vec<&[u8]> = vec![b"tallygate/1", policy.as_bytes(), b"1", shape.as_bytes()];
    for (kind, issuer, value) in parts {
        fields.extend([kind.as_bytes(), issuer.as_bytes(), value]);
    }
    format!("rl:{policy}:v1:{}", digest(&fields))
}

/// What the keys of a policy with several limits have in common: their beginning, and so their slot in a Cluster.
pub fn tagged(policy: &str, shared: &[Part<'_>]) -> String {
    let mut fields: Vec<&[u8]> = vec![b"tallygate-tag/1", policy.as_bytes(), b"1"];
    for (kind, issuer, value) in shared {
        fields.extend([kind.as_bytes(), issuer.as_bytes(), value]);
    }
    format!("rl:{policy}:v1:{{{}}}:", &digest(&fields)[..16])
}

fn digest(fields: &[&[u8]]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("HMAC takes a key of any length");
    for field in fields {
        let length = u32::try_from(field.len()).expect("short fields");
        mac.update(&length.to_be_bytes());
        mac.update(field);
    }
    hex::encode(mac.finalize().into_bytes())
}

/// The key of a subject of tenant `acme`, both named by the route, in policy `orders` with a window of 60 s: what
/// [`Check::of`](super::check::Check::of) asks about.
pub fn orders(subject: &str) -> String {
    key("orders", 60_000, &of_acme(subject))
}

/// The same for a policy `orders` whose limits are all per tenant and subject: the beginning of its keys.
pub fn orders_tagged(subject: &str) -> String {
    tagged("orders", &of_acme(subject))
}

fn of_acme(subject: &str) -> [Part<'_>; 2] {
    [("route/tenant", "", b"acme"), ("route/subject", "", subject.as_bytes())]
}

/// The key of a subject behind the shipped Envoy configuration, whose tenant is `demo`: what
/// [`Stack::orders`](super::stack::Stack::orders) asks about.
pub fn demo(subject: &str) -> String {
    key("orders", 60_000, &[("route/tenant", "", b"demo"), ("header/x-user", "", subject.as_bytes())])
}
