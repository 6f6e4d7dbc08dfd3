use std::borrow::Cow;
use std::collections::HashSet;

use super::*;

fn secret() -> Secret {
    Secret::read((0..32).collect::<Vec<u8>>()).unwrap()
}

fn evidence<'a>(kind: &'a str, issuer: &'a str, value: &'a str) -> Evidence<'a> {
    Evidence { kind, issuer, value: Cow::Borrowed(value.as_bytes()) }
}

fn lone(scope: (&str, &str, u32), shape: &str, parts: &[Evidence<'_>]) -> String {
    KeyTemplate::lone(&secret(), scope, shape).key(parts.iter(), parts.iter()).text
}

const SHAPE: &str = "fixed_window/10000ms";

// The table in this module's page: whoever writes another implementation checks it against these.
#[test]
fn the_published_test_vectors_hold() {
    let parts = [evidence("route/tenant", "", "acme"), evidence("jwt/sub", "https://idp.example", "ada")];
    let page = include_str!("../key.rs");
    for (version, parts) in [(1, &parts[..]), (2, &parts[..]), (1, &[][..])] {
        let key = lone(("rl", "orders", version), SHAPE, parts);
        let digest = key.strip_prefix(&format!("rl:orders:v{version}:")).unwrap();
        assert!(page.contains(digest), "not in the table: {digest}");
    }
}

// Worked out by hand from the page's description, without this module's framing.
#[test]
fn the_message_is_length_framed_fields() {
    let mut message = Vec::new();
    for field in ["tallygate/1", "orders", "1", SHAPE, "route/tenant", "", "acme"] {
        message.extend(u32::try_from(field.len()).unwrap().to_be_bytes());
        message.extend(field.as_bytes());
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(&(0..32).collect::<Vec<u8>>()).unwrap();
    mac.update(&message);
    let digest = hex::encode(mac.finalize().into_bytes());
    let key = lone(("rl", "orders", 1), SHAPE, &[evidence("route/tenant", "", "acme")]);
    assert_eq!(key, format!("rl:orders:v1:{digest}"));
}

// RL-18: no two identities, policies or versions can be cut into one message.
#[test]
fn fields_cannot_be_cut_in_two_ways() {
    let pairs =
        [("a", "bc"), ("ab", "c"), ("a:b", "c"), ("a", "b:c"), ("a\0b", "c"), ("a", "b\0c"), ("1", "23"), ("12", "3")];
    let mut seen = HashSet::new();
    for (tenant, subject) in pairs {
        for kind in ["jwt/sub", "mtls"] {
            for issuer in ["", "i"] {
                let parts = [evidence("route/t", "", tenant), evidence(kind, issuer, subject)];
                for scope in [("rl", "x", 1), ("rl", "x", 2), ("rl", "a1", 1), ("rl", "a", 11)] {
                    for shape in [SHAPE, "fixed_window/60000ms"] {
                        let key = lone(scope, shape, &parts);
                        assert!(seen.insert(key[key.len() - 64..].to_owned()), "{tenant:?} {subject:?} {kind}");
                    }
                }
            }
        }
    }
    assert_eq!(seen.len(), 8 * 2 * 2 * 4 * 2);
}

#[test]
fn keys_of_one_policy_share_a_slot_tag_and_name_their_limit() {
    let scope = ("rl", "orders", 1);
    let [tenant, subject] = [evidence("route/t", "", "acme"), evidence("jwt/sub", "", "ada")];
    let narrow = KeyTemplate::joint(&secret(), scope, "per-subject", SHAPE);
    let broad = KeyTemplate::joint(&secret(), scope, "per-tenant", SHAPE);
    let a = narrow.key([&tenant, &subject].into_iter(), std::iter::once(&tenant)).text;
    let b = broad.key(std::iter::once(&tenant), std::iter::once(&tenant)).text;
    assert_eq!(a[..a.find('}').unwrap()], b[..b.find('}').unwrap()]);
    assert!(a.starts_with("rl:orders:v1:{") && a.contains("}:per-subject:"), "{a}");
    assert_eq!((a.len(), b.len()), (narrow.key_len(), broad.key_len()));
    assert_ne!(a[a.len() - 64..], b[b.len() - 64..]);
}

#[test]
fn a_keys_length_is_known_beforehand() {
    let template = KeyTemplate::lone(&secret(), ("rl", "orders", 12), SHAPE);
    assert_eq!(template.key(std::iter::empty(), std::iter::empty()).text.len(), template.key_len());
}

// RL-19: one reading rule.
#[test]
fn one_final_line_end_is_not_part_of_the_secret_and_every_other_byte_is() {
    let text = "0123456789abcdef0123456789abcdef";
    let plain = Secret::read(text).unwrap().fingerprint();
    assert_eq!(Secret::read(format!("{text}\n")).unwrap().fingerprint(), plain);
    assert_eq!(Secret::read(format!("{text}\r\n")).unwrap().fingerprint(), plain);
    for other in [format!("{text}\n\n"), format!(" {text}"), format!("{text} "), format!("{text}\r")] {
        assert_ne!(Secret::read(other).unwrap().fingerprint(), plain);
    }
    for (short, found) in [("", 0), ("\n", 0), ("12345678", 8), ("0123456789abcdef0123456789abcde\n", 31)] {
        assert_eq!(Secret::read(short).map(|_| ()), Err(ShortSecret { found }));
    }
}

#[test]
fn a_fingerprint_is_eight_digits_of_a_keyed_hash() {
    let fingerprint = secret().fingerprint();
    assert!(fingerprint.len() == 8 && fingerprint.bytes().all(|b| b.is_ascii_hexdigit()), "{fingerprint}");
}

/// All that goes into a key: policy, version, the limit's name where there are several, shape, and kind, issuer and value of
/// each part.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    policy: String,
    version: u32,
    limit: Option<String>,
    shape: String,
    parts: Vec<[String; 3]>,
}

impl Named {
    fn key(&self) -> Key {
        let (secret, scope) = (secret(), ("rl", &*self.policy, self.version));
        let template = match &self.limit {
            None => KeyTemplate::lone(&secret, scope, &self.shape),
            Some(limit) => KeyTemplate::joint(&secret, scope, limit, &self.shape),
        };
        let parts: Vec<_> = self.parts.iter().map(|[kind, issuer, value]| evidence(kind, issuer, value)).collect();
        template.key(parts.iter(), parts.iter())
    }

    /// Every text in order: what joining without lengths would hash.
    fn fields(&mut self) -> Vec<&mut String> {
        let parts = self.parts.iter_mut().flatten();
        std::iter::once(&mut self.policy).chain(&mut self.limit).chain([&mut self.shape]).chain(parts).collect()
    }

    /// The same characters, cut elsewhere: `by` of them move from one field to the next.
    fn cut_elsewhere(&self, place: usize, by: usize) -> Self {
        let mut other = self.clone();
        let mut fields = other.fields();
        let place = place % (fields.len() - 1);
        let kept = fields[place].chars().count().saturating_sub(by);
        let moved: String = fields[place].chars().skip(kept).collect();
        *fields[place] = fields[place].chars().take(kept).collect();
        fields[place + 1].insert_str(0, &moved);
        other
    }
}

mod properties {
    use proptest::prelude::*;

    use super::Named;

    /// Short texts over few characters, separators and NUL among them, so that equal ones and near misses are frequent.
    fn named() -> impl Strategy<Value = Named> {
        let text = || "[a1:|/\0]{0,3}";
        let part = [text(), text(), text()];
        (text(), 1_u32..3, proptest::option::of(text()), text(), proptest::collection::vec(part, 1..3))
            .prop_map(|(policy, version, limit, shape, parts)| Named { policy, version, limit, shape, parts })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100_000))]

        // RL-18
        #[test]
        fn different_names_never_share_a_key_and_equal_ones_always_do(
            one in named(), other in named(), place in 0_usize..12, by in 0_usize..3, way in 0_u8..4,
        ) {
            let other = match way {
                0 => other,
                // Parts that look alike, under the same limit.
                1 => Named { parts: other.parts, ..one.clone() },
                2 => Named { version: other.version, limit: other.limit, ..one.clone() },
                _ => one.cut_elsewhere(place, by),
            };
            let (key, other_key) = (one.key(), other.key());
            // Redis knows the text, the embedded store the digest alone.
            prop_assert_eq!(key.text == other_key.text, one == other);
            prop_assert_eq!(key.digest == other_key.digest, one == other);
        }
    }
}
