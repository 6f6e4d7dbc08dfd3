//! `docs/failures.md` says what is so: the tests, classes and log lines that it names are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tallygate::decision::verdict::FailureClass;

use crate::support::process::root;

const PAGE: &str = include_str!("../../docs/failures.md");
const COLUMNS: [&str; 7] = ["fault", "closed", "open", "class", "log", "over", "held by"];

/// The cells of each row of each table.
fn rows() -> Vec<Vec<&'static str>> {
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    let lines = PAGE.lines().filter(|line| line.starts_with('|')).map(cells);
    lines.filter(|row| *row != COLUMNS && !row.iter().all(|cell| *cell == "---")).collect()
}

/// What stands between two of `quote`.
fn quoted(text: &'static str, quote: char) -> Vec<&'static str> {
    text.split(quote).skip(1).step_by(2).collect()
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Whether `name`, like `suite::ghosts::each_caller_gets_its_own_answer`, is a test.
fn is_a_test(name: &str) -> bool {
    let path: Vec<_> = name.split("::").collect();
    let [place @ .., test] = &path[..] else { return false };
    let folder = if ["suite", "timing"].contains(&path[0]) { "tests" } else { "src" };
    // The tests of a file are in it, or in a file of their own.
    let places = [place, place.strip_suffix(&["tests"]).unwrap_or(place)];
    let files = places.map(|place| root().join(folder).join(place.join("/")).with_extension("rs"));
    let start = format!("fn {test}() {{");
    let is_marked = |text: String| {
        let mut lines = text.lines().map(|line| line.trim().trim_start_matches("async "));
        let above = lines.by_ref().take_while(|line| *line != start).last();
        above == Some("#[test]") || above == Some("#[tokio::test]")
    };
    files.iter().filter_map(|file| read(file)).any(is_marked)
}

#[test]
fn each_fault_has_every_column_and_is_held_by_tests_that_exist() {
    let rows = rows();
    assert!(rows.len() >= 25, "only {} rows were read", rows.len());
    for row in rows {
        assert_eq!(row.len(), COLUMNS.len(), "{row:?}");
        let tests = quoted(row[6], '`');
        assert!(!tests.is_empty(), "nothing holds {:?}", row[0]);
        for test in tests {
            assert!(is_a_test(test), "{:?} is held by {test}, which is no test", row[0]);
        }
    }
    // And those in the text around the tables.
    for test in quoted(PAGE, '`').into_iter().filter(|name| name.starts_with("suite::") || name.starts_with("timing::"))
    {
        assert!(is_a_test(test), "{test} is no test");
    }
}

#[test]
fn each_class_of_failure_has_a_row_and_no_row_has_another() {
    let closed: BTreeSet<_> = FailureClass::ALL.iter().map(|class| class.as_str()).collect();
    let words = rows().into_iter().flat_map(|row| quoted(row[3], '`')).filter(|word| !word.starts_with("tallygate_"));
    assert_eq!(words.collect::<BTreeSet<_>>(), closed);
}

#[test]
fn each_log_line_of_the_table_is_one_that_tallygate_writes() {
    let mut sources = String::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("src is readable") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { sources += &read(&path).unwrap_or_default() }
        }
    }
    let lines: Vec<_> =
        rows().into_iter().flat_map(|row| [row[4], row[5]]).flat_map(|cell| quoted(cell, '"')).collect();
    assert!(lines.len() >= 25, "only {} log lines were read", lines.len());
    for line in lines {
        assert!(sources.contains(&format!("\"{line}")), "nothing logs {line:?}");
    }
}

#[test]
fn the_readme_leads_to_the_page() {
    assert!(include_str!("../../README.md").contains("(docs/failures.md)"));
}
