//! The path as policies see it, so that no spelling of a path walks round a limit.
//!
//! In this order: query and fragment off; percent-encoded unreserved characters decoded (RFC 3986, 6.2.2.2) and the
//! other escapes upper-cased; dot segments removed (5.2.4); runs of slashes merged. A path that two servers may read
//! differently is [`Ambiguous`]: an encoded `/` or `\`, a literal `\`, a NUL, a malformed escape; one that the order of the
//! last two steps changes (`/x//../orders` is `/orders` to a server that merges slashes first); a dot segment with
//! parameters (`/x/..;/orders` is `/orders` to one that cuts these off first).

use std::borrow::Cow;

/// A path that the proxy, the application and we could each take for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ambiguous;

/// The normal form of a request target. Borrows when nothing had to change.
///
/// ```
/// use tallygate::decision::path::{normalise, Ambiguous};
/// assert_eq!(normalise("//orders/./7?x=1").unwrap(), "/orders/7");
/// assert_eq!(normalise("/x/../%6frders").unwrap(), "/orders");
/// assert_eq!(normalise("/a%2Fb"), Err(Ambiguous));
/// ```
pub fn normalise(target: &str) -> Result<Cow<'_, str>, Ambiguous> {
    let end = target.find(['?', '#']).unwrap_or(target.len());
    let path = &target[..end];
    if is_normal(path) {
        return Ok(Cow::Borrowed(path));
    }
    let decoded = decode(path)?;
    if decoded.split('/').skip(1).any(|segment| segment.starts_with(".;") || segment.starts_with("..;")) {
        return Err(Ambiguous);
    }
    let normal = merge_slashes(&remove_dot_segments(&decoded));
    if remove_dot_segments(&merge_slashes(&decoded)) == normal { Ok(Cow::Owned(normal)) } else { Err(Ambiguous) }
}

/// Whether no step could change `path`: the usual case, answered without allocating. Any `%` takes the long way.
fn is_normal(path: &str) -> bool {
    let mut previous = 0;
    for byte in path.bytes() {
        match byte {
            b'%' | b'\\' | 0 => return false,
            b'/' | b'.' if previous == b'/' => return false,
            _ => previous = byte,
        }
    }
    true
}

fn decode(path: &str) -> Result<String, Ambiguous> {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find(['%', '\\', '\0']) {
        decoded.push_str(&rest[..at]);
        if rest.as_bytes()[at] != b'%' {
            return Err(Ambiguous);
        }
        let escape = rest.as_bytes().get(at + 1..at + 3).ok_or(Ambiguous)?;
        let (high, low) = (hex_digit(escape[0])?, hex_digit(escape[1])?);
        match high << 4 | low {
            b'/' | b'\\' | 0 => return Err(Ambiguous),
            plain if plain.is_ascii_alphanumeric() || b"-._~".contains(&plain) => {
                decoded.push(plain.into());
            }
            _ => decoded.extend(['%', escape[0].to_ascii_uppercase().into(), escape[1].to_ascii_uppercase().into()]),
        }
        rest = &rest[at + 3..];
    }
    decoded.push_str(rest);
    Ok(decoded)
}

fn hex_digit(byte: u8) -> Result<u8, Ambiguous> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err(Ambiguous),
    }
}

/// Empty segments count here, as in RFC 3986 and in Envoy, which merges slashes afterwards.
fn remove_dot_segments(path: &str) -> String {
    let Some(rest) = path.strip_prefix('/') else {
        return path.to_owned(); // `*`, or nothing at all: there is no hierarchy to walk
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = rest.split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => {
                kept.pop();
            }
            _ => {
                kept.push(segment);
                continue;
            }
        }
        if last {
            kept.push(""); // `/a/.` and `/a/b/..` end in a slash
        }
    }
    format!("/{}", kept.join("/"))
}

fn merge_slashes(path: &str) -> String {
    let mut merged = String::with_capacity(path.len());
    for c in path.chars() {
        if c != '/' || !merged.ends_with('/') {
            merged.push(c);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_has_one_normal_form() {
        let cases = [
            ("/orders", "/orders"),
            ("/orders/", "/orders/"),
            ("/orders?x=/../y", "/orders"),
            ("/orders#f", "/orders"),
            ("//orders", "/orders"),
            ("/./orders", "/orders"),
            ("/x/../orders", "/orders"),
            ("/../../orders", "/orders"),
            ("//../orders", "/orders"),
            ("/%6frders", "/orders"),
            ("/%6Frders", "/orders"),
            ("/%2e%2E/orders", "/orders"),
            ("/x/%2e%2e/orders", "/orders"),
            ("/orders/.", "/orders/"),
            ("/orders/7/..", "/orders/"),
            ("/a//./b/../orders", "/a/orders"),
            ("/a/...", "/a/..."),
            ("/.well-known/x", "/.well-known/x"),
            ("/%c3%a9", "/%C3%A9"),
            ("/a%252fb", "/a%252fb"),
            ("/Orders", "/Orders"),
            ("/orders;v=1", "/orders;v=1"),
            ("/a/...;x", "/a/...;x"),
            ("/é", "/é"),
            ("/", "/"),
            ("", ""),
            ("*", "*"),
        ];
        for (sent, wanted) in cases {
            assert_eq!(normalise(sent).as_deref(), Ok(wanted), "{sent}");
        }
    }

    #[test]
    fn a_path_that_servers_read_differently_is_ambiguous() {
        for sent in ["/a%2fb", "/a%2Fb", "/a%5cb", "/a\\b", "/a%00", "/a\0", "/a%", "/a%2", "/a%zz", "/a%é"] {
            assert_eq!(normalise(sent), Err(Ambiguous), "{sent}");
        }
    }

    // Found against a second reading of the rules: both were `/x/orders` here, and `/orders` to others.
    #[test]
    fn a_path_that_depends_on_the_order_of_the_steps_is_ambiguous() {
        for sent in [
            "/x//../orders",
            "/x//%2e%2e/orders",
            "//orders%c3%a9//%2e;;",
            "/a/b//..//..",
            "/x/..;/orders",
            "/x/%2E.;a=b/orders",
        ] {
            assert_eq!(normalise(sent), Err(Ambiguous), "{sent}");
        }
        assert_eq!(normalise("/x/../orders").as_deref(), Ok("/orders"));
    }

    #[test]
    fn the_query_is_never_part_of_the_question() {
        assert_eq!(normalise("/a?b=%2f%zz\\").as_deref(), Ok("/a"));
    }

    proptest::proptest! {
        #[test]
        fn a_normal_form_stays_as_it_is(path in "/[a-c./%2eE~ ]{0,24}") {
            if let Ok(once) = normalise(&path) {
                proptest::prop_assert_eq!(normalise(&once).unwrap(), once.clone());
                proptest::prop_assert!(!once.contains("//"));
                proptest::prop_assert!(!once.split('/').any(|s| s == "." || s == ".."));
            }
        }
    }
}
