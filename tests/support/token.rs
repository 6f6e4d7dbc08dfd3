//! Tokens as an identity provider signs them (RFC 7515, HS256), and the keys to verify them with (RFC 7517).

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

/// The identity provider of the shipped manifests.
pub const ISSUER: &str = "https://idp.example";
const KEY: &[u8] = b"the key of the identity provider";

/// A token of that provider, with these claims.
pub fn token(claims: &Value) -> String {
    signed(KEY, &issued(claims))
}

/// The same, signed by somebody else.
pub fn forged(claims: &Value) -> String {
    signed(b"some other key", &issued(claims))
}

/// What that provider's tokens are checked with.
pub fn key_set() -> String {
    jwks(KEY)
}

fn issued(claims: &Value) -> String {
    let mut claims = claims.clone();
    claims["iss"] = json!(ISSUER);
    claims.to_string()
}

/// A token with these claims, a JSON object.
pub fn signed(key: &[u8], claims: &str) -> String {
    let unsigned = format!("{}.{}", base64url(br#"{"alg":"HS256","typ":"JWT"}"#), base64url(claims.as_bytes()));
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(unsigned.as_bytes());
    format!("{unsigned}.{}", base64url(&mac.finalize().into_bytes()))
}

/// The same claims with nothing to vouch for them.
pub fn unsigned(claims: &str) -> String {
    format!("{}.{}.", base64url(br#"{"alg":"none","typ":"JWT"}"#), base64url(claims.as_bytes()))
}

/// The key set of a provider with this one key.
pub fn jwks(key: &[u8]) -> String {
    format!(r#"{{"keys":[{{"kty":"oct","alg":"HS256","k":"{}"}}]}}"#, base64url(key))
}

fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let word = chunk.iter().chain([&0; 2]).take(3).fold(0, |word, byte| word << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(ALPHABET[word >> shift & 63])).into_iter().take(chunk.len() + 1)
    });
    digits.collect()
}
