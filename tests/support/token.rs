//! Tokens as an identity provider signs them (RFC 7515, HS256), and its key as a set (RFC 7517).

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

/// The identity provider of the shipped configurations.
pub const ISSUER: &str = "https://idp.example";
const KEY: &[u8] = b"the key of the identity provider";

/// A token with these claims, and the issuer.
pub fn token(claims: &Value) -> String {
    signed(KEY, claims)
}

/// The same, signed by somebody else.
pub fn forged(claims: &Value) -> String {
    signed(b"some other key", claims)
}

/// What jwt_authn checks tokens with.
pub fn key_set() -> String {
    json!({ "keys": [{ "kty": "oct", "alg": "HS256", "k": base64url(KEY) }] }).to_string()
}

fn signed(key: &[u8], claims: &Value) -> String {
    let mut claims = claims.clone();
    claims["iss"] = json!(ISSUER);
    let signed =
        format!("{}.{}", base64url(br#"{"alg":"HS256","typ":"JWT"}"#), base64url(claims.to_string().as_bytes()));
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(signed.as_bytes());
    format!("{signed}.{}", base64url(&mac.finalize().into_bytes()))
}

fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let word = chunk.iter().chain([&0; 2]).take(3).fold(0, |word, byte| word << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(ALPHABET[word >> shift & 63])).into_iter().take(chunk.len() + 1)
    });
    digits.collect()
}
