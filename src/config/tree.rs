//! YAML as it was typed: a tree in which every value knows its place in the file.
//!
//! The library converts straight into structs too, but stops at the first mistake. Whoever edits the file should hear
//! of all of them at once, so it is parsed into this tree first and read by `reader`, which collects.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::Spanned;
use serde_yaml::options::{MergeKeyPolicy, NonFiniteFloatPolicy};

use super::syntax;

/// As deep as a configuration is nested, twice over.
pub const MAX_DEPTH: usize = 32;
/// Room for the most overrides that a policy may have, and for several such policies.
pub const MAX_NODES: usize = 250_000;
pub const MAX_ALIASES: usize = 64;
/// What aliases may unfold to, so that a few lines cannot become a large tree.
const MAX_UNFOLDED: usize = 10_000;

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

/// Parses one document. Duplicate keys, merge keys, several documents and trees beyond the budget are errors. A byte-order
/// mark at the very start, as some editors write, is skipped; elsewhere it is an error.
pub fn parse(source: &str) -> Result<Node, SyntaxError> {
    let options = serde_yaml::options! {
        strict_booleans: true,
        with_snippet: false, // a snippet would print whatever stands there, secrets included
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough, // refused later, with the key's path
        budget: serde_yaml::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_aliases: MAX_ALIASES,
            max_events: 4 * MAX_NODES,
        },
        alias_limits: serde_yaml::alias_limits! { max_total_replayed_events: MAX_UNFOLDED },
    };
    let parsed = serde_yaml::from_str_with_options::<Spanned<Raw>>(source, options);
    parsed.map(|raw| node(raw, source)).map_err(|error| syntax::explain(&error, source))
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
mod tests;
