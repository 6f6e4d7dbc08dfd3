mod agreement;
mod defaults;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::SCHEMA;
use crate::config::Config;
use crate::config::reader::recorder::{self, Asked};

fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("the schema is JSON")
}

/// `node`, what it refers to, what that refers to, and so on.
fn references<'s>(root: &'s Value, node: &'s Value) -> impl Iterator<Item = &'s Value> {
    std::iter::successors(Some(node), |node| {
        let pointer = node["$ref"].as_str()?.trim_start_matches('#');
        Some(root.pointer(pointer).unwrap_or_else(|| panic!("{pointer} leads nowhere")))
    })
}

/// Where the references of `node` end: ours have no properties on the way.
fn resolve<'s>(root: &'s Value, node: &'s Value) -> &'s Value {
    references(root, node).last().unwrap_or(node)
}

/// Collects the properties of `node` and below, by the paths of the reader.
fn properties(root: &Value, node: &Value, path: &str, known: &mut Asked) {
    let node = resolve(root, node);
    for (key, inner) in node["properties"].as_object().into_iter().flatten() {
        known.insert((path.to_owned(), key.clone()));
        let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        properties(root, inner, &below, known);
    }
    if node["items"].is_object() {
        properties(root, &node["items"], &format!("{path}[]"), known);
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        for inner in node[choice].as_array().into_iter().flatten() {
            properties(root, inner, path, known);
        }
    }
}

/// What the reader asks for while it reads the manual and `tests/config/whole`.
fn asked() -> Asked {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("examples/tallygate.yaml")];
    files.extend(fs::read_dir(root.join("tests/config/whole")).unwrap().map(|entry| entry.unwrap().path()));
    recorder::take();
    for file in files {
        // Their secrets are not here; the rest is read all the same.
        let _ = Config::load(&file, None);
    }
    recorder::take()
}

#[test]
fn the_schema_and_the_reader_know_the_same_keys() {
    let (root, mut known) = (schema(), BTreeSet::new());
    properties(&root, &root, "", &mut known);
    let asked = asked();
    let list = |keys: &BTreeSet<(String, String)>| {
        keys.iter().map(|(path, key)| format!("  {path}: {key}")).collect::<Vec<_>>().join("\n")
    };
    let unknown: BTreeSet<_> = asked.difference(&known).cloned().collect();
    assert!(unknown.is_empty(), "the reader asks for these, add them to src/config/schema.json:\n{}", list(&unknown));
    let unread: BTreeSet<_> = known.difference(&asked).cloned().collect();
    assert!(
        unread.is_empty(),
        "the schema has these, and the reader never asked for them: remove them from src/config/schema.json, or add a file \
         that has their section to tests/config/whole:\n{}",
        list(&unread)
    );
    assert!(known.len() > 150, "{} keys are too few: the search is broken", known.len());
}

/// Objects of the schema that have properties and let others pass.
fn lax(node: &Value, path: &str, found: &mut Vec<String>) {
    if node["properties"].is_object() && node["additionalProperties"] != false {
        found.push(path.to_owned());
    }
    let inner: Vec<(String, &Value)> = match node {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(list) => list.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (key, value) in inner {
        lax(value, &format!("{path}/{key}"), found);
    }
}

#[test]
fn the_schema_is_as_strict_about_keys_as_the_reader() {
    let mut found = Vec::new();
    lax(&schema(), "", &mut found);
    // A section may have a setting that is called properties; none has.
    assert_eq!(found, Vec::<String>::new(), "additionalProperties: false is missing");
}

/// Settings that an editor shows: each says what it is.
#[test]
fn every_setting_has_a_title() {
    fn walk(root: &Value, node: &Value, path: &str) {
        for (key, inner) in node["properties"].as_object().into_iter().flatten() {
            let has_title = references(root, inner).any(|node| node["title"].is_string());
            assert!(has_title, "{path}.{key} has no title");
        }
        match node {
            Value::Object(map) => map.iter().for_each(|(key, inner)| walk(root, inner, &format!("{path}/{key}"))),
            Value::Array(list) => list.iter().for_each(|inner| walk(root, inner, path)),
            _ => {}
        }
    }
    let root = schema();
    walk(&root, &root, "");
}
