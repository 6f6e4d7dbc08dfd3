//! Reads the tree and collects every problem: where, which key, what was found, what to write instead.

#[cfg(test)]
pub mod recorder;
mod section;

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

pub use self::section::Section;
use super::duration::{self, BadDuration};
use super::tree::{Key, Node, Place, Value};
use super::words::{nearest, quoted, shown};

/// One thing that is wrong with the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub at: Option<Place>,
    /// `policies[0].limits[1].name`; empty for the file as a whole.
    pub path: String,
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.at {
            write!(f, "{}:{}: ", at.line, at.column)?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.text)
    }
}

/// What was found so far: problems that refuse the file, and warnings that do not.
#[derive(Debug, Default)]
pub struct Findings {
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
}

impl Findings {
    pub fn into_parts(self) -> (Vec<Problem>, Vec<Problem>) {
        let sorted = |mut list: Vec<Problem>| {
            list.sort_by_key(|problem| problem.at);
            list
        };
        (sorted(self.problems.into_inner()), sorted(self.warnings.into_inner()))
    }

    pub fn add(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }
}

/// One value, where it stands, and what it is called.
#[derive(Clone)]
pub struct Field<'n> {
    node: &'n Node,
    path: String,
    findings: &'n Findings,
}

impl<'n> Field<'n> {
    pub fn root(node: &'n Node, findings: &'n Findings) -> Self {
        Self { node, path: String::new(), findings }
    }

    /// Its path in the file, like `policies[0].limits[1].name`.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn problem(&self, text: impl fmt::Display) {
        self.findings.add(Problem { at: Some(self.node.at), path: self.path.clone(), text: text.to_string() });
    }

    pub fn warning(&self, text: impl fmt::Display) {
        let warning = Problem { at: Some(self.node.at), path: self.path.clone(), text: text.to_string() };
        self.findings.warnings.borrow_mut().push(warning);
    }

    fn wanted<T>(&self, what: &str) -> Option<T> {
        let found = match &self.node.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("{value}"),
            Value::Number(text) => format!("the number {text}"),
            Value::Text(_) => "a text".to_owned(),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        };
        self.problem(format!("found {found}, wanted {what}"));
        None
    }

    /// A map with keys that this version knows.
    pub fn section(&self) -> Option<Section<'n>> {
        match &self.node.value {
            Value::Map(entries) => Some(Section::new(self.clone(), entries)),
            _ => self.wanted("a map of settings"),
        }
    }

    /// Whether this is a bare word, for settings that are a word or a map.
    pub fn is_text(&self) -> bool {
        matches!(self.node.value, Value::Text(_))
    }

    pub fn is_null(&self) -> bool {
        matches!(self.node.value, Value::Null)
    }

    pub fn is_map(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    pub fn is_zero(&self) -> bool {
        matches!(&self.node.value, Value::Number(text) if text == "0")
    }

    pub fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    pub fn list(&self) -> Option<Vec<Self>> {
        match &self.node.value {
            Value::List(items) => {
                let item = |(index, node)| Self { node, path: format!("{}[{index}]", self.path), ..self.clone() };
                Some(items.iter().enumerate().map(item).collect())
            }
            Value::Text(text) if text.bytes().all(|b| b.is_ascii_alphabetic()) => {
                self.wanted(&format!("a list: write [{text}]"))
            }
            _ => self.wanted("a list"),
        }
    }

    /// A list with every item read, none of them given up for another's mistake; `empty` says why there must be one.
    pub fn each<T>(&self, empty: &str, read: impl Fn(&Self) -> Option<T>) -> Option<Vec<T>> {
        let items = self.list()?;
        if items.is_empty() {
            self.problem(empty);
            return None;
        }
        let read: Vec<_> = items.iter().map(read).collect();
        read.into_iter().collect()
    }

    /// Keys and values of a map whose keys the operator chooses.
    pub fn pairs(&self) -> Option<Vec<(&'n str, Self)>> {
        match &self.node.value {
            Value::Map(entries) => {
                let pair = |(key, node): &'n (Key, Node)| {
                    (key.text.as_str(), Self { node, path: join(&self.path, &key.text), ..self.clone() })
                };
                Some(entries.iter().map(pair).collect())
            }
            _ => self.wanted("a map"),
        }
    }

    pub fn text(&self) -> Option<&'n str> {
        match &self.node.value {
            Value::Text(text) => Some(text),
            Value::Number(text) => self.wanted(&format!("a text: write \"{text}\"")),
            Value::Bool(value) => self.wanted(&format!("a text: write \"{value}\"")),
            _ => self.wanted("a text"),
        }
    }

    pub fn nonempty(&self) -> Option<&'n str> {
        let text = self.text()?;
        if text.is_empty() {
            self.problem("the text is empty: write one");
            return None;
        }
        Some(text)
    }

    /// A text that is something more.
    pub fn parse<T, E: fmt::Display>(&self, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        let text = self.text()?;
        let what = shown(text).map(|text| format!("{text}: ")).unwrap_or_default();
        parse(text).map_err(|error| self.problem(format!("{what}{error}"))).ok()
    }

    /// A text that is something more and may hold a password: the message never repeats it.
    pub fn parse_unseen<T, E: fmt::Display>(&self, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        parse(self.text()?).map_err(|error| self.problem(error)).ok()
    }

    /// A whole number in plain decimal digits.
    pub fn whole(&self) -> Option<u64> {
        let is_plain = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            digits && (text == "0" || !text.starts_with('0'))
        };
        match &self.node.value {
            Value::Number(text) if is_plain(text) => {
                text.parse().map_err(|_| self.problem(format!("{text} is more than any number here can be"))).ok()
            }
            Value::Number(_) => self.wanted("a whole number in plain digits, like 1000"),
            Value::Text(text) if is_plain(text) => self.wanted(&format!("a whole number: write {text} without quotes")),
            _ => self.wanted("a whole number"),
        }
    }

    pub fn boolean(&self) -> Option<bool> {
        match self.node.value {
            Value::Bool(value) => Some(value),
            _ => self.wanted("true or false"),
        }
    }

    /// A number with a unit.
    pub fn duration(&self) -> Option<Duration> {
        match &self.node.value {
            Value::Text(text) | Value::Number(text) => match duration::parse(text) {
                Ok(duration) => Some(duration),
                Err(bad @ BadDuration::NoUnit(_)) => {
                    self.problem(bad);
                    None
                }
                Err(bad @ BadDuration::Form) => {
                    self.problem(format!("{}: {bad}", quoted(text)));
                    None
                }
            },
            _ => self.wanted("a duration, like 250ms, 10s or 1h30m"),
        }
    }

    /// One of a few words.
    pub fn choice<T: Clone>(&self, choices: &[(&str, T)]) -> Option<T> {
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        match &self.node.value {
            Value::Text(text) => {
                let found = choices.iter().find(|(word, _)| word == text);
                if found.is_none() {
                    let meant = nearest(text, words.iter().copied());
                    let meant = meant.map(|word| format!(": did you mean {word}?")).unwrap_or_default();
                    self.problem(format!("{} is not one of {}{meant}", quoted(text), words.join(", ")));
                }
                found.map(|(_, meaning)| meaning.clone())
            }
            _ => self.wanted(&format!("one of {}", words.join(", "))),
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
