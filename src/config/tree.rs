//! YAML as it was typed: a tree in which every value knows its place in the file.
//!
//! The library converts straight into structs too, but stops at the first mistake. Whoever edits the file should hear
//! of all of them at once, so it is parsed into this tree first and read by `reader`, which collects.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::Spanned;
use serde_yaml::options::{MergeKeyPolicy, NonFiniteFloatPolicy};

/// Where a value stands, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: u64,
    pub column: u64,
}

#[derive(Debug)]
pub struct Node {
    pub at: Place,
    pub value: Value,
}

#[derive(Debug)]
pub enum Value {
    Null,
    Bool(bool),
    /// As typed: `0x10` and `010` look like numbers to YAML, and what they mean is not for us to guess.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Debug)]
pub struct Key {
    pub at: Place,
    pub text: String,
}

/// A file that is not one YAML document within bounds.
#[derive(Debug)]
pub struct SyntaxError {
    pub at: Option<Place>,
    pub text: String,
}

/// Parses one document. Duplicate keys, merge keys, several documents and trees beyond the budget are errors.
pub fn parse(source: &str) -> Result<Node, SyntaxError> {
    let options = serde_yaml::options! {
        strict_booleans: true,
        with_snippet: false, // a snippet would print whatever stands there, secrets included
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough, // refused later, with the key's path
        budget: serde_yaml::budget! { max_depth: 32, max_nodes: 100_000, max_aliases: 64 },
    };
    let parsed = serde_yaml::from_str_with_options::<Spanned<Raw>>(source, options);
    parsed.map(|raw| node(raw, source)).map_err(|error| {
        let at = error.location().map(|l| Place { line: l.line(), column: l.column() });
        SyntaxError { at, text: without_location(&error.to_string()) }
    })
}

/// The library ends its messages with the place, which ours begin with.
fn without_location(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    line.split(" at line ").next().unwrap_or(line).to_owned()
}

enum Raw {
    Null,
    Bool(bool),
    Number,
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

fn place<T>(spanned: &Spanned<T>) -> Place {
    Place { line: spanned.referenced.line(), column: spanned.referenced.column() }
}

fn node(raw: Spanned<Raw>, source: &str) -> Node {
    let at = place(&raw);
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Bool(value) => Value::Bool(value),
        Raw::Number => Value::Number(typed(raw.defined.span(), source)),
        Raw::Text(text) => Value::Text(text),
        Raw::List(items) => Value::List(items.into_iter().map(|item| node(item, source)).collect()),
        Raw::Map(entries) => {
            let entry = |(key, value): (Spanned<String>, _)| {
                let at = place(&key);
                (Key { at, text: key.value }, node(value, source))
            };
            Value::Map(entries.into_iter().map(entry).collect())
        }
    };
    Node { at, value }
}

/// The text of a number, from the source. Where the library kept no bytes, a text that no number looks like.
fn typed(span: serde_yaml::Span, source: &str) -> String {
    let start = span.byte_offset().and_then(|start| usize::try_from(start).ok());
    let len = span.byte_len().and_then(|len| usize::try_from(len).ok());
    let range = start.zip(len).and_then(|(start, len)| source.get(start..start.checked_add(len)?));
    range.unwrap_or("?").trim().to_owned()
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Raw::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(source: &str) -> String {
        match parse(source) {
            Ok(Node { value: Value::Map(entries), .. }) => format!("{:?}", entries[0].1.value),
            Ok(other) => format!("{:?}", other.value),
            Err(error) => format!("{:?}: {}", error.at.map(|at| (at.line, at.column)), error.text),
        }
    }

    // RL-32: what looks like a number is kept as typed, so that nothing is silently read as another one.
    #[test]
    fn scalars_are_kept_as_typed() {
        for number in ["100", "010", "0x10", "1_000", "1e3", "1.0", "-1", "18446744073709551616", "1.10"] {
            let value = only(&format!("a: {number}"));
            assert!(
                value == format!("Number({number:?})") || value == format!("Text({number:?})"),
                "{number}: {value}"
            );
        }
        assert_eq!(only("a: \"100\""), "Text(\"100\")");
        assert_eq!(only("a: no"), "Text(\"no\")");
        assert_eq!(only("a: on"), "Text(\"on\")");
        assert_eq!(only("a: true"), "Bool(true)");
        assert_eq!(only("a: ~"), "Null");
        assert_eq!(only("a:"), "Null");
        assert_eq!(only("a: 10s"), "Text(\"10s\")");
    }

    // RL-31: what passes silently elsewhere is an error with its place.
    #[test]
    fn mistakes_that_yaml_lets_pass_are_errors() {
        for source in
            ["a: 1\na: 2\n", "a: {b: 1, b: 2}", "a: 1\n---\nb: 2\n", "a:\n\tb: 1\n", "x: &x {b: 1}\na: {<<: *x}"]
        {
            assert!(parse(source).is_err(), "{source:?}");
        }
        let error = parse("a: 1\na: 2\n").unwrap_err();
        assert_eq!(error.at.map(|at| at.line), Some(2), "{}", error.text);
    }

    #[test]
    fn an_alias_bomb_is_refused_at_once() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..50 {
            bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "));
        }
        assert!(parse(&bomb).is_err());
    }

    #[test]
    fn every_value_knows_its_place() {
        let Ok(Node { value: Value::Map(entries), .. }) = parse("a: 1\nb:\n  c: 2\n") else { panic!("a map") };
        assert_eq!(entries[1].0.at, Place { line: 2, column: 1 });
        let Value::Map(inner) = &entries[1].1.value else { panic!("a map") };
        assert_eq!(inner[0].1.at, Place { line: 3, column: 6 });
    }
}
