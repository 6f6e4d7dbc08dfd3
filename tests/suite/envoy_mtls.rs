//! `envoy/mtls-clients.yaml`: the certificate of a client is who it is.

use crate::support::https;
use crate::support::keys;
use crate::support::pair::{LIMIT, Pair};

/// What keeps other trust domains out of Envoy.
const MATCH: &str = "                  match_typed_subject_alt_names:
                    - { san_type: URI, matcher: { prefix: \"spiffe://td.example/\" } }
";

fn key(workload: &str) -> String {
    let id = format!("spiffe://td.example/ns/shop/sa/{workload}");
    keys::key("everything", 60_000, &[("route/tenant", "", b"mesh"), ("mtls", "", id.as_bytes())])
}

fn status(pair: &Pair, certificate: &str) -> u16 {
    https::get(pair.envoy.address(), "/", Some(certificate)).expect("a certificate that Envoy takes").status()
}

#[test]
fn two_workloads_are_limited_apart() {
    let pair = Pair::start("mtls-clients.yaml");
    for (name, certificate) in [("a", "workload-a"), ("b", "workload-b")] {
        let statuses: Vec<_> = (0..=LIMIT).map(|_| status(&pair, certificate)).collect();
        assert_eq!(statuses, [200, 200, 200, 429], "{certificate}");
        assert_eq!(pair.redis.get(&key(name)), Some(LIMIT.to_string()));
    }
    assert_eq!(pair.redis.keys().len(), 2);
}

#[test]
fn a_client_without_a_certificate_of_our_trust_domain_does_not_get_in() {
    let pair = Pair::start("mtls-clients.yaml");
    for certificate in [None, Some("workload-forged"), Some("workload-elsewhere"), Some("client")] {
        let answer = https::get(pair.envoy.address(), "/", certificate);
        assert!(answer.is_err(), "{certificate:?}: {answer:?}");
    }
    assert_eq!(pair.envoy.counter("http.edge.downstream_rq_total"), 0, "refused in the handshake");
    assert_eq!(status(&pair, "workload-a"), 200, "and it serves");

    // Nor where any name is as good as another.
    let loose = Pair::edited("mtls-clients.yaml", &[(MATCH, "")], &[]);
    for certificate in [None, Some("workload-forged")] {
        let answer = https::get(loose.envoy.address(), "/", certificate);
        assert!(answer.is_err(), "{certificate:?}: {answer:?}");
    }
}

// Envoy tells Tallygate of one name of a certificate, the first. One that Envoy let in by its second is nobody, and so is
// whoever comes by way of a looser Envoy.
#[test]
fn another_trust_domain_is_no_identity() {
    let pair = Pair::start("mtls-clients.yaml");
    assert_eq!(status(&pair, "workload-both"), 401);
    let loose = Pair::edited("mtls-clients.yaml", &[(MATCH, "")], &[]);
    assert_eq!(status(&loose, "workload-elsewhere"), 401);
    assert_eq!(status(&loose, "workload-a"), 200);
    for pair in [&pair, &loose] {
        assert!(pair.redis.keys().iter().all(|found| *found == key("a")), "{:?}", pair.redis.keys());
    }
    assert!(pair.application.requests().is_empty());
}
