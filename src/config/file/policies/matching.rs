//! `match`: which requests a policy is for.

use crate::config::reader::Field;
use crate::decision::matcher::{HostPattern, Matcher, PathPattern};

pub fn matcher(field: &Field<'_>) -> Option<Matcher> {
    let section = field.section()?;
    let path = section.optional("path").map_or(Some(None), |field| path(&field).map(Some));
    let methods = section.optional("methods").map_or(Some(Vec::new()), |field| methods(&field));
    let host = section.optional("host").map_or(Some(None), |field| field.parse(HostPattern::parse).map(Some));
    let route = section.optional("route").map_or(Some(Vec::new()), |field| route(&field));
    section.finish();
    let matcher = Matcher { path: path?, methods: methods?, host: host?, route: route? };
    if matcher == Matcher::default() {
        field.problem("no condition: leave match out to take every request");
        return None;
    }
    Some(matcher)
}

fn path(field: &Field<'_>) -> Option<PathPattern> {
    if field.is_text() {
        field.problem("say how it is compared: { prefix: ... }, { exact: ... } or { template: ... }");
        return None;
    }
    let section = field.section()?;
    let chosen = section.one_of(&["prefix", "exact", "template"]);
    section.finish();
    let (kind, field) = chosen?;
    field.parse(match kind {
        "prefix" => PathPattern::prefix,
        "exact" => PathPattern::exact,
        _ => PathPattern::template,
    })
}

fn methods(field: &Field<'_>) -> Option<Vec<String>> {
    let method = |text: &str| {
        let upper = !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
        if upper { Ok(text.to_owned()) } else { Err("a method is upper-case letters, like GET") }
    };
    field.each("no method: leave methods out to take every one", |item| item.parse(method))
}

fn route(field: &Field<'_>) -> Option<Vec<(String, String)>> {
    let pairs = field.pairs()?;
    if pairs.is_empty() {
        field.problem("no key: leave route out to take every one");
        return None;
    }
    let read: Vec<_> =
        pairs.into_iter().map(|(key, value)| Some((key.to_owned(), value.private().text()?.to_owned()))).collect();
    read.into_iter().collect()
}
