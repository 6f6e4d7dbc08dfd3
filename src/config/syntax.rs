//! What keeps a file from being one YAML document, in words for those who edit it; the library's own are for programmers.

use serde_yaml::Error;
use serde_yaml::budget::BudgetBreach;

use super::tree::{MAX_ALIASES, MAX_DEPTH, MAX_NODES, Place, SyntaxError};
use super::words;

/// The error with its place in `source`.
pub fn explain(error: &Error, source: &str) -> SyntaxError {
    let at = error.location().map(|l| Place { line: l.line(), column: l.column() });
    let inner = if let Error::AliasError { error, .. } = error { error } else { error };
    let text = match inner {
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().map_or_else(String::new, |key| format!(" {}", words::key(key)));
            format!("the key{key} stands here a second time: remove one")
        }
        Error::MultipleDocuments { .. } => {
            "a second document begins here: a configuration is one, so remove the line of dashes".to_owned()
        }
        Error::MergeKeyNotAllowed { .. } => "merge keys (<<) are not read: write the settings out".to_owned(),
        Error::UnknownAnchor { .. } => {
            "this alias (*) names no anchor before it: put it in quotes, if a text is meant".to_owned()
        }
        Error::NullIntoString { .. } | Error::Unexpected { .. } => {
            "a key is a text: put it in quotes, or remove it".to_owned()
        }
        Error::UnsupportedTag { .. } => "tags (!) are not read: remove it, or put the text in quotes".to_owned(),
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Depth { .. } => format!("nested more than {MAX_DEPTH} deep"),
            BudgetBreach::Nodes { .. } => format!("more than {MAX_NODES} values: no configuration needs as many"),
            BudgetBreach::Aliases { .. } => format!("more than {MAX_ALIASES} aliases (*): write them out"),
            _ => "more than a configuration may hold".to_owned(),
        },
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "the aliases (*) unfold to more than a configuration may hold: write them out".to_owned()
        }
        other => match tab(at, source) {
            Some(at) => return SyntaxError { at: Some(at), text: "a tab indents this line: use spaces".to_owned() },
            None => parser(&bare(&other.to_string())),
        },
    };
    SyntaxError { at, text }
}

/// The first line from the error's on, or the one behind it, that a tab indents: the parser stops where that confuses it.
fn tab(at: Option<Place>, source: &str) -> Option<Place> {
    let from = usize::try_from(at?.line).ok()?.checked_sub(1)?;
    for (line, text) in (from..).zip(source.lines().skip(from).take(2)) {
        let indent = text.len() - text.trim_start_matches([' ', '\t']).len();
        if let Some(column) = text[..indent].find('\t') {
            return Some(Place { line: u64::try_from(line).ok()? + 1, column: u64::try_from(column).ok()? + 1 });
        }
    }
    None
}

/// What the parser says, with what mends it most often.
fn parser(message: &str) -> String {
    const REMEDIES: [(&str, &str); 9] = [
        ("a BOM", "remove the byte-order mark (U+FEFF); only at the very start of the file it is skipped"),
        ("simple key", "write a colon and a space behind the key"),
        ("mapping values are not allowed", "mend the indentation, or put a text that holds ': ' in quotes"),
        ("unexpected character", "remove it, or put the text in quotes"),
        ("anchor or alias", "put the text in quotes"),
        ("quote", "close the quotes"),
        ("bracket", "close the brackets"),
        ("EOF", "close the brackets"),
        ("recursion", "nest less deep"),
    ];
    let remedy = REMEDIES.iter().find(|(part, _)| message.contains(part));
    let remedy =
        remedy.map_or("mend the indentation, dashes and brackets here or in the lines before", |(_, text)| text);
    format!("this is no YAML ({message}): {remedy}")
}

/// The library ends its messages with the place, which ours begin with.
fn bare(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    line.split(" at line ").next().unwrap_or(line).to_owned()
}
