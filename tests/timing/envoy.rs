//! What a client of a real Envoy is told while Redis does not answer, and how long it waits for that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::envoy::Envoy;
use crate::support::http::Response;
use crate::support::proxy::{Fault, FaultProxy};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::stack::{IDENTITY, USER};
use crate::support::upstream::Upstream;
use crate::support::wait::wait_for;
use crate::timing::load::BUDGET;
use crate::timing::stall::StallProbe;

const LOCAL: &str = "{ open: { per: [tenant, subject], fixed_window: { limit: 2, window: 60s } } }";
/// Envoy answers 403 for itself, so that nobody takes that for Tallygate's 503.
const ENVOYS_OWN: (&str, &str) =
    ("status_on_error: { code: ServiceUnavailable }\n", "status_on_error: { code: Forbidden }\n");

struct Chain {
    redis: RedisServer,
    proxy: FaultProxy,
    _sidecar: Sidecar,
    _application: Upstream,
    envoy: Envoy,
}

impl Chain {
    fn start(edits: &[(&str, &str)]) -> Self {
        let redis = RedisServer::start();
        let proxy = FaultProxy::start(redis.port());
        let setup = Setup::redis(proxy.port()).identity(IDENTITY).policy("orders", 1_000_000, "60s", "closed");
        let sidecar = setup.policy("catalog", 1_000_000, "60s", LOCAL).start();
        let application = Upstream::start();
        let envoy = Envoy::shipped_with(sidecar.port(), application.port(), &[&[ENVOYS_OWN], edits].concat());
        let chain = Self { redis, proxy, _sidecar: sidecar, _application: application, envoy };
        for path in ["/orders", "/catalog"] {
            assert_eq!(chain.get(path, "before").0.status(), 200);
        }
        chain
    }

    fn get(&self, path: &str, user: &str) -> (Response, Duration) {
        let sent = Instant::now();
        let response = self.envoy.get(path, &[(USER, user)]);
        (response, sent.elapsed())
    }
}

type Break = fn(&Chain);

const BREAKS: [(&str, Break); 5] = [
    ("stopped", |chain| chain.proxy.set(Fault::Cut)),
    ("paused", |chain| drop(chain.redis.run(&["CLIENT", "PAUSE", "5000", "ALL"]))),
    ("frozen", |chain| chain.redis.pause()),
    ("swallowed", |chain| chain.proxy.set(Fault::Swallow)),
    ("slow", |chain| chain.proxy.delay(Duration::from_millis(210))),
];

// RL-28
#[test]
fn whatever_envoys_time_out_the_client_gets_tallygates_verdict() {
    let shipped = "                        timeout: 0.4s\n";
    for timeout in ["", shipped, "                        timeout: 0.5s\n", "                        timeout: 1s\n"] {
        for (name, fault) in [BREAKS[1], BREAKS[3]] {
            let stall = StallProbe::start();
            let chain = Chain::start(&[(shipped, timeout)]);
            fault(&chain);
            let closed = (0..4).map(|_| chain.get("/orders", "ada"));
            let open = (0..4).map(|_| chain.get("/catalog", "ada"));
            let answers: Vec<_> = closed.chain(open).collect();
            let what = format!("{name}, {}", timeout.trim());
            // Envoy's default leaves Tallygate 15 ms. A machine that stalls for most of that proves nothing.
            if !timeout.is_empty() || stall.longest() < Duration::from_millis(10) {
                let statuses: Vec<_> = answers.iter().map(|(response, _)| response.status()).collect();
                assert_eq!(statuses, [503, 503, 503, 503, 200, 200, 429, 429], "{what}");
                assert_eq!(chain.envoy.counter("http.edge.ext_authz.tallygate.error"), 0, "{what}");
            }
            let slowest = answers.iter().map(|(_, took)| *took).max().unwrap();
            assert!(slowest <= stall.bound(BUDGET), "{what}: an answer took {slowest:?}");
        }
    }
}

// RL-29, in short; the whole of it, without Envoy, is in `outage` and `slow`.
#[test]
fn in_an_outage_clients_of_envoy_are_told_in_time_and_afterwards_served_again() {
    for (name, fault) in BREAKS {
        let stall = StallProbe::start();
        let chain = Chain::start(&[]);
        fault(&chain);
        let done = AtomicBool::new(false);
        let answers = thread::scope(|scope| {
            let load = |path, user| {
                let (chain, done) = (&chain, &done);
                scope.spawn(move || {
                    let asked = (0..).take_while(|_| !done.load(Ordering::Relaxed)).map(|_| chain.get(path, user));
                    asked.map(|(response, took)| (path, response.status(), took)).collect::<Vec<_>>()
                })
            };
            let loads = [load("/orders", "ada"), load("/orders", "grace"), load("/catalog", "ada")];
            thread::sleep(Duration::from_secs(1));
            done.store(true, Ordering::Relaxed);
            loads.map(|load| load.join().unwrap()).concat()
        });
        let of = |wanted| answers.iter().filter(move |(path, ..)| *path == wanted).map(|(_, status, _)| *status);
        assert!(of("/orders").all(|status| status == 503), "{name}: {:?}", of("/orders").collect::<Vec<_>>());
        assert_eq!(of("/catalog").filter(|status| *status == 200).count(), 2, "{name}: the local limit");
        assert!(of("/catalog").all(|status| status == 200 || status == 429), "{name}");
        let slowest = answers.iter().map(|(.., took)| *took).max().unwrap();
        assert!(slowest <= stall.bound(BUDGET), "{name}: an answer took {slowest:?} of {}", answers.len());
        assert!(answers.len() > 100, "{name}: only {} answers, so somebody waited", answers.len());

        chain.proxy.set(Fault::Pass);
        chain.proxy.delay(Duration::ZERO);
        if name == "frozen" {
            chain.redis.resume();
        }
        // CLIENT PAUSE ends by itself, 5 s after it began.
        let within = Duration::from_secs(if name == "paused" { 8 } else { 3 });
        wait_for("Redis to decide again", stall.bound(within), || {
            ["/orders", "/catalog"].iter().all(|path| chain.get(path, "ada").0.status() == 200)
        });
    }
}
