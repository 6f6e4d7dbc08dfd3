//! What the schema calls a default is what the reader takes.

use serde_json::{Value, json};

use super::{references, resolve, schema};
use crate::config::explain;
use crate::config::tests::load;

/// Writes every default that the schema names into the sections that `value` has. Returns how many.
fn write_defaults(root: &Value, node: &Value, value: &mut Value) -> usize {
    let node = resolve(root, node);
    let mut written = 0;
    if let Some(items) = value.as_array_mut() {
        written += items.iter_mut().map(|item| write_defaults(root, &node["items"], item)).sum::<usize>();
    }
    let has_one_of = |value: &Value, choice: &Value| {
        let keys = resolve(root, choice)["properties"].as_object();
        keys.is_some_and(|keys| keys.keys().any(|key| value.get(key).is_some()))
    };
    for choice in node["oneOf"].as_array().into_iter().flatten() {
        if has_one_of(value, choice) {
            written += write_defaults(root, choice, value);
        }
    }
    for (key, inner) in node["properties"].as_object().into_iter().flatten() {
        let Some(map) = value.as_object_mut() else { continue };
        let default = references(root, inner).find_map(|node| node.get("default"));
        if let Some(below) = map.get_mut(key) {
            written += write_defaults(root, inner, below);
        } else if let Some(default) = default {
            map.insert(key.clone(), default.clone());
            written += 1;
        }
    }
    written
}

#[test]
fn what_the_schema_calls_a_default_is_the_default() {
    let window = json!({ "limit": 3, "window": "10s" });
    let plain = json!({
        "server": { "listen": "unix:/a" },
        "admin": {},
        "hmac": { "secret_file": "SECRET" },
        "store": { "redis": { "url": "redis://h:1" } },
        "identity": { "tenant": [{ "jwt": { "claim": "tid" } }], "address": {} },
        "policies": [
            {
                "name": "a", "version": 1, "match": { "route": { "a": "b" } },
                "limits": [{ "name": "a", "per": ["tenant"], "fixed_window": window }],
                "on_failure": { "open": { "fixed_window": window } },
            },
            {
                "name": "b", "version": 1, "cost": { "route": "a" },
                "limits": [{ "name": "a", "per": ["tenant"], "fixed_window": window }],
                "on_failure": "closed",
            },
        ],
        "answers": {},
        "guard_rails": {},
    });
    let mut full = plain.clone();
    let root = schema();
    let written = write_defaults(&root, &root, &mut full);
    assert!(written > 25, "{written} defaults are too few: the search is broken");
    let [plain, full] = [plain, full].map(|value| load(&value.to_string()).unwrap());
    assert_eq!(full.fixed, plain.fixed);
    assert_eq!(full.authz, plain.authz);
    assert_eq!(full.rules.identity, plain.rules.identity);
    assert_eq!(explain::page(&full.rules), explain::page(&plain.rules));
}
