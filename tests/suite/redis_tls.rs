//! TLS towards Redis: who vouches for whom, and what the log says when nobody does.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::cluster::Cluster;
use crate::support::keys;
use crate::support::ports;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::tls::{TlsFront, pem};
use crate::support::wait::wait_for;

/// A sidecar that speaks TLS to this port, with these settings of `tls`.
fn start(port: u16, tls: &str) -> Sidecar {
    let store = format!("{{ redis: {{ url: 'rediss://127.0.0.1:{port}', tls: {{ {tls} }} }} }}");
    Setup::store(&store).policy("orders", 100, "60s", "closed").start_without_store()
}

fn ca(name: &str) -> String {
    format!("ca_file: '{}'", pem(name).display())
}

fn client(name: &str) -> String {
    let (certificate, key) = (pem(name), pem(&format!("{name}-key")));
    let (certificate, key) = (certificate.display(), key.display());
    format!("{}, certificate_file: '{certificate}', private_key_file: '{key}'", ca("ca"))
}

#[track_caller]
fn passes(sidecar: &Sidecar) {
    let client = sidecar.client();
    wait_for("a check to pass", Duration::from_secs(10), || {
        client.check(&Check::of("ada")).outcome() == Outcome::Allowed
    });
}

/// Checks fail, Redis hears nothing, and the log names the cause.
#[track_caller]
fn is_refused(redis: &RedisServer, sidecar: &Sidecar, cause: &str) {
    let lines = || sidecar.log().lines().filter(|line| line.contains("cannot be used")).collect::<String>();
    wait_for("the log to tell why", Duration::from_secs(5), || !lines().is_empty());
    assert!(lines().contains(cause), "{cause:?} is not in: {}", lines());
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Failed);
    assert_eq!(redis.keys(), [""; 0]);
}

#[test]
fn a_server_is_trusted_by_its_authority() {
    let redis = RedisServer::start();
    let front = TlsFront::start(redis.port(), "loopback");
    passes(&start(front.port(), &ca("ca")));
    assert_eq!(redis.get(&keys::orders("ada")).as_deref(), Some("1"));
}

#[test]
fn a_server_of_another_authority_is_refused_until_the_file_is_right() {
    let redis = RedisServer::start();
    let front = TlsFront::start(redis.port(), "loopback");
    let dir = TempDir::with_prefix("tallygate-ca-").unwrap();
    let file = dir.path().join("ca.pem");
    fs::copy(pem("other-ca"), &file).unwrap();
    let sidecar = start(front.port(), &format!("ca_file: '{}'", file.display()));
    is_refused(&redis, &sidecar, "UnknownIssuer");
    fs::copy(pem("ca"), &file).unwrap();
    passes(&sidecar);
}

#[test]
fn without_a_ca_file_the_systems_authorities_decide() {
    let redis = RedisServer::start();
    let front = TlsFront::start(redis.port(), "loopback");
    is_refused(&redis, &start(front.port(), ""), "UnknownIssuer");
}

#[test]
fn a_server_that_wants_to_know_its_clients_gets_a_certificate() {
    let redis = RedisServer::start();
    let front = TlsFront::start_for_known_clients(redis.port(), "loopback");
    is_refused(&redis, &start(front.port(), &ca("ca")), "CertificateRequired");
    is_refused(&redis, &start(front.port(), &client("stranger")), "UnknownCA");
    passes(&start(front.port(), &client("client")));
}

#[test]
fn a_certificate_for_another_name_is_refused_unless_that_name_is_configured() {
    let redis = RedisServer::start();
    let front = TlsFront::start(redis.port(), "named");
    is_refused(&redis, &start(front.port(), &ca("ca")), "not valid for name");
    passes(&start(front.port(), &format!("{}, server_name: redis.example", ca("ca"))));
}

#[test]
fn tls_on_one_side_only_is_told() {
    let redis = RedisServer::start();
    let front = TlsFront::start(redis.port(), "loopback");
    is_refused(&redis, &start(redis.port(), &ca("ca")), "perhaps it does not speak TLS");
    let plain = Setup::redis(front.port()).policy("orders", 100, "60s", "closed").start_without_store();
    is_refused(&redis, &plain, "perhaps it wants TLS");
}

#[test]
fn a_cluster_is_followed_over_tls() {
    let cluster = Cluster::start();
    let fronts: Vec<_> = cluster.nodes.iter().map(|node| TlsFront::start(node.port(), "named")).collect();
    cluster.announce(&fronts.iter().map(TlsFront::port).collect::<Vec<_>>());
    let seed = format!("cluster: {{ nodes: ['127.0.0.1:{}'] }}", fronts[0].port());
    let store = format!("{{ redis: {{ {seed}, tls: {{ {}, server_name: redis.example }} }} }}", ca("ca"));
    let sidecar = Setup::store(&store).policy("orders", 100, "60s", "closed").start();
    cluster.wait_for_all_shards(&sidecar);
    for (node, subject) in cluster.nodes.iter().zip(cluster.one_a_shard("subject")) {
        assert_eq!(sidecar.client().check(&Check::of(&subject)).outcome(), Outcome::Allowed);
        assert_eq!(node.get(&keys::orders(&subject)).as_deref(), Some("1"));
    }
}

// A file that is no certificate any more must not read as "nobody is trusted" alone. What is none at the start is refused
// there: tests/config/invalid.
#[test]
fn files_that_hold_no_certificate_any_more_are_told() {
    for (broken, wanted) in [("ca", "certificate"), ("client", "certificate"), ("client-key", "private key")] {
        let dir = TempDir::with_prefix("tallygate-ca-").unwrap();
        let at = |name: &str| dir.path().join(name).with_extension("pem");
        for name in ["ca", "client", "client-key"] {
            fs::copy(pem(name), at(name)).unwrap();
        }
        let setting = |key: &str, name: &str| format!("{key}: '{}'", at(name).display());
        let files = [("ca_file", "ca"), ("certificate_file", "client"), ("private_key_file", "client-key")];
        let tls = files.map(|(key, name)| setting(key, name)).join(", ");
        // Nobody listens there, so each attempt reads the files anew and gets no further.
        let sidecar = start(ports::free(), &tls);
        fs::write(at(broken), "neither this nor that\n").unwrap();
        let told = format!("{}: holds no {wanted} in PEM form", at(broken).display());
        wait_for("the log to tell which file", Duration::from_secs(5), || sidecar.log().contains(&told));
    }
}
