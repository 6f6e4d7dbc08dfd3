//! `tallygate probe`: an operator's question to a running sidecar.

use tempfile::TempDir;

use crate::support::cli;
use crate::support::ports;
use crate::support::process::Finished;
use crate::support::setup::Setup;

fn probe(address: &str, more: &[&str]) -> Finished {
    let orders = ["probe", "--address", address];
    cli::run(&[&orders[..], more].concat())
}

const ADA: [&str; 6] = ["--path", "/orders", "--route", "tenant=acme", "--route", "subject=ada"];

#[test]
fn a_probe_prints_the_verdict() {
    let sidecar = Setup::memory().policy("orders", 1, "60s", "closed").start();
    let first = probe(sidecar.grpc(), &ADA);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.stdout.contains("allowed"), "{first:?}");
    let second = probe(sidecar.grpc(), &ADA);
    assert!(second.stdout.contains("denied") && second.stdout.contains("429"), "{second:?}");
    let nobody = probe(sidecar.grpc(), &["--path", "/orders", "--header", "x-user=ada", "--method", "POST"]);
    assert!(nobody.stdout.contains("unidentified"), "{nobody:?}");
}

#[test]
fn a_probe_reaches_a_unix_socket() {
    let dir = TempDir::new().unwrap();
    let address = format!("unix:{}/authz.sock", dir.path().display());
    let sidecar = Setup::memory().listen(&address).policy("orders", 1, "60s", "closed").start();
    assert!(probe(sidecar.grpc(), &ADA).stdout.contains("allowed"));
    assert_eq!(probe(sidecar.grpc(), &["--health"]).code, Some(0));
}

// Every kind of evidence that Envoy can send, so that whoever is asked about can be asked for.
#[test]
fn a_probe_brings_the_evidence_that_envoy_would() {
    let identity = "
  tenant: [{ route: tenant }]
  subject:
    - jwt: { claim: [realm, sub], issuers: [https://idp.example] }
    - jwt: { claim: sub, issuers: [https://idp.example] }
    - mtls: { trust_domain: td.example }
    - header: { name: x-user, trusted_because: set by the edge }
  address: { source: { call_metadata: x-clientip } }";
    let setup = Setup::memory().identity(identity).policy("orders", 1, "60s", "closed");
    let sidecar = setup.policy_per("sites", "[address]", 1, "60s", "closed").start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("request.json");
    let json = r#"{"attributes": {"request": {"http": {"method": "GET", "path": "/orders"}}, "contextExtensions": {"tenant": "acme"},
        "metadataContext": {"filterMetadata": {"envoy.filters.http.jwt_authn": {"jwt_payload":
            {"iss": "https://idp.example", "realm": {"sub": "eve"}, "n": 1, "on": true, "none": null, "list": ["x"]}}}}}}"#;
    std::fs::write(&file, json).unwrap();
    let orders = ["--path", "/orders", "--route", "tenant=acme"];
    for evidence in [
        &["--claim", "sub=ada", "--claim", "iss=https://idp.example"][..],
        &["--principal", "spiffe://td.example/ada"],
        &["--header", "X-User=ada"],
        &["--request", file.to_str().unwrap()],
        &["--path", "/sites", "--call", "x-clientip=203.0.113.7"],
    ] {
        let is_whole = evidence[0] == "--request" || evidence[0] == "--path";
        let asked = if is_whole { evidence.to_vec() } else { [&orders[..], evidence].concat() };
        let (first, second) = (probe(sidecar.grpc(), &asked), probe(sidecar.grpc(), &asked));
        assert!(first.stdout.contains("verdict=allowed"), "{evidence:?}: {first:?}");
        assert!(second.stdout.contains("verdict=denied"), "{evidence:?}: {second:?}");
    }
    let odd = probe(sidecar.grpc(), &["--call", "X Y=1"]);
    assert!(odd.code == Some(64) && odd.stderr.starts_with("--call X Y: "), "{odd:?}");
    let peer = Setup::memory().policy_per("sites", "[address]", 1, "60s", "closed").start();
    let from = |address| probe(peer.grpc(), &["--path", "/sites", "--source-address", address]).code;
    assert_eq!([from("203.0.113.7"), from("203.0.113.7"), from("203.0.113.8")], [Some(0), Some(1), Some(0)]);
}

#[test]
fn a_health_probe_tells_by_its_exit_code() {
    let sidecar = Setup::memory().policy("orders", 1, "60s", "closed").start();
    let healthy = probe(sidecar.grpc(), &["--health"]);
    assert_eq!(healthy.code, Some(0), "{healthy:?}");
    let gone = probe(&format!("127.0.0.1:{}", ports::free()), &["--health"]);
    assert!(gone.code.is_some_and(|code| code != 0), "{gone:?}");
    assert!(gone.stderr.contains("Connection refused") && gone.stderr.contains("-> check that it runs"), "{gone:?}");
}
