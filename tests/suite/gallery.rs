//! The gallery: wrong files in `tests/config/invalid`, doubtful ones in `tests/config/warned`, and beside each the exact
//! text that is printed for it. Whoever changes a message reads there what people will read.
//!
//! `TALLYGATE_BLESS=1 cargo test --test suite gallery` writes the texts anew; the difference is then for you to judge.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::cli;
use crate::support::process::{Finished, Process, root};
use crate::support::setup::SECRET;

/// The files of one folder of the gallery, in order.
fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("tests/config").join(folder)).expect("a folder of the gallery");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension() == Some(OsStr::new("yaml"))).collect();
    paths.sort();
    paths
}

/// Runs `tallygate COMMAND --config NAME` where the file lies, so that messages hold its name alone.
fn run(command: &str, file: &Path) -> Finished {
    let name = file.file_name().expect("a file");
    let mut command = cli::command(&[OsStr::new(command), OsStr::new("--config"), name]);
    command.env("TALLYGATE_HMAC_SECRET", SECRET).env("TALLYGATE_SHORT_SECRET", "too short");
    Process::spawn(command.current_dir(file.parent().expect("a folder"))).finish(Duration::from_secs(10))
}

/// What is to be printed for `file`; with blessing, what was.
fn wanted(file: &Path, printed: &str) -> String {
    let text = file.with_extension("txt");
    if std::env::var_os("TALLYGATE_BLESS").is_some() {
        fs::write(&text, printed).expect("the gallery can be written");
    }
    fs::read_to_string(&text).unwrap_or_else(|error| panic!("{}: {error}", text.display()))
}

// RL-31, RL-32. `serve` says the same, and a process that ended with 78 has bound nothing: that ends with 69.
#[test]
fn every_wrong_file_is_refused_in_the_words_beside_it() {
    let files = files("invalid");
    assert!(files.len() > 100, "the gallery has {} files", files.len());
    for file in files {
        let done = run("check-config", &file);
        let name = file.display();
        assert_eq!((done.code, done.stdout.as_str()), (Some(78), ""), "{name}: {done:?}");
        assert_eq!(done.stderr, wanted(&file, &done.stderr), "{name}");
        let served = run("serve", &file);
        assert_eq!((served.code, served.stdout, served.stderr), (Some(78), String::new(), done.stderr), "{name}");
    }
}

#[test]
fn every_doubtful_file_is_accepted_with_the_warning_beside_it() {
    for file in files("warned") {
        let done = run("check-config", &file);
        assert_eq!(done.code, Some(0), "{}: {done:?}", file.display());
        assert_eq!(done.stderr, wanted(&file, &done.stderr), "{}", file.display());
        assert!(done.stderr.starts_with("warning: "), "{}", file.display());
    }
}

#[test]
fn every_text_of_the_gallery_belongs_to_a_file() {
    for folder in ["invalid", "warned"] {
        for entry in fs::read_dir(root().join("tests/config").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            assert!(path.with_extension("yaml").is_file(), "{} belongs to no file", path.display());
        }
    }
}

// RL-31: fifty lines may unfold to 10^50 values.
#[test]
fn an_alias_bomb_needs_neither_time_nor_memory() {
    let folder = root().join("tests/config/invalid");
    let limited = "ulimit -v 102400 && exec \"$0\" check-config --config yaml-alias-bomb.yaml";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_tallygate")]).current_dir(folder);
    let done = Process::spawn(&mut command).finish(Duration::from_secs(5));
    assert_eq!(done.code, Some(78), "in 100 MiB: {done:?}");
    assert!(done.stderr.contains("unfold to more than a configuration may hold"), "{done:?}");
}
