//! What messages say about a text that stands in the file, and which known word it was meant to be; and about a file that cannot
//! be read.

use std::io;
use std::path::Path;

/// What stands in a message for a text that may be a secret, or somebody's name.
pub const HIDDEN: &str = "(not repeated, it may be private)";

/// `"text"` for a message, shortened; nothing where it looks like a URL or an address, since it may hold a password.
pub fn shown(text: &str) -> Option<String> {
    const MOST: usize = 40;
    if text.contains('@') || text.contains("://") {
        return None;
    }
    Some(match text.char_indices().nth(MOST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}", format!("{}...", &text[..end])),
    })
}

/// The same for the middle of a sentence.
pub fn quoted(text: &str) -> String {
    shown(text).unwrap_or_else(|| HIDDEN.to_owned())
}

/// A key for the middle of a sentence, if it looks like the name of a setting: somebody's name or a secret that slipped into
/// the place of one does not.
pub fn key(text: &str) -> String {
    let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
    if text.len() <= 32 && text.bytes().all(is_name) { quoted(text) } else { HIDDEN.to_owned() }
}

/// Whether a text that should be a file's path may be repeated. A secret that was written in the place of its file's name
/// may not: it has no folder, or it ends as base64 does.
pub fn is_path(text: &str) -> bool {
    let begins_as_one = ["/", "./", "../"].iter().any(|start| text.starts_with(start));
    begins_as_one && !text.contains(['=', '+', '@', ':'])
}

/// Why the file at `path` cannot be read, and what to do where the system's words do not say it. The path itself is the
/// caller's to show or to hide.
pub fn unreadable(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound if path.is_relative() => {
            let here = std::env::current_dir().unwrap_or_default();
            format!("{error}: a relative path begins at the working directory, which is {}", here.display())
        }
        io::ErrorKind::PermissionDenied => {
            format!("{error}: let the user that Tallygate runs as read it, and enter its folders")
        }
        _ => error.to_string(),
    }
}

/// The word of `known` that `text` was most likely meant to be.
pub fn nearest<'w>(text: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    const ALIKE: f64 = 0.7;
    let likeness = |word: &str| {
        // A part of a longer word is a slip of memory rather than of the hand: password for password_file.
        let is_part = text.len() >= 4 && (word.starts_with(text) || word.ends_with(text));
        if is_part { 1.0 } else { strsim::normalized_damerau_levenshtein(word, text) }
    };
    let known = known.into_iter().map(|word| (likeness(word), word));
    known.filter(|(likeness, _)| *likeness > ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_hold_a_password_is_not_repeated() {
        assert_eq!(quoted("Orders\n"), r#""Orders\n""#);
        assert_eq!(quoted(&"é".repeat(41)), format!("\"{}...\"", "é".repeat(40)));
        for private in ["redis://:pw@h:1", "url:redis://h", "user:pw@h"] {
            assert!(!quoted(private).contains(private), "{private}");
        }
    }

    #[test]
    fn a_key_is_repeated_only_if_it_looks_like_the_name_of_a_setting() {
        for name in ["limt", "password_file", "x-user", "p95"] {
            assert_eq!(key(name), format!("{name:?}"));
        }
        let hex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for private in ["Acme", "a b", "é", "pass:word", "AZaz09+/", hex] {
            assert_eq!(key(private), HIDDEN, "{private}");
        }
    }

    #[test]
    fn a_secret_in_the_place_of_a_path_is_no_path() {
        for path in ["/etc/tallygate/hmac.key", "./hmac.key", "../redis.pw"] {
            assert!(is_path(path), "{path}");
        }
        for other in ["hunter2", "a/b.c", "/Xq+5/abc=", "user:pw@/x", ""] {
            assert!(!is_path(other), "{other}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_told_with_what_to_do() {
        let absent = io::Error::from(io::ErrorKind::NotFound);
        let here = std::env::current_dir().unwrap();
        let wanted = format!("working directory, which is {}", here.display());
        assert!(unreadable(Path::new("hmac.key"), &absent).ends_with(&wanted));
        assert_eq!(unreadable(Path::new("/hmac.key"), &absent), absent.to_string());
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(unreadable(Path::new("/hmac.key"), &denied).contains("let the user that Tallygate runs as read it"));
    }

    #[test]
    fn a_misspelt_word_finds_its_correction() {
        let known = ["limit", "window", "password_file"];
        for (text, wanted) in [("limt", "limit"), ("widnow", "window"), ("password", "password_file")] {
            assert_eq!(nearest(text, known), Some(wanted));
        }
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
    }
}
