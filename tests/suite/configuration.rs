//! A wrong file is refused before anything starts, with the place, the setting and the reason of every mistake.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::support::cli;
use crate::support::ports;
use crate::support::process::{Finished, root};
use crate::support::setup::Setup;
use crate::support::sidecar::write_files;

/// A folder with the secret and a valid configuration, and that file.
fn valid() -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a temporary folder");
    let file = write_files(&dir, &Setup::redis(6379).policy("orders", 3, "10s", "closed").more("unmatched: allow"));
    (dir, file)
}

fn check(file: &Path) -> Finished {
    cli::run(&["check-config".as_ref(), "--config".as_ref(), file.as_os_str()])
}

/// A valid file in which `from` is `to`: refused with a line for `key` that points at the line where `to` stands.
#[track_caller]
fn refused(from: &str, to: &str, key: &str) -> String {
    let (_dir, file) = valid();
    let text = fs::read_to_string(&file).unwrap();
    let start = text.find(from).unwrap_or_else(|| panic!("{from:?} is not in the file"));
    fs::write(&file, text.replacen(from, to, 1)).unwrap();
    let done = check(&file);
    assert_eq!(done.code, Some(78), "{to:?}: {done:?}");
    // Several lines may have changed; the mistake is on the last.
    let line = 1 + text[..start].matches('\n').count() + to.matches('\n').count();
    let place = format!("{}:{line}:", file.display());
    let said = done.stderr.lines().find(|said| said.starts_with(&place) && said.contains(key));
    said.unwrap_or_else(|| panic!("{to:?}: wanted `{place}COLUMN: ..{key}..`, got:\n{}", done.stderr)).to_owned()
}

#[test]
fn a_valid_file_is_accepted() {
    let (_dir, file) = valid();
    let done = check(&file);
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn the_shipped_examples_are_accepted() {
    // They name a secret in /etc, which need not be there: only the text is checked here, so each gets one.
    let (dir, _) = valid();
    let secret = dir.path().join("hmac.key").display().to_string();
    let index = fs::read_to_string(root().join("examples/README.md")).unwrap();
    let mut seen = 0;
    for folder in ["examples", "examples/demo"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder of examples") {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            let name = path.file_name().and_then(|name| name.to_str()).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains("/etc/tallygate/hmac.key"), "{}", path.display());
            let copy = dir.path().join(name);
            fs::write(&copy, text.replace("/etc/tallygate/hmac.key", &secret)).unwrap();
            let done = check(&copy);
            assert_eq!(done.code, Some(0), "{}: {done:?}", path.display());
            // The manual shows every source of identity, the weak ones behind the strong ones.
            assert_eq!(done.stderr.contains("warning"), name == "tallygate.yaml" && folder == "examples", "{done:?}");
            assert!(
                folder != "examples" || index.contains(&format!("]({name})")),
                "examples/README.md does not name {name}"
            );
            seen += 1;
        }
    }
    assert!(seen > 6, "{seen} examples are too few: the search is broken");
}

// RL-31
#[test]
fn a_setting_that_does_not_exist_is_named_with_its_place() {
    refused("version: 1", "verzion: 1", "verzion");
    refused("limit: 3", "limt: 3", "limt");
    refused("server: {", "server: { colour: blue,", "colour");
    refused("unmatched: allow", "unmatched: allow\ncolour: blue", "colour");
}

// RL-31
#[test]
fn a_setting_that_is_given_twice_is_refused() {
    refused("version: 1", "version: 1\n    version: 2", "");
    refused("limit: 3,", "limit: 3, limit: 4,", "");
}

#[test]
fn a_part_that_no_source_can_yield_is_refused() {
    let per = "policies[0].limits[0].per";
    for parts in ["[tenant, tenant]", "[colour]", "tenant", "~"] {
        refused("per: [tenant, subject]", &format!("per: {parts}"), per);
    }
    refused("subject: [{ route: subject }]", "subject: []", "identity.subject");
    refused("subject: [{ route: subject }]", "subject: [{ header: { name: x-user } }]", "trusted_because");
    refused("subject: [{ route: subject }]", "subject: [{ header: { name: 'a b', trusted_because: x } }]", "name");
}

// RL-32
#[test]
fn a_number_that_is_none_or_is_out_of_range_is_refused_at_its_place() {
    let limit = "policies[0].limits[0].fixed_window.limit";
    for number in ["0", "-1", "1.5", "1000001", "18446744073709551616", "'100'", "~", "010", "many"] {
        refused("limit: 3", &format!("limit: {number}"), limit);
    }
    // YAML has words for numbers that are none.
    for word in [".inf", ".nan"] {
        refused("limit: 3", &format!("limit: {word}"), "");
    }
    let window = "policies[0].limits[0].fixed_window.window";
    for duration in ["0s", "60", "-5s", "2h", "100y", "soon", "~"] {
        refused("window: 10s", &format!("window: {duration}"), window);
    }
    for version in ["0", "1000000", "1.0", "-1", "'01'"] {
        refused("version: 1", &format!("version: {version}"), "policies[0].version");
    }
    for name in ["Orders", "or:ders", "'or{ders}'", "''", "-x", &"a".repeat(33)] {
        refused("name: orders", &format!("name: {name}"), "policies[0].name");
    }
}

