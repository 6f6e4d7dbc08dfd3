//! What `docs/keys.md` publishes for other implementations: its Python, its vectors and Tallygate agree.

use std::fs;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::cli;
use crate::support::process::{Process, root};

/// The page's block in this language.
fn block<'p>(page: &'p str, language: &str) -> &'p str {
    let start = format!("```{language}\n");
    page.split(&start).nth(1).and_then(|rest| rest.split("```").next()).expect("a block in the page")
}

/// Arguments and key of each row.
fn vectors(page: &str) -> Vec<(Vec<&str>, &str)> {
    let mut vectors = Vec::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| `--policy ")) {
        let (arguments, key) = row.strip_suffix("` |").and_then(|row| row.split_once("` | `")).expect("two columns");
        vectors.push((["--policy"].into_iter().chain(arguments.split(' ')).collect(), key));
    }
    vectors
}

#[test]
fn the_published_python_and_tallygate_make_the_published_keys() {
    let page = fs::read_to_string(root().join("docs/keys.md")).unwrap();
    let vectors = vectors(&page);
    assert!(vectors.len() >= 8, "{} vectors", vectors.len());
    let published: Vec<_> = vectors.iter().map(|(_, key)| *key).collect();
    let mut python = Command::new("python3");
    let printed = Process::spawn(python.args(["-c", block(&page, "python")])).finish(Duration::from_secs(20));
    assert_eq!(printed.stdout.lines().collect::<Vec<_>>(), published, "Python: {}", printed.stderr);

    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("hmac.key"), (0..32).collect::<Vec<u8>>()).unwrap();
    fs::write(folder.path().join("tallygate.yaml"), block(&page, "yaml")).unwrap();
    for (arguments, key) in vectors {
        let mut command = cli::command(&["key", "--config", "tallygate.yaml"]);
        let done = Process::spawn(command.args(&arguments).current_dir(folder.path())).finish(Duration::from_secs(10));
        assert_eq!(done.stdout.trim(), key, "{arguments:?}: {}", done.stderr);
    }
}
