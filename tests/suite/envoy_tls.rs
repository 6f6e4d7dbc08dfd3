//! `envoy/mtls-tallygate.yaml`: Envoy and Tallygate know each other by their certificates, and an Envoy or a Tallygate that the
//! other does not know decides nothing.

use crate::support::pair::{Edit, Pair};
use crate::support::tls::pem;

/// Both on this host: the certificate of the sidecar in the tests is for its address.
const HERE: [Edit<'_>; 2] = [
    ("socket_address: { address: tallygate.example,", "socket_address: { address: 127.0.0.1,"),
    ("san_type: DNS, matcher: { exact: tallygate.example }", "san_type: IP_ADDRESS, matcher: { exact: 127.0.0.1 }"),
];

/// With this certificate for Tallygate, and further edits of Envoy's file.
fn start(certificate: &str, envoy: &[Edit<'_>]) -> Pair {
    let files = [certificate, &format!("{certificate}-key"), "mesh"].map(|name| pem(name).display().to_string());
    let [own, key, authority] = files.each_ref();
    let tallygate = [
        ("listen: 0.0.0.0:50051", "listen: 127.0.0.1:0"),
        ("/etc/tallygate/tls.crt", own),
        ("/etc/tallygate/tls.key", key),
        ("/etc/tallygate/envoys-ca.crt", authority),
    ];
    Pair::edited("mtls-tallygate.yaml", &[&HERE, envoy].concat(), &tallygate)
}

/// Nobody is served, and nothing was counted.
#[track_caller]
fn decides_nothing(pair: &Pair) {
    let refused = pair.envoy.get("/", &[]);
    assert_eq!((refused.status(), refused.text().as_str()), (503, ""), "Envoy's own answer");
    assert!(pair.application.requests().is_empty());
    assert_eq!(pair.redis.keys(), [""; 0]);
}

#[test]
fn a_tallygate_on_another_host_limits_as_one_beside_envoy_does() {
    start("sidecar", &[]).exhaust("/", &[]);
}

#[test]
fn an_envoy_that_tallygate_does_not_know_is_not_answered() {
    for other in ["neighbour", "two-ids", "client"] {
        let [certificate, key] = [other, &format!("{other}-key")].map(|name| format!("{}", pem(name).display()));
        let [envoys, envoys_key] = ["envoy", "envoy-key"].map(|name| format!("{}", pem(name).display()));
        decides_nothing(&start("sidecar", &[(&envoys, &certificate), (&envoys_key, &key)]));
    }
}

#[test]
fn a_tallygate_that_envoy_does_not_know_does_not_decide() {
    // Of another authority; and of that one, but with another name.
    decides_nothing(&start("loopback", &[]));
    decides_nothing(&start("sidecar", &[("exact: 127.0.0.1 }", "exact: 127.0.0.2 }")]));
}
