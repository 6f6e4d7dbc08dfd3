//! Envoy's own bound on checks in flight, and what it does to a crowd: why the shipped files raise it.

use std::time::Duration;

use tonic::Code;

use crate::support::check::Check;
use crate::support::envoy::Envoy;
use crate::support::grpc::{Client, InFlight};
use crate::support::http::{Sent, message};
use crate::support::pair::Edit;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::upstream::Upstream;
use crate::support::wait::wait_for;

const SHIPPED: &str = "thresholds: [{ max_requests: 65536, max_pending_requests: 65536 }]";
const ONE: Edit<'_> = (SHIPPED, "thresholds: [{ max_requests: 1 }]");
const ENVOYS_DEFAULT: Edit<'_> = (SHIPPED, "thresholds: []");
const TOLERANT: Edit<'_> = ("failure_mode_allow: false", "failure_mode_allow: true");
/// Nobody gives up during a test, however slow the machine: neither Envoy nor, by its own settings, the sidecar.
const PATIENT: Edit<'_> = ("timeout: 0.4s", "timeout: 30s");
const ONE_CONNECTION: Edit<'_> = ("max_concurrent_streams: 100 ", "max_concurrent_streams: 10000 ");

/// One request a minute for all.
const POLICY: &str = "
  - name: everything
    version: 1
    limits: [{ name: only, per: [tenant], fixed_window: { limit: 1, window: 60s } }]
    on_failure: closed";

struct Slow {
    redis: RedisServer,
    application: Upstream,
    sidecar: Sidecar,
    envoy: Envoy,
}

impl Slow {
    fn start(edits: &[Edit<'_>]) -> Self {
        let redis = RedisServer::start();
        let application = Upstream::start();
        let sidecar = Setup::patient(redis.port()).policies(POLICY).start();
        let envoy = Envoy::shipped_with(sidecar.port(), application.port(), &[edits, &[PATIENT]].concat());
        Self { redis, application, sidecar, envoy }
    }

    fn of_cluster(&self, name: &str) -> u64 {
        self.envoy.counter(&format!("cluster.tallygate.{name}"))
    }

    /// Takes the only place with a request that waits for Redis.
    fn fill(&self) -> Sent {
        self.redis.pause();
        let first = Sent::start(self.envoy.address(), &message("GET", "/", &[])).unwrap();
        wait_for("the check to be under way", Duration::from_secs(5), || self.of_cluster("upstream_rq_active") == 1);
        first
    }

    /// A crowd of calls whose checks wait for Redis until so many of them are under way, and all others were turned away; then
    /// what each was told.
    fn crowd(&self, calls: usize, under_way: u64) -> Vec<Code> {
        assert_eq!(self.envoy.get("/", &[]).status(), 200, "the only one of this minute");
        let client = Client::connect(self.envoy.address());
        self.redis.pause();
        let crowd: Vec<_> = (0..calls).map(|_| client.start(&Check::of("ada"))).collect();
        wait_for("the checks to be under way", Duration::from_secs(4), || {
            self.of_cluster("upstream_rq_active") == under_way
                && self.of_cluster("upstream_rq_active_overflow") == calls as u64 - under_way
        });
        self.redis.resume();
        let told = crowd.into_iter().map(InFlight::try_join);
        told.map(|answer| answer.expect_err("no room for anybody").code()).collect()
    }
}

#[test]
fn a_check_beyond_envoys_bound_is_503_while_the_one_before_it_still_waits() {
    let slow = Slow::start(&[ONE]);
    let first = slow.fill();
    let second = slow.envoy.get("/", &[]);
    assert_eq!((second.status(), second.one("retry-after"), &*second.text()), (503, "1", ""), "Envoy's own answer");
    assert_eq!(slow.of_cluster("upstream_rq_active_overflow"), 1);
    slow.redis.resume();
    assert_eq!(first.join().status(), 200);
    assert_eq!(slow.sidecar.metrics().verdicts("everything", "allowed"), 1, "Tallygate was asked once");
}

// The danger, shown: one slow check, and the next request is served beyond the limit.
#[test]
fn beyond_envoys_bound_a_tolerant_filter_lets_everything_pass() {
    let slow = Slow::start(&[ONE, TOLERANT]);
    let first = slow.fill();
    for _ in 0..5 {
        assert_eq!(slow.envoy.get("/", &[]).status(), 200);
    }
    slow.redis.resume();
    assert_eq!(first.join().status(), 200);
    assert_eq!(slow.application.requests().len(), 6, "of one a minute");
    assert_eq!(slow.envoy.counter("http.edge.ext_authz.tallygate.failure_mode_allowed"), 5);
}

#[test]
fn with_envoys_default_bound_a_crowd_is_told_503_and_with_the_shipped_one_tallygates_verdict() {
    let crowd = 1024 + 300;
    let default = Slow::start(&[ENVOYS_DEFAULT, ONE_CONNECTION]);
    let told = default.crowd(crowd, 1024);
    let count = |told: &[Code], code| told.iter().filter(|found| **found == code).count();
    assert_eq!((count(&told, Code::ResourceExhausted), count(&told, Code::Unavailable)), (1024, 300));
    assert_eq!(default.of_cluster("upstream_rq_active_overflow"), 300);

    let shipped = Slow::start(&[ONE_CONNECTION]);
    let told = shipped.crowd(crowd, crowd as u64);
    assert_eq!(count(&told, Code::ResourceExhausted), crowd, "limited, all of them");
    assert_eq!(shipped.of_cluster("upstream_rq_active_overflow"), 0);
    assert_eq!(shipped.envoy.counter("http.edge.ext_authz.tallygate.error"), 0);
}
