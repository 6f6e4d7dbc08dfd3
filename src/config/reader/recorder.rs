//! In tests only: which keys the reader asks for, so that the schema can be held against it.

use std::cell::RefCell;
use std::collections::BTreeSet;

/// A section's path, without the places in its lists, and a key of it.
pub type Asked = BTreeSet<(String, String)>;

thread_local! {
    static ASKED: RefCell<Asked> = RefCell::default();
}

pub fn note(path: &str, keys: &[&str]) {
    let mut plain = String::new();
    for (index, part) in path.split('[').enumerate() {
        plain += if index == 0 { part } else { part.trim_start_matches(|c: char| c.is_ascii_digit()) };
        plain += "[";
    }
    plain.pop();
    ASKED.with_borrow_mut(|asked| asked.extend(keys.iter().map(|key| (plain.clone(), (*key).to_owned()))));
}

/// What was asked for in this thread since the last call.
pub fn take() -> Asked {
    ASKED.take()
}
