//! TLS with those who ask (`server.tls`): who may, who may not, and what the operator reads about it.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::cli;
use crate::support::grpc::Client;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::tls::pem;
use crate::support::wait::{poll, wait_for};

/// For what happens by itself; how soon is not judged here.
const PATIENCE: Duration = Duration::from_secs(20);
const ENVOY: &str = "spiffe://td.example/ns/edge/sa/envoy";

fn own(certificate: &Path, key: &Path) -> String {
    format!("certificate_file: '{}', private_key_file: '{}'", certificate.display(), key.display())
}

fn sidecars_own() -> String {
    own(&pem("sidecar"), &pem("sidecar-key"))
}

/// Believes clients of the mesh's authority, with these further settings.
fn for_the_mesh(more: &str) -> String {
    format!("{}, client_ca_file: '{}'{more}", sidecars_own(), pem("mesh").display())
}

fn setup(tls: &str) -> Setup {
    Setup::memory().policy("orders", 1000, "60s", "closed").tls(tls)
}

/// Whether a check of a client with this certificate is answered. TLS 1.3 lets a client send before it hears that it is refused,
/// so that the connection alone says nothing.
fn is_answered(sidecar: &Sidecar, certificate: Option<&str>) -> bool {
    let client = Client::over_tls(sidecar.grpc(), "mesh", certificate);
    client.is_ok_and(|client| {
        client.try_check(&Check::of("ada")).is_ok_and(|answer| answer.outcome() == Outcome::Allowed)
    })
}

#[track_caller]
fn is_refused(sidecar: &Sidecar, certificate: Option<&str>, reason: &str) {
    let refused = || sidecar.metrics().count("tallygate_tls_handshakes_refused_total", &[("reason", reason)]);
    let before = refused();
    assert!(!is_answered(sidecar, certificate), "{certificate:?} is answered");
    wait_for("the refusal to be counted", PATIENCE, || refused() > before);
}

