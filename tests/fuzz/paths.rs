//! Paths against a second reading of the same rules, slow and from the texts of the RFC: both see the same path, or both
//! say that servers may see different ones. So no spelling walks round a limit.

use std::collections::HashMap;

use tallygate::decision::attributes::{Attributes, Headers, NoMetadata};
use tallygate::decision::matcher::{Candidate, Matcher, PathPattern};
use tallygate::decision::path::normalise;

use super::driver::{self, Random};
use super::mutate;

const PIECES: [&str; 28] = [
    "/", "//", ".", "..", "/.", "/..", "%2e", "%2E", "%2f", "%5c", "%00", "%6f", "%4F", "%", "%zz", "%25", "\\", "\0",
    "?", "#", ";", "orders", "/orders", "o", "7", "é", "%c3%a9", "%7e",
];

fn path(random: &mut Random) -> String {
    let mut path = String::from(if random.below(8) == 0 { "" } else { "/" });
    for _ in 0..random.below(12) {
        path += *random.one_of(&PIECES);
    }
    if random.below(4) > 0 {
        return path;
    }
    let spoilt = mutate::mutated(random, &[path.into_bytes()], &[b"/orders", b"/../"]);
    String::from_utf8_lossy(&spoilt).into_owned()
}

/// The path in its normal form, or nothing if it can be read in two ways.
fn slowly(target: &str) -> Option<String> {
    let path: String = target.chars().take_while(|c| !matches!(c, '?' | '#')).collect();
    let decoded = decode(&path)?;
    // Some servers cut what stands behind a semicolon, and then follow the dots.
    let cut = |segment: &str| segment.split_once(';').is_some_and(|(name, _)| name == "." || name == "..");
    if decoded.split('/').skip(1).any(cut) {
        return None;
    }
    if !decoded.starts_with('/') {
        return Some(merge(&decoded));
    }
    // Some merge slashes before that, and some afterwards.
    let (dots_first, slashes_first) = (merge(&without_dots(&decoded)), without_dots(&merge(&decoded)));
    (dots_first == slashes_first).then_some(dots_first)
}

fn decode(path: &str) -> Option<String> {
    let mut decoded = String::new();
    let mut rest = path.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' | '\0' => return None,
            '%' => {
                let digits: String = rest.by_ref().take(2).collect();
                if digits.chars().count() != 2 || !digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                let byte = u8::from_str_radix(&digits, 16).ok()?;
                match char::from(byte) {
                    '/' | '\\' | '\0' => return None,
                    plain if plain.is_ascii_alphanumeric() || "-._~".contains(plain) => decoded.push(plain),
                    _ => decoded += &format!("%{}", digits.to_uppercase()),
                }
            }
            c => decoded.push(c),
        }
    }
    Some(decoded)
}

/// RFC 3986, 5.2.4, step by step.
fn without_dots(path: &str) -> String {
    let (mut input, mut output) = (path.to_owned(), String::new());
    while !input.is_empty() {
        if input.starts_with("/./") {
            input.replace_range(..2, "");
        } else if input == "/." {
            "/".clone_into(&mut input);
        } else if input.starts_with("/../") || input == "/.." {
            input = if input == "/.." { "/".to_owned() } else { input[3..].to_owned() };
            output.truncate(output.rfind('/').unwrap_or(0));
        } else {
            let end = input[1..].find('/').map_or(input.len(), |end| end + 1);
            output += &input[..end];
            input.replace_range(..end, "");
        }
    }
    output
}

fn merge(path: &str) -> String {
    let mut merged = path.to_owned();
    while merged.contains("//") {
        merged = merged.replace("//", "/");
    }
    merged
}

#[test]
fn every_path_is_read_as_by_a_second_reader() {
    let matcher = Matcher { path: Some(PathPattern::prefix("/orders").unwrap()), ..Default::default() };
    let route = HashMap::new();
    driver::run("every_path_is_read_as_by_a_second_reader", path, |path| {
        let fast = normalise(path).ok().map(|normal| normal.into_owned());
        assert_eq!(fast, slowly(path), "{path:?}");
        let request = Attributes {
            method: "GET",
            host: "",
            path,
            headers: Headers::default(),
            source: None,
            principal: "",
            route: &route,
            metadata: &NoMetadata,
        };
        let holds = matcher.holds(&Candidate::new(&request)).ok();
        assert_eq!(holds, fast.as_deref().map(|path| path == "/orders" || path.starts_with("/orders/")), "{path:?}");
        if let Some(once) = fast {
            assert_eq!(normalise(&once).as_deref(), Ok(&*once), "a normal form stays as it is");
        }
    });
}
