//! Files that were spoilt on their way: refused or accepted, within a second, without a panic, and without a word of the
//! secrets in them.

use std::fs;
use std::path::Path;

use tallygate::config::Config;
use tempfile::TempDir;

use super::{driver, mutate};
use crate::support::canaries::{PASSWORD, TENANT};
use crate::support::process::root;

const SECRET: &str = "SECRET-CANARY of more than 32 bytes, in a file";

/// The shipped files and those of the gallery, with canaries as password, tenant and secret.
fn seeds(secret: &Path) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for folder in ["examples", "examples/demo", "tests/config/whole", "tests/config/warned", "tests/config/invalid"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder of configurations") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = String::from_utf8_lossy(&fs::read(path).expect("a file")).into_owned();
                let text = text.replace("redis://", &format!("redis://:{PASSWORD}@"));
                let text = text.replace("value: acme", &format!("value: {TENANT}"));
                let text = text.replace("/etc/tallygate/hmac.key", &secret.display().to_string());
                let lines = text.lines().map(|line| match line.strip_prefix("hmac: {") {
                    Some(_) => format!("hmac: {{ secret_file: {} }}", secret.display()),
                    None => line.to_owned(),
                });
                let text = lines.collect::<Vec<_>>().join("\n").into_bytes();
                // Valid ones are few beside the gallery's.
                let times = if folder == "tests/config/invalid" { 1 } else { 8 };
                seeds.extend(vec![text; times]);
            }
        }
    }
    assert!(seeds.len() > 100);
    seeds
}

const WORDS: [&[u8]; 26] = [
    b"\n",
    b": ",
    b"- ",
    b"  ",
    b"\t",
    b"{",
    b"}",
    b"[",
    b"]",
    b"'",
    b"\"",
    b"#",
    b"&a ",
    b"*a",
    b"<<: *a",
    b"!!binary ",
    b"|\n",
    b">-\n",
    b"---\n",
    b"...\n",
    b"? ",
    b"%YAML 1.2\n",
    b"\xef\xbb\xbf",
    b"~",
    b".inf",
    b"18446744073709551616",
];

#[test]
fn every_file_is_judged_in_time_and_its_secrets_are_kept() {
    let folder = TempDir::new().expect("a folder");
    let secret = folder.path().join("hmac.key");
    fs::write(&secret, SECRET).expect("a file");
    let file = folder.path().join("tallygate.yaml");
    let seeds = seeds(&secret);
    let (mut accepted, mut refused) = (0, 0);
    driver::run(
        "every_file_is_judged",
        |random| mutate::mutated(random, &seeds, &WORDS),
        |bytes| {
            fs::write(&file, bytes).expect("a file");
            let loaded = Config::load(&file, None);
            let said = match &loaded {
                Ok(config) => {
                    accepted += 1;
                    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
                    tallygate::config::explain::page(&config.rules) + &warnings.join("\n")
                }
                Err(invalid) => {
                    refused += 1;
                    invalid.to_string()
                }
            };
            assert!(!said.contains("SECRET-CANARY"), "{said}");
            // A password or a name that the changes moved to where names of policies stand is no secret of that place.
            let text = String::from_utf8_lossy(bytes);
            let in_place = |before: &str, canary: &str| {
                text.matches(canary).count() == text.matches(&format!("{before}{canary}")).count()
            };
            assert!(!in_place("redis://:", PASSWORD) || !said.contains(PASSWORD), "{said}");
            assert!(!in_place("value: ", TENANT) || !said.contains(TENANT), "{said}");
        },
    );
    println!("{accepted} accepted, {refused} refused");
}