/// The line about refusals for this reason, which comes right behind the first of them.
#[track_caller]
fn line(sidecar: &Sidecar, reason: &str) -> String {
    let is_it = |line: &&str| line.contains(&format!(r#""reason":"{reason}""#));
    let line = poll(PATIENCE, || sidecar.log().lines().find(is_it).map(str::to_owned));
    line.unwrap_or_else(|| panic!("no line about {reason} in:\n{}", sidecar.log()))
}

#[test]
fn only_the_listed_clients_of_the_authority_may_ask() {
    let sidecar = setup(&for_the_mesh(&format!(", allowed_clients: ['{ENVOY}']"))).start();
    assert!(is_answered(&sidecar, Some("envoy")));
    is_refused(&sidecar, Some("neighbour"), "not_allowed");
    is_refused(&sidecar, Some("two-ids"), "not_allowed");
    is_refused(&sidecar, Some("client"), "unknown_authority");
    is_refused(&sidecar, Some("expired"), "out_of_date");
    is_refused(&sidecar, None, "no_certificate");
    assert!(is_answered(&sidecar, Some("envoy")), "nobody else's refusal is its own");
    assert!(line(&sidecar, "not_allowed").contains("server.tls.allowed_clients"));
    assert!(line(&sidecar, "unknown_authority").contains("server.tls.client_ca_file"));
}

#[test]
fn every_client_of_the_authority_may_ask_where_none_is_listed() {
    let sidecar = setup(&for_the_mesh("")).start();
    assert!(is_answered(&sidecar, Some("envoy")) && is_answered(&sidecar, Some("neighbour")));
    is_refused(&sidecar, Some("client"), "unknown_authority");
    is_refused(&sidecar, None, "no_certificate");
}

#[test]
fn without_an_authority_whoever_believes_the_certificate_may_ask() {
    let sidecar = setup(&sidecars_own()).start();
    assert!(is_answered(&sidecar, None));
    assert!(Client::over_tls(sidecar.grpc(), "ca", None).is_err(), "another authority does not vouch for it");
    let by_client = [("reason", "by_client")];
    let counted = || sidecar.metrics().count("tallygate_tls_handshakes_refused_total", &by_client) == 1;
    wait_for("the client's refusal to be counted", PATIENCE, counted);
    assert!(line(&sidecar, "by_client").contains("server.tls.certificate_file"));
}

// What is counted as closed is no line in the log: a probe looks at the port each few seconds.
#[test]
fn plain_clients_and_silent_ones_do_not_hold_up_the_others() {
    let sidecar = setup(&for_the_mesh("")).start();
    let silent: Vec<_> = (0..50).map(|_| TcpStream::connect(sidecar.grpc()).unwrap()).collect();
    assert!(is_answered(&sidecar, Some("envoy")), "beside 50 connections that say nothing");
    let patient = TcpStream::connect(sidecar.grpc()).unwrap();
    drop(silent);
    let refused = |reason| sidecar.metrics().count("tallygate_tls_handshakes_refused_total", &[("reason", reason)]);
    wait_for("the silent ones to be counted", PATIENCE, || refused("closed") == 50);
    let plain = cli::run(&["probe", "--address", sidecar.grpc()]);
    assert!(plain.code.is_some_and(|code| code != 0), "a plain client is answered: {plain:?}");
    wait_for("the plain one to be counted", PATIENCE, || refused("not_tls") > 0);
    wait_for("the last silent one to be given up", PATIENCE, || refused("timeout") == 1);
    drop(patient);
    assert!(line(&sidecar, "not_tls").contains("TLS transport socket"));
    line(&sidecar, "timeout");
    assert!(!sidecar.log().contains("\"closed\""), "{}", sidecar.log());
}

/// A folder whose files an operator renews.
struct Renewed(TempDir);

impl Renewed {
    fn new() -> Self {
        let renewed = Self(TempDir::with_prefix("tallygate-tls-").unwrap());
        renewed.put("sidecar");
        renewed
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, certificate: &str) {
        for (from, to) in [(certificate.to_owned(), "tls.crt"), (format!("{certificate}-key"), "tls.key")] {
            self.put_one(&from, to);
        }
    }

    fn put_one(&self, from: &str, to: &str) {
        fs::copy(pem(from), self.at("new")).unwrap();
        fs::rename(self.at("new"), self.at(to)).unwrap();
    }

    fn settings(&self) -> String {
        own(&self.at("tls.crt"), &self.at("tls.key"))
    }
}

#[test]
fn a_renewed_certificate_is_shown_to_new_connections_and_old_ones_live_on() {
    let files = Renewed::new();
    let sidecar = setup(&files.settings()).start();
    let old = Client::over_tls(sidecar.grpc(), "mesh", None).unwrap();
    assert_eq!(old.check(&Check::of("ada")).outcome(), Outcome::Allowed);
    // Another authority's, so that who believes it tells which one is shown.
    files.put("loopback");
    wait_for("the new certificate", PATIENCE, || {
        Client::over_tls(sidecar.grpc(), "ca", None).is_ok_and(|new| new.try_check(&Check::of("ada")).is_ok())
    });
    assert!(Client::over_tls(sidecar.grpc(), "mesh", None).is_err(), "the old one is gone");
    assert_eq!(old.check(&Check::of("ada")).outcome(), Outcome::Allowed, "on its old connection");
}

#[test]
fn half_a_renewal_is_refused_and_the_old_certificate_stays_in_use() {
    let files = Renewed::new();
    let sidecar = setup(&files.settings()).start();
    files.put_one("loopback", "tls.crt");
    wait_for("the refusal", PATIENCE, || sidecar.metrics().count("tallygate_config_last_reload_failed", &[]) == 1);
    wait_for("the log to say why", PATIENCE, || {
        sidecar.log().contains("the private key does not belong to the certificate")
    });
    assert!(is_answered(&sidecar, None));
    files.put_one("loopback-key", "tls.key");
    wait_for("the whole renewal", PATIENCE, || {
        sidecar.metrics().count("tallygate_config_last_reload_failed", &[]) == 0
    });
    assert!(Client::over_tls(sidecar.grpc(), "ca", None).is_ok_and(|new| new.try_check(&Check::of("ada")).is_ok()));
}

// A client that was taken off the list must not come back by resuming what it once agreed upon.
#[test]
fn a_client_that_is_listed_no_more_is_refused_without_a_restart() {
    let listed = |ids: &str| setup(&for_the_mesh(&format!(", allowed_clients: [{ids}]")));
    let neighbour = "spiffe://td.example/ns/shop/sa/web";
    let sidecar = listed(&format!("'{ENVOY}', '{neighbour}'")).start();
    assert!(is_answered(&sidecar, Some("neighbour")));
    sidecar.reload(&listed(&format!("'{ENVOY}'")));
    is_refused(&sidecar, Some("neighbour"), "not_allowed");
    assert!(is_answered(&sidecar, Some("envoy")));
}

#[test]
fn beginning_with_tls_needs_a_restart_and_says_so() {
    let sidecar = Setup::memory().policy("orders", 1000, "60s", "closed").start();
    sidecar.reload(&setup(&sidecars_own()));
    wait_for("the line about it", PATIENCE, || {
        sidecar.log().lines().any(|line| line.contains("server.tls") && line.contains("only with a restart"))
    });
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed, "plain as before");
}

#[test]
fn a_probe_speaks_tls() {
    let sidecar = setup(&for_the_mesh("")).start();
    let path = |name: &str| pem(name).display().to_string();
    let (ca, certificate, key) = (path("mesh"), path("envoy"), path("envoy-key"));
    let ask = ["probe", "--address", sidecar.grpc(), "--health"];
    let known = ["--tls-ca", &ca, "--tls-certificate", &certificate, "--tls-private-key", &key];
    let done = cli::run(&[&ask[..], &known].concat());
    assert_eq!((done.code, done.stdout.trim()), (Some(0), "serving"), "{done:?}");
    for (stranger, remedy) in [(&known[..2], "say --tls-certificate"), (&[], "say --tls-ca")] {
        let done = cli::run(&[&ask[..], stranger].concat());
        assert!(done.code == Some(69) && done.stderr.contains(remedy), "{done:?}");
    }
    let done = cli::run(&[&ask[..], &["--tls-ca", "/nowhere/ca.pem"]].concat());
    assert!(done.stderr.contains("/nowhere/ca.pem: No such file"), "{done:?}");
}
