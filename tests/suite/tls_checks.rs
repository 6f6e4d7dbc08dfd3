//! Over TLS a check is answered as over any other connection, and who connects leaves no trace in logs and metrics.

use std::time::Duration;

use envoy_types::pb::envoy::service::auth::v3::CheckResponse;
use prost::Message;

use crate::support::answer::{Answer, Outcome};
use crate::support::check::Check;
use crate::support::greeting::{Greeter, VERSIONS};
use crate::support::grpc::{CHECK, Client};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::tls::pem;
use crate::support::wait::wait_for;

/// In front of this store, for one client of the mesh.
fn setup(store: Setup) -> Setup {
    let [chain, key, ca] = ["sidecar", "sidecar-key", "mesh"].map(|name| pem(name).display().to_string());
    store.policy("orders", 2, "60s", "closed").tls(&format!(
        "certificate_file: '{chain}', private_key_file: '{key}', client_ca_file: '{ca}', \
         allowed_clients: ['spiffe://td.example/ns/edge/sa/envoy']"
    ))
}

fn client(sidecar: &Sidecar) -> Client {
    Client::over_tls(sidecar.grpc(), "mesh", Some("envoy")).expect("it is listed")
}

// P8, P3
#[test]
fn what_cannot_be_decided_is_an_explicit_answer_over_tls_too() {
    let mut redis = RedisServer::start();
    let sidecar = setup(Setup::redis(redis.port())).start();
    let client = client(&sidecar);
    let padded = Check::of("ada").header("x-padding", &"a".repeat(2 * 1024 * 1024)).build().encode_to_vec();
    for (message, reason) in
        [(vec![0xff; 40], "undecodable"), (vec![0x0a], "undecodable"), (padded, "request_too_large")]
    {
        let reply = client.raw(CHECK, message).expect("the call itself succeeds");
        let answer = Answer { message: CheckResponse::decode(&*reply).unwrap(), took: Duration::ZERO };
        assert_eq!((answer.outcome(), answer.metadata("reason").as_str()), (Outcome::Failed, reason));
    }
    let outcomes = [(); 3].map(|()| client.check(&Check::of("ada")).outcome());
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Allowed, Outcome::Limited], "on the same connection");
    redis.kill9();
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Failed);
}

// P8: what is no HTTP/2 ends its own connection, and nobody else's.
#[test]
fn frames_that_mean_nothing_end_their_own_connection_alone() {
    let sidecar = setup(Setup::memory()).start();
    let client = client(&sidecar);
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
    for version in VERSIONS {
        let greeter = Greeter::usual("mesh", "envoy", version);
        // A frame for a stream that nobody opened; one that is longer than any may be; no preface at all.
        for said in
            [&b"\0\0\x01\0\0\0\0\0\x07x"[..], b"\xff\xff\xff\0\0\0\0\0\x01", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"]
        {
            greeter.say(sidecar.grpc(), said).expect("a handshake in order, and then the end");
        }
    }
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed, "the connection lives on");
    assert_eq!(sidecar.metrics().count("tallygate_guard_total", &[("cause", "panic")]), 0);
}

// P10, P11
#[test]
fn who_connects_is_in_no_log_and_makes_no_series() {
    let sidecar = Sidecar::start_with(&setup(Setup::memory()), |command| {
        command.args(["--log", "trace,rustls=trace,tokio_rustls=trace,h2=trace"]);
    });
    let series = || sidecar.metrics().names().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let before = series();
    let refused = || {
        let metrics = sidecar.metrics();
        metrics.count("tallygate_tls_handshakes_refused_total", &[])
    };
    for (n, version) in (1..).zip(VERSIONS) {
        let greet = |ca, name| Greeter::usual(ca, name, version).greet(sidecar.grpc());
        assert!(greet("mesh", "envoy").is_ok());
        for name in ["neighbour", "two-ids", "client", "expired", "sidecar"] {
            assert!(greet("mesh", name).is_err(), "{name}");
        }
        assert!(greet("ca", "envoy").is_err(), "a client that does not believe the certificate");
        wait_for("the refusals to be counted", Duration::from_secs(20), || refused() == n * 6);
    }
    assert_eq!(series(), before);
    let log = sidecar.log();
    for canary in ["spiffe", "td.example", "tallygate.example", "of the Tallygate tests", "two-ids", "neighbour"] {
        assert!(!log.contains(canary), "{canary} is in the log:\n{log}");
    }
}
