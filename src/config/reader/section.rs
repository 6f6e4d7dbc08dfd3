//! A map whose keys are all known: what is asked for, what is missing, and what nobody asked for.

use std::cell::RefCell;
use std::fmt;

use super::{Field, Problem, join};
use crate::config::tree::{Key, Node};
use crate::config::words::{key, nearest, quoted};

/// A map of settings. [`finish`](Self::finish) reports what is missing and the keys that nobody asked for.
pub struct Section<'n> {
    field: Field<'n>,
    entries: &'n [(Key, Node)],
    asked: RefCell<Vec<&'static str>>,
    missing: RefCell<Vec<Missing>>,
}

/// A key that should be there, or one of several, and what to say if it is not there under another name.
struct Missing {
    keys: Vec<&'static str>,
    text: String,
}

impl<'n> Section<'n> {
    pub fn new(field: Field<'n>, entries: &'n [(Key, Node)]) -> Self {
        Self { field, entries, asked: RefCell::default(), missing: RefCell::default() }
    }

    pub fn optional(&self, key: &'static str) -> Option<Field<'n>> {
        if !self.asked.borrow().contains(&key) {
            self.asked.borrow_mut().push(key);
        }
        let (_, node) = self.entries.iter().find(|(found, _)| found.text == key)?;
        Some(Field { node, path: join(&self.field.path, key), ..self.field.clone() })
    }

    /// A key that must be there; `like` shows what could be written.
    pub fn required(&self, key: &'static str, like: &str) -> Option<Field<'n>> {
        let field = self.optional(key);
        if field.is_none() {
            let text = format!("{key:?} is missing: write it, like {key}: {like}");
            self.missing.borrow_mut().push(Missing { keys: vec![key], text });
        }
        field
    }

    /// The one key that is present out of `keys`, for maps that are a choice.
    pub fn one_of(&self, keys: &[&'static str]) -> Option<(&'static str, Field<'n>)> {
        let mut found: Vec<_> = keys.iter().filter_map(|key| Some((*key, self.optional(key)?))).collect();
        match found.len() {
            0 => {
                let text = format!("one of {} is missing: write exactly one", keys.join(", "));
                self.missing.borrow_mut().push(Missing { keys: keys.to_vec(), text });
                None
            }
            1 => found.pop(),
            _ => {
                let found: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
                self.problem(format!("{} stand here together: write exactly one", found.join(" and ")));
                None
            }
        }
    }

    pub fn problem(&self, text: impl fmt::Display) {
        self.field.problem(text);
    }

    pub fn warning(&self, text: impl fmt::Display) {
        self.field.warning(text);
    }

    /// A key that nobody knows, as a message may repeat it.
    fn key(&self, text: &str) -> String {
        if self.field.is_private { self.field.repeated(text) } else { key(text) }
    }

    /// Reports what is missing, and the keys that nobody asked for with the likely correction. A key that is misspelt is one
    /// mistake, and not a missing one too.
    pub fn finish(self) {
        let asked = self.asked.take();
        #[cfg(test)]
        super::recorder::note(&self.field.path, &asked);
        let unknown = self.entries.iter().map(|(key, _)| key).filter(|key| !asked.contains(&key.text.as_str()));
        let mut meant = Vec::new();
        for key in unknown {
            let near = nearest(&key.text, asked.iter().copied());
            let text = match near {
                Some(near) => format!("unknown key {}: did you mean {near:?}?", quoted(&key.text)),
                None if key.text.contains(':') => {
                    // What stands behind the colon was meant to be a value.
                    let name = key.text.split(':').next().unwrap_or_default();
                    format!("unknown key {}: write a space behind the colon that ends the key", self.key(name))
                }
                None => format!("unknown key {}: known here are {}", self.key(&key.text), asked.join(", ")),
            };
            meant.extend(near);
            self.field.findings.add(Problem { at: Some(key.at), path: self.field.path.clone(), text });
        }
        for missing in self.missing.take() {
            if !missing.keys.iter().any(|key| meant.contains(key)) {
                self.field.problem(missing.text);
            }
        }
    }
}
