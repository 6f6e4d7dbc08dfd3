//! The walk-throughs in `docs/`, typed as they are printed: every `sh` block in order, in one shell, with real servers.
//!
//! A `text` block is what the `sh` block before it prints, line by line; a line that is cut short there may go on. The ports of the
//! pages are replaced by free ones, there and in the files that the pages use. `make test-extra` runs this: it needs curl and
//! openssl, as a reader does. Blocks in `console` need a cluster or a long build, and are not typed.

#![expect(clippy::disallowed_methods, reason = "the tests are clients, and clients have clocks of their own")]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says why and stops"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::ports;
use support::process::{Process, part, root};
use tempfile::TempDir;

#[path = "support/support.rs"]
#[expect(dead_code, reason = "the suite uses the rest")]
mod support;

/// Redis, Tallygate's two, Envoy's two, the application.
const PORTS: [&str; 6] = ["6379", "50051", "9180", "10000", "9901", "8080"];

struct Step {
    commands: String,
    printed: Vec<String>,
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (kind, text) = block.split_once('\n').expect("a block has lines");
        match (kind, steps.last_mut()) {
            ("sh", _) => steps.push(Step { commands: text.to_owned(), printed: Vec::new() }),
            ("text", Some(step)) => step.printed = text.lines().map(str::to_owned).collect(),
            _ => {}
        }
    }
    steps
}

/// A folder with the files that the page uses, and the programs that it calls.
fn folder(replace: &impl Fn(&str) -> String) -> TempDir {
    let folder = TempDir::with_prefix("tallygate-guide-").unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("envoy/tallygate")).unwrap();
    for name in ["envoy/minimal.yaml", "envoy/tallygate/minimal.yaml"] {
        fs::write(at(name), replace(&fs::read_to_string(root().join(name)).unwrap())).unwrap();
    }
    fs::create_dir(at("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_tallygate"), at("bin/tallygate")).unwrap();
    symlink(part("redis-server", "TALLYGATE_REDIS_SERVER"), at("bin/redis-server")).unwrap();
    // Other tests run Envoys at the same time.
    let envoy = part("envoy", "TALLYGATE_ENVOY");
    let script = format!("#!/bin/sh\nexec '{}' \"$@\" --use-dynamic-base-id --concurrency 1\n", envoy.display());
    fs::write(at("bin/envoy"), script).unwrap();
    fs::set_permissions(at("bin/envoy"), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn needs(program: &str) {
    let found = Command::new(program).arg(if program == "openssl" { "version" } else { "--version" }).output();
    assert!(found.is_ok_and(|found| found.status.success()), "{program} is missing: install it, as a reader would");
}

#[track_caller]
fn walk(page: &str) {
    for program in ["curl", "openssl", "python3"] {
        needs(program);
    }
    let free: Vec<_> = PORTS.iter().map(|port| (*port, ports::free().to_string())).collect();
    let replace = |text: &str| free.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    let steps = steps(&fs::read_to_string(root().join(page)).unwrap());
    assert!(steps.len() > 5, "{} steps: the search is broken", steps.len());
    let folder = folder(&replace);
    let mut script = String::from("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n");
    for (n, step) in steps.iter().enumerate() {
        script += &format!("echo '--- step {n}'\n{}\n", replace(&step.commands));
    }
    let output = run(folder.path(), &script);
    for (n, step) in steps.iter().enumerate() {
        let start = format!("--- step {n}\n");
        let printed = output.split(&start).nth(1).and_then(|rest| rest.split("--- step").next()).unwrap_or_default();
        let mut lines = printed.lines();
        for wanted in step.printed.iter().map(|line| replace(line)) {
            let found = lines.any(|line| timeless(line).starts_with(&timeless(&wanted)));
            assert!(found, "{page}, step {n} should print {wanted:?} and printed:\n{printed}");
        }
    }
}

/// A line without the seconds to wait, which a slow machine has fewer of.
fn timeless(line: &str) -> String {
    let Some(at) = line.find("retry-after=").or_else(|| line.find("retry after")) else { return line.to_owned() };
    line[..at].to_owned() + &line[at..].replace(|c: char| c.is_ascii_digit(), "")
}

fn run(folder: &Path, script: &str) -> String {
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(folder).env("PATH", path);
    let done = Process::spawn(&mut command).finish(Duration::from_secs(60));
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);
    done.stdout
}

#[test]
fn the_walk_through_for_envoy_does_what_it_prints() {
    walk("docs/envoy.md");
}
