//! Envoy told to forward bodies, which the guide says not to do: what is limited, and that nothing hides behind a big one.

use std::fs;

use crate::support::envoy::Envoy;
use crate::support::http::{Response, message, send};
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::stack::{IDENTITY, USER};
use crate::support::upstream::Upstream;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const FILTER: &str = "stat_prefix: tallygate\n";
const FORWARDED: &str =
    "stat_prefix: tallygate\n                      with_request_body: { max_request_bytes: 8388608 }\n";
const TOLERANT: (&str, &str) = ("failure_mode_allow: false", "failure_mode_allow: true");

struct Forwarding {
    redis: RedisServer,
    application: Upstream,
    sidecar: Sidecar,
    envoy: Envoy,
}

impl Forwarding {
    fn start(edits: &[(&str, &str)]) -> Self {
        let redis = RedisServer::start();
        let application = Upstream::start();
        // Hashing and buffering megabytes in a debug build may take its time.
        let sidecar = Setup::patient(redis.port()).identity(IDENTITY).policy("orders", 5, "60s", "closed").start();
        let edits = [&[(FILTER, FORWARDED), ("timeout: 0.4s", "timeout: 20s")], edits].concat();
        let envoy = Envoy::shipped_with(sidecar.port(), application.port(), &edits);
        Self { redis, application, sidecar, envoy }
    }

    fn post(&self, user: &str, size: usize) -> Response {
        let length = size.to_string();
        let mut post = message("POST", "/orders", &[(USER, user), ("content-length", &length)]);
        post.resize(post.len() + size, b'a');
        send(self.envoy.address(), &post).expect("an answer")
    }

    fn too_large(&self) -> u64 {
        self.sidecar.metrics().count("tallygate_guard_total", &[("cause", "request_too_large")])
    }
}

// RL-34
#[test]
fn a_body_of_any_size_makes_nobody_unlimited() {
    for edits in [&[][..], &[TOLERANT]] {
        let forwarding = Forwarding::start(edits);
        for (user, size) in [("small", KIB), ("middle", 512 * KIB), ("large", 1000 * KIB)] {
            let statuses: Vec<_> = (0..7).map(|_| forwarding.post(user, size).status()).collect();
            assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429], "{user}");
            assert_eq!(forwarding.redis.get(&keys::demo(user)).as_deref(), Some("5"), "each counted once");
        }
        let served = forwarding.application.requests().len();
        // Beyond what Tallygate reads: refused with its own answer, by a tolerant filter too, and metered.
        for (n, size) in [MIB + 1, 39 * MIB / 10, 41 * MIB / 10, 79 * MIB / 10].into_iter().enumerate() {
            let refused = forwarding.post("oversize", size);
            assert_eq!((refused.status(), refused.one("retry-after")), (503, "1"), "{size}");
            assert!(!refused.body.is_empty(), "Tallygate's answer has a body");
            assert_eq!(forwarding.too_large(), n as u64 + 1);
        }
        assert_eq!(forwarding.application.requests().len(), served);
        assert_eq!(forwarding.redis.get(&keys::demo("oversize")), None);
        // Beyond what Envoy buffers it asks nobody.
        assert_eq!(forwarding.post("oversize", 8 * MIB + 1).status(), 413);
    }
}

// RL-34: what is too large is refused by its length, before it is read.
#[test]
fn a_hundred_oversize_checks_at_once_need_no_memory_to_speak_of() {
    let forwarding = Forwarding::start(&[]);
    let before = peak_kib(&forwarding.sidecar);
    std::thread::scope(|scope| {
        let posts: Vec<_> = (0..100).map(|_| scope.spawn(|| forwarding.post("ada", 2 * MIB).status())).collect();
        for post in posts {
            assert_eq!(post.join().unwrap(), 503);
        }
    });
    assert_eq!(forwarding.too_large(), 100);
    let grown = peak_kib(&forwarding.sidecar) - before;
    assert!(grown < 50 * 1024, "grown by {grown} KiB for 200 MiB that were sent");
    assert_eq!(forwarding.post("ada", KIB).status(), 200);
}

/// The most memory that it has had so far.
fn peak_kib(sidecar: &Sidecar) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", sidecar.pid())).expect("a process of Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
