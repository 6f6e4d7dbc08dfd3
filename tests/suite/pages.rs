//! What the pages name exists: commands with their flags, targets of the Makefile, linked files, metrics.
//!
//! That the commands of a walk-through do what is printed beside them is held by `tests/guides.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use crate::support::cli;
use crate::support::process::root;
use crate::support::setup::Setup;
use crate::support::tls::pem;

/// Every page of the repository, with its text.
static PAGES: LazyLock<Vec<(PathBuf, String)>> = LazyLock::new(|| {
    let (mut pages, mut folders) = (Vec::new(), vec![root().to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".md") {
                let text = fs::read_to_string(&path).expect("a page");
                pages.push((path, text));
            }
        }
    }
    assert!(pages.len() > 8, "{} pages: the search is broken", pages.len());
    pages
});

fn shown(page: &Path) -> String {
    page.strip_prefix(root()).unwrap_or(page).display().to_string()
}

/// Commands that begin with `program`: lines of blocks, and what stands in backticks.
fn commands(text: &str, program: &str) -> Vec<Vec<String>> {
    let start = format!("{program} ");
    let lines = text.lines().filter_map(|line| {
        let at = line.find(&start).filter(|at| *at == 0 || line[..*at].ends_with('`'))?;
        let command = line[at..].split(['`', '|', ';', '&', '#', '>', '<', ')']).next()?;
        Some(command.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    });
    lines.filter(|words| words.len() > 1).collect()
}

fn help(command: &str) -> Option<String> {
    static KNOWN: LazyLock<Mutex<BTreeMap<String, Option<String>>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap();
    let ask = || {
        let done = cli::run(&[command, "--help"]);
        (done.code == Some(0)).then_some(done.stdout)
    };
    known.entry(command.to_owned()).or_insert_with(ask).clone()
}

#[test]
fn every_command_and_flag_of_the_pages_exists() {
    let mut seen = 0;
    for (page, text) in PAGES.iter() {
        for words in commands(text, "tallygate") {
            let command = &words[1];
            // Prose: "tallygate is", and metrics.
            if !command.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') {
                continue;
            }
            let Some(help) = help(command) else {
                panic!("{}: tallygate {command} does not exist: {words:?}", shown(page));
            };
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                let flag = flag.split('=').next().unwrap_or(flag).trim_end_matches([',', '.']);
                let has = help.split(|c: char| c.is_whitespace() || c == ',').any(|word| word == flag);
                assert!(has, "{}: tallygate {command} has no {flag}: {words:?}", shown(page));
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} commands: the search is broken");
}

#[test]
fn every_target_of_the_pages_is_in_the_makefile() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let mut seen = 0;
    for (page, text) in PAGES.iter() {
        for words in commands(text, "make").iter().filter(|words| words[0] == "make") {
            let target = words[1].trim_end_matches(['.', ',', ':']);
            let in_code = text.contains(&format!("`make {target}")) || text.contains(&format!("\nmake {target}"));
            if in_code {
                let is_there = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
                assert!(is_there, "{}: make {target}", shown(page));
                seen += 1;
            }
        }
    }
    assert!(seen > 4, "{seen} targets: the search is broken");
}

#[test]
fn every_link_of_the_pages_leads_somewhere() {
    let mut seen = 0;
    for (page, text) in PAGES.iter() {
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with('#')) {
            let file = target.split('#').next().unwrap_or(target);
            let path = page.parent().expect("a folder").join(file);
            assert!(path.exists(), "{}: {target} leads nowhere", shown(page));
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen} links: the search is broken");
}

// Also where it stands in a command, as in `kubectl apply -k deploy/...`.
#[test]
fn every_file_of_the_pages_exists() {
    let rooms = ["deploy/", "envoy/", "examples/", "docs/", "tests/", "src/", "lua/", "benches/"];
    let mut seen = 0;
    for (page, text) in PAGES.iter() {
        let is_end = |c: char| c.is_whitespace() || "`()[]{}<>\"',;:#*|=".contains(c);
        let names = text.split(is_end).map(|name| name.trim_end_matches('.'));
        // What ends in `_` was cut off from a `*`; a key is what the reader makes.
        let is_ours = |name: &&str| rooms.iter().any(|room| name.starts_with(room)) && !name.ends_with(['_', '/']);
        for name in names.filter(|name| is_ours(name) && !name.ends_with(".key")) {
            let beside = page.parent().expect("a folder");
            assert!(root().join(name).exists() || beside.join(name).exists(), "{}: no file {name}", shown(page));
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen} files: the search is broken");
}

#[test]
fn every_metric_of_the_pages_is_one_that_a_sidecar_has() {
    // With a certificate and a limit in shadow, so that those metrics have a series too.
    let tls = format!(
        "certificate_file: '{}', private_key_file: '{}'",
        pem("sidecar").display(),
        pem("sidecar-key").display()
    );
    let shadow = "
  - name: tried
    version: 1
    match: { path: { prefix: /tried } }
    limits:
      - { name: one, per: [tenant], fixed_window: { limit: 1, window: 60s } }
      - { name: two, per: [tenant], mode: shadow, fixed_window: { limit: 1, window: 60s } }
    on_failure: closed";
    let setup = Setup::memory().policy("orders", 3, "60s", "closed").policies(shadow).tls(&tls);
    let sidecar = setup.start();
    let metrics = sidecar.get("/metrics").text();
    let has = |name: &str| {
        let base = name.strip_suffix("_total").or_else(|| name.strip_suffix("_bucket")).unwrap_or(name);
        metrics
            .lines()
            .any(|line| line.strip_prefix("# TYPE ").is_some_and(|line| line.starts_with(&format!("{base} "))))
    };
    let mut seen = 0;
    for (page, text) in PAGES.iter() {
        for (at, _) in text.match_indices("tallygate_") {
            // Names of tests have it in their midst.
            if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let piece = &text[at + "tallygate_".len()..];
            let end = piece.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(piece.len());
            let name = format!("tallygate_{}", piece[..end].trim_end_matches('_'));
            assert!(has(&name), "{}: no metric {name}", shown(page));
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} metrics: the search is broken");
}
