//! A source of identity that never yields is reported with what usually mends it; one that was not asked is not.

use std::time::Duration;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;

const POLICIES: &str = "
  - name: orders
    version: 1
    match: { path: { prefix: /orders } }
    limits: [{ name: only, per: [tenant, subject], fixed_window: { limit: 1000000, window: 60s } }]
    on_failure: closed
  - name: sites
    version: 1
    match: { path: { prefix: /sites } }
    limits: [{ name: only, per: [address], fixed_window: { limit: 1000000, window: 60s } }]
    on_failure: closed";

fn start(identity: &str) -> Sidecar {
    Setup::memory().identity(identity).policies(POLICIES).start()
}

/// The lines about sources that never yielded: part, source, line.
fn reported(sidecar: &Sidecar) -> Vec<String> {
    sidecar.log().lines().filter(|line| line.contains("has not yielded once")).map(str::to_owned).collect()
}

fn names(lines: &[String]) -> Vec<String> {
    let field = |line: &str, name: &str| {
        let start = line.find(&format!("\"{name}\":\"")).expect("a field") + name.len() + 4;
        line[start..].split('"').next().expect("its text").to_owned()
    };
    let mut names: Vec<_> =
        lines.iter().map(|line| format!("{} {}", field(line, "part"), field(line, "source"))).collect();
    names.sort();
    names
}

#[test]
fn each_kind_of_source_that_never_yields_is_reported_once_with_its_remedy() {
    let sidecar = start(
        "
  tenant: [{ route: tenant }]
  subject:
    - jwt: { claim: sub, issuers: [https://idp.example] }
    - mtls: { trust_domain: td.example }
    - route: subject
    - header: { name: x-user, trusted_because: set by the edge }
    - address
  address: { source: { call_metadata: x-clientip } }",
    );
    let client = sidecar.client();
    let nobody = Check::get("/orders").route("tenant", "acme");
    client.check_times(&nobody, 999);
    assert_eq!(reported(&sidecar), [""; 0], "a thousand are needed");
    client.check_times(&nobody, 1001);
    let lines = reported(&sidecar);
    let wanted = ["address", "header/x-user", "jwt/sub", "mtls", "route/subject"].map(|kind| format!("subject {kind}"));
    assert_eq!(names(&lines), wanted, "each once, and not the tenant's, which was there");
    for (kind, remedy) in [
        ("jwt/sub", "metadata_context_namespaces"),
        ("mtls", "require_client_certificate"),
        ("route/subject", "check_settings.context_extensions"),
        ("header/x-user", "allowed_headers"),
        ("\"address", "initial_metadata"),
    ] {
        let line = lines.iter().find(|line| line.contains(kind)).expect(kind);
        assert!(line.contains(remedy) && line.contains("\"WARN\""), "{line}");
    }
}

#[test]
fn a_source_that_yielded_once_or_was_never_asked_is_not_reported() {
    let identity = "
  tenant: [{ route: tenant }]
  subject: [{ jwt: { claim: sub } }, { header: { name: x-user, trusted_because: set by the edge } }]";
    let sidecar = start(identity);
    let client = sidecar.client();
    let tenant = || Check::get("/orders").route("tenant", "acme");
    // The header stands behind a token that is always there, and nobody asks for a site's address.
    client.check_times(&tenant().claim("sub", "ada"), 1500);
    assert_eq!(reported(&sidecar), [""; 0]);
    // Once is enough; and a claim that is refused was there.
    let other = start(identity);
    let client = other.client();
    assert_eq!(client.check(&tenant().header("x-user", "ada")).outcome(), Outcome::Allowed);
    client.check_times(&tenant().claim("sub", ""), 1500);
    assert_eq!(reported(&other), [""; 0]);
    client.check_times(&tenant(), 1500);
    assert_eq!(names(&reported(&other)), ["subject jwt/sub"]);
}

// One kind of evidence, two sources: what the second yields is not the first one's.
#[test]
fn a_claim_that_is_never_there_is_reported_though_another_one_is() {
    let identity = "
  tenant: [{ route: tenant }]
  subject: [{ jwt: { claim: sub } }, { jwt: { claim: email } }]";
    let sidecar = start(identity);
    let check = Check::get("/orders").route("tenant", "acme").claim("email", "ada@example");
    sidecar.client().check_times(&check, 1500);
    assert_eq!(names(&reported(&sidecar)), ["subject jwt/sub"]);
}

#[test]
fn sources_are_asked_in_vain_where_strangers_are_counted_by_address_too() {
    let identity = "
  tenant: [{ route: tenant }]
  subject: [{ jwt: { claim: sub } }]";
    let policy = "
  - name: orders
    version: 1
    match: { path: { prefix: /orders } }
    limits: [{ name: only, per: [tenant, subject], fixed_window: { limit: 1000000, window: 60s } }]
    on_unidentified: { address: { fixed_window: { limit: 1000000, window: 60s } } }
    on_failure: closed";
    let sidecar = Setup::memory().identity(identity).policies(policy).start();
    let stranger = Check::get("/orders").route("tenant", "acme").source("203.0.113.7");
    sidecar.client().check_times(&stranger, 1500);
    assert_eq!(names(&reported(&sidecar)), ["subject jwt/sub"]);
}

#[test]
fn addresses_that_are_never_there_are_reported_by_where_they_are_read_from() {
    for (source, remedy) in [
        ("peer", "Unix socket"),
        ("{ header: { name: x-envoy-external-address, trusted_because: set by the edge } }", "use_remote_address"),
        ("{ call_metadata: x-clientip }", "initial_metadata"),
        ("{ forwarded: { trusted_peers: [10.0.0.0/8], trusted_hops: 1 } }", "x-forwarded-for"),
    ] {
        let sidecar = start(&format!(
            "\n  tenant: [{{ route: tenant }}]\n  subject: [address]\n  address: {{ source: {source} }}"
        ));
        sidecar.client().check_times(&Check::get("/sites").source_pipe("/run/x"), 1000);
        wait_for("the line", Duration::from_secs(5), || !reported(&sidecar).is_empty());
        let lines = reported(&sidecar);
        assert_eq!(names(&lines), ["address address"], "{source}");
        assert!(lines[0].contains(remedy), "{source}: {}", lines[0]);
    }
}
