//! Handshakes with clients and certificates of every kind: who gets in does not depend on versions, keys or chains, and never
//! on what was agreed upon before.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::greeting::{Greeter, Greeting, Shown, VERSIONS};
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::tls::pem;
use crate::support::wait::wait_for;

/// For what happens by itself; how soon is not judged here.
const PATIENCE: Duration = Duration::from_secs(20);
const EDGE: &str = "spiffe://td.example/ns/edge/sa/envoy";
const SHOP: &str = "spiffe://td.example/ns/shop/sa/web";

/// A folder for files that a test puts together from those of `certs/`.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::with_prefix("tallygate-tls-").unwrap())
    }

    /// All of `parts`, in the file `name`, put there whole.
    fn put(&self, name: &str, parts: &[&str]) -> PathBuf {
        let whole: Vec<u8> = parts.iter().flat_map(|part| fs::read(pem(part)).unwrap()).collect();
        fs::write(self.0.path().join("new"), whole).unwrap();
        fs::rename(self.0.path().join("new"), self.0.path().join(name)).unwrap();
        self.0.path().join(name)
    }
}

fn setup(chain: &Path, key: &Path, authorities: &Path, allowed: &[&str]) -> Setup {
    let allowed = match allowed {
        [] => String::new(),
        ids => format!(", allowed_clients: ['{}']", ids.join("', '")),
    };
    Setup::memory().policy("orders", 1000, "60s", "closed").tls(&format!(
        "certificate_file: '{}', private_key_file: '{}', client_ca_file: '{}'{allowed}",
        chain.display(),
        key.display(),
        authorities.display()
    ))
}

/// With a certificate of the mesh, for these clients of `authority`.
fn for_clients(authority: &str, allowed: &[&str]) -> Setup {
    setup(&pem("sidecar"), &pem("sidecar-key"), &pem(authority), allowed)
}

fn refused(sidecar: &Sidecar, reason: &str) -> u64 {
    sidecar.metrics().count("tallygate_tls_handshakes_refused_total", &[("reason", reason)])
}

#[track_caller]
fn is_refused(sidecar: &Sidecar, client: &Greeter, reason: &str) {
    let before = refused(sidecar, reason);
    let greeting = client.greet(sidecar.grpc());
    assert!(greeting.is_err(), "got in, and should be refused for {reason}: {greeting:?}");
    wait_for(&format!("a refusal for {reason}"), PATIENCE, || refused(sidecar, reason) > before);
}

/// What is counted is in the log soon.
#[track_caller]
fn says(sidecar: &Sidecar, words: &str) {
    wait_for(&format!("the log to say {words}"), PATIENCE, || sidecar.log().contains(words));
}

#[track_caller]
fn gets_in(sidecar: &Sidecar, client: &Greeter, who: &str) -> Greeting {
    client.greet(sidecar.grpc()).unwrap_or_else(|error| panic!("{who} is refused: {error}\n{}", sidecar.log()))
}

