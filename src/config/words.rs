//! What messages say about a text that stands in the file, and which known word it was meant to be.

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
    shown(text).unwrap_or_else(|| "(not repeated, it may hold a password)".to_owned())
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
    fn a_misspelt_word_finds_its_correction() {
        let known = ["limit", "window", "password_file"];
        for (text, wanted) in [("limt", "limit"), ("widnow", "window"), ("password", "password_file")] {
            assert_eq!(nearest(text, known), Some(wanted));
        }
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
    }
}
