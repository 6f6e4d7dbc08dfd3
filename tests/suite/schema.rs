//! `tallygate schema`: what editors are given accepts every configuration that we ship, and refuses what is wrong in shape.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;
use serde_yaml::options::MergeKeyPolicy;

use crate::support::cli;
use crate::support::process::{Process, root};
use crate::support::setup::SECRET;

/// Wrong files whose mistake a schema cannot see: it spans several settings, or lies outside the file.
const NOT_OF_SHAPE: &[&str] = &[
    "cluster-one-slot",
    "cost-above-limit",
    "cost-holds-redis-up",
    "cost-of-route",
    "failure-share-below-cost",
    "key-too-long",
    "limit-name-twice",
    "listen-same",
    "listen-socket-settings-without-socket",
    "listen-tls-files",
    "listen-tls-locked-key",
    "listen-tls-mismatch",
    "listen-tls-on-socket",
    "number-beyond-exact-bucket",
    "number-beyond-exact-window",
    "number-bucket-never-full",
    "override-below-cost",
    "override-on-bucket",
    "override-on-shared-limit",
    "override-unknown-issuer",
    "override-unknown-limit",
    "override-unknown-source",
    "override-unreachable",
    "override-without-limit",
    "override-without-source",
    "policy-name-twice",
    "redis-tls-no-certificate",
    "policy-unreachable",
    "policy-unreachable-narrower",
    "redis-password-twice",
    "redis-tls-without-rediss",
    "secret-missing",
    "secret-too-short",
    "secret-unset",
    "source-twice",
    "strangers-odd",
];

struct Schema {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Schema {
    /// The one that the binary prints.
    fn printed() -> Self {
        let done = cli::run(&["schema"]);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        let document: Value = serde_json::from_str(&done.stdout).expect("JSON");
        assert_eq!(document["$schema"], "https://json-schema.org/draft/2020-12/schema");
        compiler.add_resource("tallygate.schema.json", document).expect("a resource");
        let index = compiler.compile("tallygate.schema.json", &mut schemas).expect("a schema");
        Self { schemas, index }
    }

    /// What an editor would mark.
    fn problems(&self, value: &Value) -> Option<String> {
        self.schemas.validate(value, self.index).err().map(|error| format!("{error:#}"))
    }
}

/// YAML 1.2, as editors read it.
fn parse(text: &str) -> Result<Value, serde_yaml::Error> {
    let options = serde_yaml::options! {
        strict_booleans: true,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        budget: serde_yaml::budget! { max_depth: 32, max_aliases: 64 },
        alias_limits: serde_yaml::alias_limits! { max_total_replayed_events: 10_000 },
    };
    serde_yaml::from_str_with_options(text, options)
}

/// Every file below `folder` whose name ends so.
fn below(folder: &str, ending: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            if path.is_dir() && !["target", ".parts", ".git"].contains(&name) {
                folders.push(path);
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The YAML blocks of a page that are whole configurations.
fn blocks(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).expect("a page");
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let is_whole =
        |block: &&str| ["hmac:", "policies:"].iter().all(|key| block.lines().any(|line| line.starts_with(key)));
    blocks.filter(is_whole).map(str::to_owned).collect()
}

#[test]
fn every_shipped_configuration_is_valid_for_an_editor() {
    let schema = Schema::printed();
    let mut texts = Vec::new();
    for folder in ["examples", "tests/config/whole", "tests/config/warned"] {
        for file in below(folder, ".yaml") {
            texts.push((file.display().to_string(), fs::read_to_string(&file).unwrap()));
        }
    }
    for file in below("deploy", "tallygate.yaml") {
        texts.push((file.display().to_string(), fs::read_to_string(&file).unwrap()));
    }
    for page in below(".", ".md") {
        texts.extend(blocks(&page).into_iter().map(|block| (page.display().to_string(), block)));
    }
    assert!(texts.iter().any(|(name, _)| name.ends_with("README.md")), "the README shows a configuration");
    assert!(texts.len() > 10, "{} configurations are too few: the search is broken", texts.len());
    for (name, text) in texts {
        let value = parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(schema.problems(&value), None, "{name}");
    }
}

#[test]
fn every_mistake_of_shape_is_seen_by_an_editor() {
    let schema = Schema::printed();
    for file in below("tests/config/invalid", ".yaml") {
        let name = file.file_stem().and_then(OsStr::to_str).expect("a name");
        // An editor marks what is no YAML by itself.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let Ok(value) = parse(&text) else { continue };
        let seen = schema.problems(&value).is_some();
        let of_shape = !NOT_OF_SHAPE.contains(&name);
        assert_eq!(seen, of_shape, "{name} {}", if seen { "is seen: take it off the list" } else { "passes" });
    }
}

#[test]
fn files_that_have_every_section_are_valid() {
    for file in below("tests/config/whole", ".yaml") {
        let mut command = cli::command(&[OsStr::new("check-config"), OsStr::new("--config"), file.as_os_str()]);
        let done = Process::spawn(command.env("TALLYGATE_HMAC_SECRET", SECRET)).finish(Duration::from_secs(10));
        assert_eq!(done.code, Some(0), "{}: {done:?}", file.display());
    }
}

// A pager that is closed early is no fault.
#[test]
fn the_schema_can_be_cut_short() {
    let pipe = "\"$0\" schema | head -c 1; echo";
    let mut command = std::process::Command::new("sh");
    let done =
        Process::spawn(command.args(["-c", pipe, env!("CARGO_BIN_EXE_tallygate")])).finish(Duration::from_secs(10));
    assert_eq!((done.stdout.trim(), done.stderr.as_str()), ("{", ""));
}