#[test]
fn who_may_ask_is_the_same_with_every_version_of_tls() {
    let sidecar = for_clients("mesh", &[EDGE]).start();
    for version in VERSIONS {
        let client = |name| Greeter::usual("mesh", name, version);
        assert_eq!(
            gets_in(&sidecar, &client("envoy"), "the listed one").authorities,
            1,
            "it is told whose certificate"
        );
        is_refused(&sidecar, &client("neighbour"), "not_allowed");
        is_refused(&sidecar, &client("two-ids"), "not_allowed");
        is_refused(&sidecar, &client("expired"), "out_of_date");
        is_refused(&sidecar, &client("client"), "unknown_authority");
        // The certificate of the listed one is public: only its key proves anything.
        let thief = Shown { chain: &["envoy"], key: "neighbour-key" };
        is_refused(&sidecar, &Greeter::new("mesh", &thief, version, &["h2"]), "other");
        gets_in(&sidecar, &client("envoy"), "the listed one, after the others");
    }
    // Whoever tries again and again does not fill the log: a line a minute for each reason.
    for reason in ["not_allowed", "out_of_date", "unknown_authority", "other"] {
        assert_eq!(
            sidecar.log().matches(&format!(r#""reason":"{reason}""#)).count(),
            1,
            "{reason}:\n{}",
            sidecar.log()
        );
    }
}

#[test]
fn a_client_is_listed_by_its_whole_id_and_no_other_spelling() {
    let near = [
        "spiffe://td.example/ns/edge",
        "spiffe://td.example/ns/edge/sa/Envoy",
        "spiffe://td.example/ns/edge/sa/envoy-2",
    ];
    let sidecar = for_clients("mesh", &near).start();
    is_refused(&sidecar, &Greeter::usual("mesh", "envoy", VERSIONS[1]), "not_allowed");
}

// Operators have one certificate at hand, and it is the server's.
#[test]
fn a_certificate_for_servers_only_is_no_clients_and_the_log_says_so() {
    let sidecar = for_clients("mesh", &[]).start();
    for version in VERSIONS {
        is_refused(&sidecar, &Greeter::usual("mesh", "sidecar", version), "wrong_purpose");
    }
    says(&sidecar, "the extended key usage lacks clientAuth");
}

#[test]
fn a_certificate_whose_time_has_not_come_is_refused() {
    let sidecar = for_clients("edge", &[]).start();
    for version in VERSIONS {
        gets_in(&sidecar, &Greeter::usual("mesh", "edge-rsa", version), "one in its time");
        is_refused(&sidecar, &Greeter::usual("mesh", "early", version), "out_of_date");
    }
}

#[test]
fn keys_of_each_kind_serve_and_ask() {
    for own in ["edge-rsa", "edge-ed25519"] {
        let key = pem(&format!("{own}-key"));
        let sidecar = setup(&pem(own), &key, &pem("edge"), &[]).start();
        for (version, client) in VERSIONS.into_iter().flat_map(|v| ["edge-rsa", "edge-ed25519"].map(|c| (v, c))) {
            gets_in(&sidecar, &Greeter::usual("edge", client, version), client);
        }
    }
}

#[test]
fn certificates_are_believed_through_those_between_them_and_their_authority() {
    let folder = Folder::new();
    let chain = folder.put("chain.crt", &["edge-issued", "issuing"]);
    let issued = ["spiffe://edge.example/issued"];
    let sidecar = setup(&chain, &pem("edge-issued-key"), &pem("edge"), &issued).start();
    for version in VERSIONS {
        let with = |chain| Greeter::new("edge", &Shown { chain, key: "edge-issued-key" }, version, &["h2"]);
        gets_in(&sidecar, &with(&["edge-issued", "issuing"]), "the whole chain");
        is_refused(&sidecar, &with(&["edge-issued"]), "unknown_authority");
    }
    // What counts of a chain is its first certificate: those behind it only vouch.
    let other = setup(&chain, &pem("edge-issued-key"), &pem("edge"), &["spiffe://edge.example/edge-rsa"]).start();
    let shown = Shown { chain: &["edge-issued", "edge-rsa", "issuing"], key: "edge-issued-key" };
    is_refused(&other, &Greeter::new("edge", &shown, VERSIONS[1], &["h2"]), "not_allowed");
}

// As some tools write it.
#[test]
fn one_file_may_hold_both_certificate_and_key() {
    for parts in [["sidecar", "sidecar-key"], ["sidecar-key", "sidecar"]] {
        let folder = Folder::new();
        let both = folder.put("both.pem", &parts);
        let sidecar = setup(&both, &both, &pem("mesh"), &[]).start();
        gets_in(&sidecar, &Greeter::usual("mesh", "envoy", VERSIONS[1]), "a client");
    }
}

#[test]
fn a_client_that_speaks_no_http_2_is_refused_and_one_that_does_not_say_is_not() {
    let sidecar = for_clients("mesh", &[]).start();
    for version in VERSIONS {
        let shown = Shown { chain: &["envoy"], key: "envoy-key" };
        let with = |protocols: &[&str]| Greeter::new("mesh", &shown, version, protocols);
        is_refused(&sidecar, &with(&["http/1.1"]), "incompatible");
        for protocols in [&["h2"][..], &["http/1.1", "h2"]] {
            let greeting = gets_in(&sidecar, &with(protocols), "a client of HTTP/2");
            assert_eq!(greeting.protocol.as_deref(), Some("h2"), "{protocols:?}");
        }
        assert_eq!(gets_in(&sidecar, &with(&[]), "one that does not say").protocol, None);
    }
    says(&sidecar, "h2 among its alpn_protocols");
}

// A session that is resumed brings its old certificate with it, which may have expired or been taken off the list.
#[test]
fn no_client_comes_back_by_what_was_agreed_upon_before() {
    let sidecar = for_clients("mesh", &[EDGE, SHOP]).start();
    let clients: Vec<_> = VERSIONS
        .iter()
        .map(|version| ["envoy", "neighbour"].map(|name| Greeter::usual("mesh", name, version)))
        .collect();
    for [edge, shop] in &clients {
        for client in [edge, shop, edge, shop] {
            assert!(!gets_in(&sidecar, client, "a listed one").is_resumed, "it shows its certificate each time");
        }
    }
    sidecar.reload(&for_clients("mesh", &[EDGE]));
    for [edge, shop] in &clients {
        is_refused(&sidecar, shop, "not_allowed");
        gets_in(&sidecar, edge, "who is still listed");
    }
}

// The way an authority is renewed: both are believed, everybody gets a new certificate, the old one goes.
#[test]
fn an_authority_is_renewed_beside_the_old_one() {
    let folder = Folder::new();
    let authorities = folder.put("ca.crt", &["mesh"]);
    let sidecar = setup(&pem("sidecar"), &pem("sidecar-key"), &authorities, &[]).start();
    let [old, new] = ["envoy", "edge-rsa"].map(|name| Greeter::usual("mesh", name, VERSIONS[1]));
    gets_in(&sidecar, &old, "a client of the old one");
    is_refused(&sidecar, &new, "unknown_authority");
    folder.put("ca.crt", &["mesh", "edge"]);
    wait_for("the new one to be believed", PATIENCE, || new.greet(sidecar.grpc()).is_ok());
    gets_in(&sidecar, &old, "a client of the old one, beside the new one");
    folder.put("ca.crt", &["edge"]);
    wait_for("the old one to be forgotten", PATIENCE, || old.greet(sidecar.grpc()).is_err());
    gets_in(&sidecar, &new, "a client of the new one");
}

// A regression: what changed between the reading of the files and the first look at them was never seen. On a busy machine that
// is some time.
#[test]
fn a_renewal_in_the_moment_of_the_start_is_not_missed() {
    let changed_after = |delay: Duration| {
        let folder = Folder::new();
        let authorities = folder.put("ca.crt", &["mesh"]);
        let setup = setup(&pem("sidecar"), &pem("sidecar-key"), &authorities, &[]);
        let changing = thread::spawn(move || {
            thread::sleep(delay);
            folder.put("ca.crt", &["edge"]);
            folder
        });
        let sidecar = setup.start_without_store();
        let _kept = changing.join().unwrap();
        let new = Greeter::usual("mesh", "edge-rsa", VERSIONS[1]);
        wait_for(&format!("what changed after {delay:?}"), PATIENCE, || new.greet(sidecar.grpc()).is_ok());
    };
    // Side by side, so that each has little of the machine.
    thread::scope(|scope| {
        for n in 0..24 {
            scope.spawn(move || changed_after(Duration::from_millis(5 * n)));
        }
    });
}

#[test]
fn files_that_vanish_take_nothing_away_until_they_are_there_again() {
    let folder = Folder::new();
    let [chain, key] = [folder.put("tls.crt", &["sidecar"]), folder.put("tls.key", &["sidecar-key"])];
    let authorities = folder.put("ca.crt", &["mesh"]);
    let sidecar = setup(&chain, &key, &authorities, &[]).start();
    let client = Greeter::usual("mesh", "envoy", VERSIONS[1]);
    let failed = || sidecar.metrics().count("tallygate_config_last_reload_failed", &[]);
    for (name, part) in [("tls.crt", "sidecar"), ("tls.key", "sidecar-key"), ("ca.crt", "mesh")] {
        fs::remove_file(folder.0.path().join(name)).unwrap();
        wait_for("its absence to be told", PATIENCE, || failed() == 1);
        gets_in(&sidecar, &client, &format!("a client without {name}"));
        let setting = [("setting", "server.tls.certificate_file")];
        assert!(sidecar.metrics().value("tallygate_certificate_days_left", &setting) > 30_000.0);
        folder.put(name, &[part]);
        wait_for("its return", PATIENCE, || failed() == 0);
    }
}
