//! The house's rules that a compiler does not hold: imports point down, and each external crate stays in its room.

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms from the roof to the ground. A room imports only from those after it.
const FLOORS: [&str; 10] =
    ["cli", "server", "admin", "config", "authz", "limiter", "telemetry", "store", "tls", "decision"];

/// External crates and the only places that may name them.
const CRATES: [(&str, &[&str]); 15] = [
    ("tonic", &["authz", "server", "cli/probe"]),
    ("tonic_health", &["server", "cli/probe"]),
    ("envoy_types", &["authz", "cli/probe"]),
    ("prost", &["authz"]),
    ("redis", &["store/redis"]),
    ("rustls", &["tls"]),
    ("tokio_rustls", &["server"]),
    ("x509_cert", &["tls"]),
    ("serde", &["config"]),
    ("serde_yaml", &["config"]),
    ("hmac", &["decision/key"]),
    ("sha2", &["decision/key"]),
    ("hex", &["decision/key"]),
    ("axum", &["admin"]),
    ("prometheus_client", &["telemetry"]),
];

/// What the pure core may not touch at all.
const NOT_IN_DECISION: [&str; 6] = ["tokio", "std::time", "std::fs", "std::net::Tcp", "std::env", "async "];

fn sources() -> Vec<(String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut found, mut folders) = (Vec::new(), vec![src.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("src is readable") {
            let path: PathBuf = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&src).expect("below src").with_extension("");
                found.push((name.display().to_string(), code(&fs::read_to_string(&path).expect("a source file"))));
            }
        }
    }
    found
}

/// The text without its comments: what prose names is not imported.
fn code(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn room(file: &str) -> &str {
    file.split('/').next().unwrap_or(file)
}

fn is_within(file: &str, place: &str) -> bool {
    file == place || file.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a name behind `before` is a crate's: `redis::`, `::redis::`, but not our own `store::redis::`.
fn is_crate_root(before: &str) -> bool {
    let before = before.strip_suffix("::").unwrap_or(before);
    !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

#[test]
fn imports_point_down() {
    let floor = |room: &str| FLOORS.iter().position(|known| *known == room);
    let mut arrows = 0;
    for (file, text) in sources() {
        let Some(from) = floor(room(&file)) else { continue };
        for piece in text.split("crate::").skip(1) {
            let to = piece.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            let Some(below) = floor(to) else { continue };
            assert!(below >= from, "src/{file}.rs imports {to}, which lies above it");
            arrows += 1;
        }
    }
    assert!(arrows > 100, "the search found {arrows} imports, so it is broken");
}

#[test]
fn each_external_crate_stays_in_its_room() {
    for (name, places) in CRATES {
        let pattern = format!("{name}::");
        let mut seen = false;
        for (file, text) in sources() {
            for (at, _) in text.match_indices(&pattern).filter(|(at, _)| is_crate_root(&text[..*at])) {
                let line = text[..at].lines().count();
                seen = true;
                assert!(
                    places.iter().any(|place| is_within(&file, place)),
                    "src/{file}.rs names {name} (code line {line})"
                );
            }
        }
        assert!(seen, "no file names {name}, so the search is broken or the crate is not needed");
    }
}

#[test]
fn the_core_is_pure() {
    for (file, text) in sources().into_iter().filter(|(file, _)| room(file) == "decision") {
        for word in NOT_IN_DECISION {
            assert!(!text.contains(word), "src/{file}.rs holds {word:?}, and the core is pure");
        }
    }
}

#[test]
fn files_stay_small() {
    for (file, text) in sources() {
        assert!(text.lines().count() <= 400, "src/{file}.rs has {} lines of code", text.lines().count());
    }
}
