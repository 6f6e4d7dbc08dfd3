//! Keys: `rl:<policy>:v<version>:<digest>`, a keyed hash of who asks. No personal data reaches the store.
//!
//! *digest* = lower-case hex of HMAC-SHA-256(secret, message). The message is a row of fields, each a 4-byte
//! big-endian length and its bytes:
//!
//! 1. `tallygate/1`, the policy's name, its version in decimal,
//! 2. the limit's name, only where the policy has several limits,
//! 3. the limit's shape: algorithm and window, not its numbers (`fixed_window/10000ms`),
//! 4. for each part that the limit counts by (tenant, subject, address, in this order): kind of evidence, issuer,
//!    value. An address is family, prefix length and masked bits.
//!
//! With several limits the key is `rl:<policy>:v<version>:{<tag>}:<limit>:<digest>`; *tag* = the first 16 hex of
//! HMAC(secret, fields `tallygate-tag/1`, policy, version, the parts that all limits share), so that all keys of one
//! call lie in one Cluster slot.
//!
//! Test vectors for other implementations (secret: 32 bytes `0x00` to `0x1f`):
//!
//! | policy, version, shape | parts | digest |
//! |---|---|---|
//! | `orders`, 1, `fixed_window/10000ms` | (`route/tenant`, ``, `acme`), (`jwt/sub`, `https://idp.example`, `ada`) | `0606809a18f948a800bb2a28498e6d9eb5279721c283492fd22995bc3ffe14b8` |
//! | `orders`, 2, the same | the same | `aa5ac994e1b43350fee064f2481234433bddcd6846d71271f122e1ac4f4f1761` |
//! | `orders`, 1, the same | none | `1442482b6c599eef6635dacf0e2252d358988d0d5b893226af6f1c331960d177` |

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::identity::Evidence;

/// The longest key that a policy may produce, in bytes.
pub const MAX_KEY_LEN: usize = 160;

/// The server-side secret. It has no `Debug` and is wiped when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

/// Why bytes are not a [`Secret`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the HMAC secret has {found} bytes and needs at least {}", Secret::MIN_LEN)]
pub struct ShortSecret {
    pub found: usize,
}

impl Secret {
    pub const MIN_LEN: usize = 32;

    /// The one reading rule, for files and environment variables alike: a single final line end (`\n` or `\r\n`) is
    /// not part of the secret, every other byte is.
    pub fn read(bytes: impl Into<Vec<u8>>) -> Result<Self, ShortSecret> {
        let mut bytes = Zeroizing::new(bytes.into());
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        }
        if bytes.len() < Self::MIN_LEN {
            return Err(ShortSecret { found: bytes.len() });
        }
        Ok(Self(bytes))
    }

    /// Eight hex digits that tell two secrets apart and reveal neither.
    pub fn fingerprint(&self) -> String {
        let digest = Framer::new(self).field(b"tallygate-fingerprint/1").finish();
        hex::encode(&digest.0[..4])
    }
}

/// Twelve hex digits of SHA-256 of a content that is no secret: the same in every process.
pub fn content_hash(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes)[..6])
}

/// An HMAC under way: fields framed by their length, so that no two rows of fields are one message.
#[derive(Clone)]
pub struct Framer(Hmac<Sha256>);

impl Framer {
    pub fn new(secret: &Secret) -> Self {
        // HMAC takes a key of any length; `Secret` holds the lower bound.
        let keyed = Hmac::<Sha256>::new_from_slice(&secret.0);
        Self(keyed.unwrap_or_else(|_| unreachable!("HMAC takes a key of any length")))
    }

    #[must_use]
    pub fn field(mut self, bytes: &[u8]) -> Self {
        // No field is near 4 GiB: values are bounded by `identity::MAX_VALUE_LEN`.
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.0.update(&length.to_be_bytes());
        self.0.update(bytes);
        self
    }

    #[must_use]
    pub fn evidence(self, evidence: &Evidence<'_>) -> Self {
        self.field(evidence.kind.as_bytes()).field(evidence.issuer.as_bytes()).field(&evidence.value)
    }

    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into_bytes().into())
    }
}

/// HMAC-SHA-256 of an identity under one limit. It reveals nobody.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// A counter's name: as text for Redis, as bytes for the embedded store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub digest: Digest,
    pub text: String,
}

/// Everything of a limit's key that does not depend on the request, computed once when the configuration is read.
#[derive(Clone)]
pub struct KeyTemplate {
    framer: Framer,
    /// `rl:orders:v1:`
    head: String,
    /// The limit's name and what the tag is made with, where the policy has several limits.
    joint: Option<(String, Framer)>,
}

impl KeyTemplate {
    /// For the only limit of a policy. `scope` is `(prefix, policy, version)`.
    pub fn lone(secret: &Secret, scope: (&str, &str, u32), shape: &str) -> Self {
        let framer = scoped(secret, "tallygate/1", scope).field(shape.as_bytes());
        Self { framer, head: head(scope), joint: None }
    }

    /// For one of several limits of a policy.
    pub fn joint(secret: &Secret, scope: (&str, &str, u32), limit: &str, shape: &str) -> Self {
        let framer = scoped(secret, "tallygate/1", scope).field(limit.as_bytes()).field(shape.as_bytes());
        let tag = scoped(secret, "tallygate-tag/1", scope);
        Self { framer, head: head(scope), joint: Some((limit.to_owned(), tag)) }
    }

    /// The key for `parts`, of which the whole policy shares `shared`.
    pub fn key<'e>(
        &self,
        parts: impl Iterator<Item = &'e Evidence<'e>>,
        shared: impl Iterator<Item = &'e Evidence<'e>>,
    ) -> Key {
        let digest = parts.fold(self.framer.clone(), Framer::evidence).finish();
        let mut text = String::with_capacity(MAX_KEY_LEN);
        text.push_str(&self.head);
        if let Some((limit, tag)) = &self.joint {
            let tag = shared.fold(tag.clone(), Framer::evidence).finish();
            text.push('{');
            push_hex(&mut text, &tag.0[..8]);
            text.push_str("}:");
            text.push_str(limit);
            text.push(':');
        }
        push_hex(&mut text, &digest.0);
        Key { digest, text }
    }

    /// The length of every key that this template makes, in bytes.
    pub fn key_len(&self) -> usize {
        let tag_and_name = self.joint.as_ref().map_or(0, |(limit, _)| 16 + 2 + 1 + limit.len() + 1);
        self.head.len() + tag_and_name + 64
    }
}

fn scoped(secret: &Secret, label: &str, (_, policy, version): (&str, &str, u32)) -> Framer {
    let version = version.to_string();
    Framer::new(secret).field(label.as_bytes()).field(policy.as_bytes()).field(version.as_bytes())
}

fn head((prefix, policy, version): (&str, &str, u32)) -> String {
    format!("{prefix}:{policy}:v{version}:")
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    let mut buffer = [0; 64];
    let digits = &mut buffer[..2 * bytes.len()];
    if hex::encode_to_slice(bytes, digits).is_ok() {
        text.extend(digits.iter().map(|&digit| char::from(digit)));
    }
}

#[cfg(test)]
mod tests;
