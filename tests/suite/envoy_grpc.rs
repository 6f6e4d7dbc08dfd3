//! `envoy/grpc-upstreams.yaml`: gRPC all the way, and an Envoy in front that repeats what it may.

use std::time::Duration;

use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::support::envoy::Envoy;
use crate::support::grpc::Client;
use crate::support::pair::{self, LIMIT};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;

struct Calls {
    redis: RedisServer,
    sidecar: Sidecar,
    /// A Tallygate too, since that is a gRPC server that we have: its health is asked for.
    application: Sidecar,
    envoy: Envoy,
}

impl Calls {
    fn start() -> Self {
        let redis = RedisServer::start();
        let sidecar = pair::sidecar("grpc-upstreams.yaml", redis.port(), &[]);
        let application = Setup::memory().policy("orders", 1, "60s", "closed").start();
        let envoy = Envoy::file("grpc-upstreams.yaml", sidecar.port(), application.port(), &[]);
        Self { redis, sidecar, application, envoy }
    }

    fn verdicts(&self, verdict: &str) -> u64 {
        self.sidecar.metrics().verdicts("everything", verdict)
    }
}

/// An Envoy in front of `target`, which repeats what Istio's proxies repeat by default.
fn in_front(target: &Envoy) -> Envoy {
    let (_, port) = target.address().split_once(':').expect("a TCP listener");
    Envoy::start(&format!(
        "admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}
static_resources:
  listeners:
  - name: front
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{ '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
          route_config:
            virtual_hosts:
            - name: next
              domains: ['*']
              routes:
              - match: {{ prefix: / }}
                route:
                  cluster: next
                  retry_policy:
                    retry_on: connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes
                    num_retries: 2
  clusters:
  - name: next
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment:
      cluster_name: next
      endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }} }}] }}]
"
    ))
}

#[test]
fn a_refused_call_is_resource_exhausted_with_its_wait() {
    let calls = Calls::start();
    let client = Client::connect(calls.envoy.address());
    for _ in 0..LIMIT {
        assert_eq!(client.health("").unwrap(), ServingStatus::Serving, "the application's answer");
    }
    let status = client.health("").unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let wait = status.metadata().get("retry-after").and_then(|wait| wait.to_str().ok()).expect("retry-after");
    assert!(["59", "60"].contains(&wait), "{wait}");
    assert_eq!(status.message(), format!("rate limit exceeded: retry after {wait} s\n"));
}

#[test]
fn a_stream_is_one_check_when_it_opens() {
    let calls = Calls::start();
    let client = Client::connect(calls.envoy.address());
    let mut watched = client.watch_health();
    assert_eq!(watched.next(), Some(ServingStatus::Serving));
    assert_eq!(calls.verdicts("allowed"), 1);
    let others: Vec<_> = (1..LIMIT).map(|_| client.watch_health()).collect();
    let refused = client.try_watch_health().err().expect("no room for another");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!((calls.verdicts("allowed"), calls.verdicts("denied")), (1 + others.len() as u64, 1));
    // What was let in goes on.
    drop(calls.application);
    assert_eq!(watched.next(), None, "until the application ends it");
}

// RL-12
#[test]
fn an_envoy_in_front_that_retries_does_not_multiply_checks() {
    let mut calls = Calls::start();
    let front = in_front(&calls.envoy);
    let client = Client::connect(front.address());
    let codes: Vec<_> =
        (0..LIMIT + 2).map(|_| client.health("").map_or_else(|status| status.code(), |_| Code::Ok)).collect();
    assert_eq!(codes, [[Code::Ok; LIMIT].as_slice(), &[Code::ResourceExhausted; 2]].concat());
    assert_eq!((calls.verdicts("allowed"), calls.verdicts("denied")), (LIMIT as u64, 2), "one check for each call");

    calls.redis.kill9();
    wait_for("the outage to be known", Duration::from_secs(5), || {
        client.health("").is_err_and(|status| status.code() == Code::Unavailable)
    });
    let failed = calls.verdicts("failed");
    assert_eq!(client.health("").unwrap_err().code(), Code::Unavailable);
    assert_eq!(calls.verdicts("failed"), failed + 1);
    assert_eq!(front.counter("cluster.next.upstream_rq_retry"), 0);

    // It would have: what is not Tallygate's answer is repeated.
    drop(calls.sidecar);
    assert_eq!(client.health("").unwrap_err().code(), Code::Unavailable);
    assert_eq!(front.counter("cluster.next.upstream_rq_retry"), 2);
}
