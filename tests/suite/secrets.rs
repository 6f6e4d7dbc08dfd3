//! The HMAC secret: one reading rule, nothing short of it accepted, and a way to see that two sidecars disagree (RL-19).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::cli;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;

const BASE64: &str = "q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k=";

/// A sidecar of this Redis with these bytes as its secret, and the folder that they lie in.
fn with_secret(redis: &RedisServer, bytes: &[u8]) -> (Sidecar, TempDir) {
    let folder = TempDir::with_prefix("tallygate-secret-").unwrap();
    let file = folder.path().join("hmac.key");
    fs::write(&file, bytes).unwrap();
    let setup = Setup::redis(redis.port()).hmac(&format!("{{ secret_file: '{}' }}", file.display()));
    (setup.policy("orders", 1, "60s", "closed").start(), folder)
}

/// What two sidecars can be told apart by.
fn fingerprint(sidecar: &Sidecar) -> String {
    let metrics = sidecar.metrics();
    let series = metrics.names().into_iter().find(|name| name.starts_with("tallygate_hmac_secret{"));
    series.expect("the fingerprint is a metric").to_owned()
}

#[test]
fn files_that_differ_by_a_final_line_end_are_one_secret() {
    let redis = RedisServer::start();
    let (first, _one) = with_secret(&redis, BASE64.as_bytes());
    for ending in ["\n", "\r\n"] {
        let (other, _other) = with_secret(&redis, format!("{BASE64}{ending}").as_bytes());
        assert_eq!(fingerprint(&first), fingerprint(&other), "{ending:?}");
        let subject = Check::of(&format!("ada{}", ending.len()));
        assert_eq!(first.client().check(&subject).outcome(), Outcome::Allowed);
        assert_eq!(
            other.client().check(&subject).outcome(),
            Outcome::Limited,
            "{ending:?}: it counts under the same key"
        );
    }
}

#[test]
fn other_bytes_are_another_secret_and_it_shows() {
    let redis = RedisServer::start();
    let random: Vec<u8> = (0..32).map(|n| (n * 7) ^ 0xa5).collect();
    // White space is not trimmed from random bytes: only one line end is.
    let spaced = [b" ", &random[..], b"\n"].concat();
    let mut seen = Vec::new();
    for bytes in
        [BASE64.as_bytes(), &format!("{BASE64}\n\n").into_bytes(), &format!(" {BASE64}").into_bytes(), &random, &spaced]
    {
        let (sidecar, _folder) = with_secret(&redis, bytes);
        assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed, "{bytes:?}: keys of its own");
        let shown = fingerprint(&sidecar);
        assert!(!seen.contains(&shown), "{bytes:?}: {shown}");
        let digits = shown.split('"').nth(1).unwrap();
        assert!(digits.len() == 8 && sidecar.log().contains(digits), "the log shows it too: {shown}");
        seen.push(shown);
    }
    assert_eq!(redis.keys().len(), seen.len());
}

#[test]
fn what_is_no_secret_of_32_bytes_is_refused_at_the_start() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("tallygate.yaml");
    let check = |secret: &Path| {
        fs::write(&file, Setup::redis(9).policy("orders", 1, "60s", "closed").text(secret)).unwrap();
        cli::run(&["serve", "--config", file.to_str().unwrap()])
    };
    let secret = folder.path().join("hmac.key");
    // The last has 32 bytes, of which one is a line end.
    for short in [&b""[..], b"\n", b"\r\n", b"12345678", b" 0123456789abcdef0123456789abcd\n"] {
        fs::write(&secret, short).unwrap();
        let done = check(&secret);
        assert_eq!(done.code, Some(78), "{short:?}: {done:?}");
        assert!(done.stderr.contains("hmac.secret_file: the HMAC secret has "), "{}", done.stderr);
    }
    fs::write(&secret, [b'x'; 65 * 1024]).unwrap();
    assert!(check(&secret).stderr.contains("a secret has at most"));
    let missing = check(&folder.path().join("nowhere.key"));
    assert!(missing.code == Some(78) && missing.stderr.contains("nowhere.key: No such file"), "{missing:?}");
    let directory = check(folder.path());
    assert!(directory.code == Some(78) && directory.stderr.contains("is a folder, wanted a file"), "{directory:?}");
}

#[test]
fn a_secret_that_cannot_be_read_is_refused() {
    let folder = TempDir::new().unwrap();
    let (file, secret) = (folder.path().join("tallygate.yaml"), folder.path().join("hmac.key"));
    fs::write(&secret, BASE64).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    // Whoever may read every file is not stopped by a mode: a loop of links stops everybody.
    if fs::read(&secret).is_ok() {
        fs::remove_file(&secret).unwrap();
        std::os::unix::fs::symlink("hmac.key", &secret).unwrap();
    }
    fs::write(&file, Setup::redis(9).policy("orders", 1, "60s", "closed").text(&secret)).unwrap();
    let done = cli::run(&["serve", "--config", file.to_str().unwrap()]);
    assert!(done.code == Some(78) && done.stderr.contains("hmac.secret_file: "), "{done:?}");
}

#[test]
fn a_secret_that_changes_takes_effect_with_a_restart_and_a_bad_one_never() {
    let redis = RedisServer::start();
    let (sidecar, folder) = with_secret(&redis, BASE64.as_bytes());
    let (client, before) = (sidecar.client(), fingerprint(&sidecar));
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
    let put = |bytes: &str, said: &str| {
        let told = sidecar.log().matches(said).count();
        fs::write(folder.path().join("hmac.key"), bytes).unwrap();
        sidecar.sighup();
        wait_for(said, Duration::from_secs(5), || sidecar.log().matches(said).count() > told);
        assert_eq!(fingerprint(&sidecar), before);
        assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Limited, "the counters are the same: {said}");
    };
    put("another secret of more than 32 bytes\n", "takes effect only with a restart");
    put("short", "the changed file was refused");
    assert_eq!(sidecar.metrics().count("tallygate_config_last_reload_failed", &[]), 1);
    assert_eq!(redis.keys().len(), 1);
}