#[test]
fn what_a_file_must_say_is_not_guessed() {
    let (_dir, file) = valid();
    let text = fs::read_to_string(&file).unwrap();
    for section in ["store:", "hmac:", "policies:"] {
        // Each section starts at the margin and lasts until the next that does.
        let start = text.find(&format!("\n{section}")).unwrap() + 1;
        let length = text[start..].match_indices('\n').map(|(at, _)| at + 1);
        let end = length.map(|at| start + at).find(|&at| !text[at..].starts_with([' ', '\n'])).unwrap_or(text.len());
        fs::write(&file, format!("{}{}", &text[..start], &text[end..])).unwrap();
        let done = check(&file);
        assert_eq!(done.code, Some(78), "without {section}: {done:?}");
        assert!(done.stderr.contains(section.trim_end_matches(':')), "without {section}: {}", done.stderr);
    }
    refused("on_failure: closed", "on_failure: ~", "policies[0].on_failure");
    refused("on_failure: closed", "on_failure: open", "policies[0].on_failure");
    refused("on_failure: closed", "on_failure: { open: {} }", "policies[0].on_failure.open");
    refused("fixed_window: { limit: 3, window: 10s }", "fixed_window: { limit: 3 }", "window");
}

#[test]
fn every_mistake_is_reported_at_once() {
    let (_dir, file) = valid();
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("limit: 3", "limit: 0").replace("window: 10s", "window: 0s");
    fs::write(&file, text.replace("version: 1", "version: 0")).unwrap();
    let done = check(&file);
    assert_eq!(done.code, Some(78));
    for key in ["fixed_window.limit:", "fixed_window.window:", "policies[0].version:"] {
        assert!(done.stderr.contains(key), "{key} is missing in:\n{}", done.stderr);
    }
}

// RL-19
#[test]
fn a_secret_that_is_missing_or_too_short_is_refused_and_never_shown() {
    let (dir, file) = valid();
    let secret = dir.path().join("hmac.key");
    for short in ["", "\n", "hunter2", "0123456789abcdef0123456789abcde\n"] {
        fs::write(&secret, short).unwrap();
        let done = check(&file);
        assert_eq!(done.code, Some(78), "{short:?}: {done:?}");
        assert!(done.stderr.contains("hmac.secret_file"), "{}", done.stderr);
        assert!(short.len() < 4 || !done.stderr.contains(short.trim()), "{}", done.stderr);
    }
    fs::remove_file(&secret).unwrap();
    let done = check(&file);
    assert_eq!(done.code, Some(78));
    assert!(done.stderr.contains("hmac.key"), "{}", done.stderr);
}

#[test]
fn a_password_in_the_url_is_never_shown() {
    let (_dir, file) = valid();
    let text = fs::read_to_string(&file).unwrap();
    for url in ["redis://:hunter2@127.0.0.1:notaport", "http://u:hunter2@127.0.0.1:1", "redis//:hunter2@h"] {
        fs::write(&file, text.replace("redis://127.0.0.1:6379", url)).unwrap();
        let done = check(&file);
        assert_eq!(done.code, Some(78), "{url}: {done:?}");
        assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
        assert!(done.stderr.contains("store.redis.url"), "{}", done.stderr);
    }
}

#[test]
fn a_file_that_cannot_be_read_or_is_no_yaml_is_refused() {
    let (dir, file) = valid();
    for text in ["", "policies: [", "\t- x", "- a\n- b", "a: 1\n---\nb: 2", "just text"] {
        fs::write(&file, text).unwrap();
        let done = check(&file);
        assert_eq!(done.code, Some(78), "{text:?}: {done:?}");
        assert!(done.stderr.contains("tallygate.yaml"), "{text:?}: {}", done.stderr);
    }
    let missing = dir.path().join("nowhere.yaml");
    let done = check(&missing);
    assert_eq!(done.code, Some(78), "{done:?}");
    assert!(done.stderr.contains("nowhere.yaml"), "{}", done.stderr);
}

#[test]
fn serve_refuses_a_bad_file_before_it_binds_a_port() {
    let (_dir, file) = valid();
    let port = ports::free();
    let taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("listen: '127.0.0.1:0'", &format!("listen: '127.0.0.1:{port}'"), 1)).unwrap();
    let serve = |file: &Path| cli::run(&["serve".as_ref(), "--config".as_ref(), file.as_os_str()]);
    let blocked = serve(&file);
    assert!(blocked.code.is_some_and(|code| code != 0 && code != 78), "the port is taken: {blocked:?}");
    assert!(blocked.stderr.contains(&port.to_string()), "and it says which: {}", blocked.stderr);
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("limit: 3", "limit: 0")).unwrap();
    let done = serve(&file);
    assert_eq!(done.code, Some(78), "the file comes first: {done:?}");
    drop(taken);
}
