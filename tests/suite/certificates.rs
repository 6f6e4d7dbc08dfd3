//! How long the certificates that a configuration names are still good for: in the metrics, and in `doctor`.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use crate::support::cli;
use crate::support::process::Finished;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::write_files;
use crate::support::tls::pem;
use crate::support::wait::wait_for;

/// For what happens by itself; how soon is not judged here.
const PATIENCE: Duration = Duration::from_secs(20);
const DAY: f64 = 86_400.0;
/// 2021-03-04 00:00:00 UTC, the end of `expired`.
const ENDED: f64 = 1_614_816_000.0;

fn days_since_it_ended() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (now.as_secs_f64() - ENDED) / DAY
}

fn identity(certificate: &str) -> String {
    let (chain, key) = (pem(certificate), pem(&format!("{certificate}-key")));
    format!("certificate_file: '{}', private_key_file: '{}'", chain.display(), key.display())
}

fn setup(redis: u16, client: &str) -> Setup {
    let tls = format!("tls: {{ {}, ca_file: '{}' }}", identity(client), pem("mesh").display());
    let store = format!("{{ redis: {{ url: 'rediss://127.0.0.1:{redis}', {tls} }} }}");
    Setup::store(&store).policy("orders", 3, "60s", "closed").tls(&identity("sidecar"))
}

fn doctor(setup: &Setup) -> Finished {
    let dir = TempDir::new().unwrap();
    let config = write_files(&dir, setup);
    cli::run(&["doctor".as_ref(), "--config".as_ref(), config.as_os_str()])
}

#[test]
fn metrics_count_the_days_that_each_certificate_is_left() {
    let redis = RedisServer::start();
    let sidecar = setup(redis.port(), "expired").start_without_store();
    let metrics = sidecar.metrics();
    let left = |setting: &str| metrics.value("tallygate_certificate_days_left", &[("setting", setting)]);
    let expired = left("store.redis.tls.certificate_file");
    assert!((expired + days_since_it_ended()).abs() < 0.01, "{expired}");
    for setting in ["server.tls.certificate_file", "store.redis.tls.ca_file"] {
        // They were made for a hundred years.
        assert!((30_000.0..36_500.0).contains(&left(setting)), "{setting}: {}", left(setting));
    }
    let series = metrics.names().into_iter().filter(|name| name.starts_with("tallygate_certificate_days_left"));
    assert_eq!(series.count(), 3, "and none for a key");
}

#[test]
fn a_renewed_certificate_is_seen_without_a_restart() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let put = |certificate: &str| {
        fs::copy(pem(&format!("{certificate}-key")), at("tls.key")).unwrap();
        fs::copy(pem(certificate), at("tls.crt")).unwrap();
    };
    put("expired");
    let tls =
        format!("certificate_file: '{}', private_key_file: '{}'", at("tls.crt").display(), at("tls.key").display());
    let sidecar = Setup::memory().policy("orders", 3, "60s", "closed").tls(&tls).start();
    let setting = [("setting", "server.tls.certificate_file")];
    let left = || sidecar.metrics().value("tallygate_certificate_days_left", &setting);
    assert!(left() < 0.0, "{}", left());
    assert!(sidecar.log().contains("has expired on 2021-03-04: renew it"), "{}", sidecar.log());
    put("sidecar");
    wait_for("the renewed certificate", PATIENCE, || left() > 30_000.0);
}

// A renewed authority stands beside the old one until nobody shows a certificate of that any more.
#[test]
fn authorities_are_good_for_as_long_as_their_last() {
    let dir = TempDir::new().unwrap();
    let authorities = dir.path().join("ca.crt");
    fs::write(&authorities, [fs::read(pem("expired")).unwrap(), fs::read(pem("mesh")).unwrap()].concat()).unwrap();
    let shown = authorities.display();
    let store = format!("{{ redis: {{ url: 'rediss://127.0.0.1:9', tls: {{ ca_file: '{shown}' }} }} }}");
    let tls = format!("{}, client_ca_file: '{shown}'", identity("sidecar"));
    let sidecar = Setup::store(&store).policy("orders", 3, "60s", "closed").tls(&tls).start_without_store();
    for setting in ["server.tls.client_ca_file", "store.redis.tls.ca_file"] {
        let left = sidecar.metrics().value("tallygate_certificate_days_left", &[("setting", setting)]);
        assert!(left > 30_000.0, "{setting}: {left}");
    }
    assert!(!sidecar.log().contains("expire"), "{}", sidecar.log());
}

#[test]
fn a_doctor_names_the_certificates_and_when_they_end() {
    let redis = RedisServer::start();
    let done = doctor(&setup(redis.port(), "expired"));
    assert_eq!(done.code, Some(69), "{done:?}");
    let line = |start: &str| {
        let found = done.stdout.lines().find(|line| line.starts_with(start)).map(str::to_owned);
        found.unwrap_or_else(|| panic!("no line {start:?} in:\n{}", done.stdout))
    };
    assert!(line("problem  store.redis.tls.certificate_file").ends_with("expired.pem has expired on 2021-03-04"));
    assert!(done.stdout.contains("-> renew it"), "{}", done.stdout);
    assert!(line("ok       server.tls.certificate_file").contains("sidecar.pem expires on 21"));
    assert!(line("ok       store.redis.tls.ca_file").contains("mesh.pem expires on 21"));
}

#[test]
fn a_doctor_looks_at_certificates_beside_the_embedded_store_too() {
    let done = doctor(&Setup::memory().policy("orders", 3, "60s", "closed").tls(&identity("expired")));
    assert_eq!(done.code, Some(69), "{done:?}");
    assert!(done.stdout.contains("problem  server.tls.certificate_file"), "{}", done.stdout);
}
