//! The demo does what it says, and the README shows what it prints.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::process::{Finished, Process, root};

#[track_caller]
fn demo(store: &str) -> Finished {
    let mut command = Command::new("python3");
    command.arg(root().join("examples/demo/demo.py")).args(["--store", store]);
    command.args(["--tallygate", env!("CARGO_BIN_EXE_tallygate")]);
    let done = Process::spawn(&mut command).finish(Duration::from_secs(60));
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    done
}

/// A transcript without what differs from run to run: digits, and the hexadecimal ones of keys; and how wide columns are.
fn alike(text: &str) -> Vec<String> {
    let word = |word: &str| {
        let is_key = word.starts_with("rl:");
        if is_key { "rl:".to_owned() } else { word.replace(|c: char| c.is_ascii_digit(), "0").replace("00", "0") }
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    let lines = text.lines().map(line).map(|line| {
        // A port has four or five digits.
        std::iter::successors(Some(line), |line| line.contains("00").then(|| line.replace("00", "0"))).last()
    });
    lines.flatten().filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_readme_shows_what_the_demo_prints() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let shown = readme.split("```text\n").find(|block| block.starts_with("client, Envoy"));
    let shown = shown.and_then(|block| block.split("```").next()).expect("the transcript in the README");
    assert_eq!(alike(&demo("redis").stdout), alike(shown));
}

#[test]
fn the_demo_runs_without_redis_as_far_as_that_goes() {
    let done = demo("memory");
    assert!(done.stdout.contains("All as promised"), "{}", done.stdout);
}
