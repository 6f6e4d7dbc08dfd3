//! More than one Envoy and one Tallygate, and a Tallygate that is replaced: one limit all the while.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::envoy::Envoy;
use crate::support::keys;
use crate::support::ports;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::stack::{IDENTITY, USER};
use crate::support::upstream::Upstream;
use crate::support::wait::wait_for;

fn orders(setup: Setup, limit: u64) -> Setup {
    setup.identity(IDENTITY).policy("orders", limit, "60s", "closed")
}

#[test]
fn two_envoys_with_a_tallygate_each_keep_one_limit_and_fall_apart_one_at_a_time() {
    let redis = RedisServer::start();
    let application = Upstream::start();
    let setup = orders(Setup::redis(redis.port()), 5);
    let mut sidecars = [setup.start(), setup.start()].map(Some);
    let envoys =
        sidecars.each_ref().map(|sidecar| Envoy::shipped(sidecar.as_ref().unwrap().port(), application.port()));
    let status = |envoy: usize, user| envoys[envoy].get("/orders", &[(USER, user)]).status();
    let ada: Vec<_> = (0..8).map(|n| status(n % 2, "ada")).collect();
    assert_eq!(ada, [200, 200, 200, 200, 200, 429, 429, 429]);
    assert_eq!([status(0, "grace"), status(1, "grace")], [200, 200]);

    sidecars[0] = None;
    let refused = envoys[0].get("/orders", &[(USER, "grace")]);
    assert_eq!((refused.status(), refused.one("retry-after")), (503, "1"));
    let grace: Vec<_> = (0..4).map(|_| status(1, "grace")).collect();
    assert_eq!(grace, [200, 200, 200, 429], "the other goes on, from the same count");
    assert_eq!(redis.get(&keys::demo("grace")).as_deref(), Some("5"));
}

/// Ends the load, also when the test fails: a scope waits for its threads.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_tallygate_that_is_replaced_under_load_gives_no_wrong_verdict() {
    const USERS: usize = 200;
    const LIMIT: u64 = 5;
    let redis = RedisServer::start();
    let application = Upstream::start();
    // The next one takes the same port, as in a Pod.
    let (mut first, setup) = (0..20)
        .find_map(|_| {
            let setup = orders(Setup::patient(redis.port()), LIMIT);
            let setup = setup.listen(&format!("127.0.0.1:{}", ports::free()));
            std::panic::catch_unwind(|| setup.start()).ok().map(|sidecar| (sidecar, setup.clone()))
        })
        .expect("a port that is free for long enough");
    // However slow this machine is: a check is lost to the replacement or not at all.
    let patient = [("timeout: 0.4s", "timeout: 20s")];
    let envoy = Envoy::shipped_with(first.port(), application.port(), &patient);
    let done = AtomicBool::new(false);

    let (allowed, statuses) = thread::scope(|scope| {
        let load = |thread: usize| {
            let (envoy, done) = (&envoy, &done);
            scope.spawn(move || {
                let (mut allowed, mut statuses) = (vec![0; USERS], BTreeSet::new());
                for n in (0..).map(|n| n * 3 + thread).take_while(|_| !done.load(Ordering::Relaxed)) {
                    let status = envoy.get("/orders", &[(USER, &format!("user-{}", n % USERS))]).status();
                    allowed[n % USERS] += u64::from(status == 200);
                    statuses.insert(status);
                }
                (allowed, statuses)
            })
        };
        let loads = [load(0), load(1), load(2)];
        let load_ends = Ends(&done);
        wait_for("some to be served", Duration::from_secs(10), || application.requests().len() > 100);
        first.sigterm();
        assert!(first.wait_exit(Duration::from_secs(10)).success());
        let second = setup.start();
        wait_for("the next one to decide", Duration::from_secs(10), || {
            let metrics = second.metrics();
            metrics.verdicts("orders", "allowed") + metrics.verdicts("orders", "denied") > 100
        });
        wait_for("everybody to have had their share", Duration::from_secs(20), || {
            redis.counters().values().filter(|count| **count == LIMIT).count() == USERS
        });
        drop(load_ends);
        let found = loads.map(|load| load.join().unwrap());
        let sum = |user: usize| found.iter().map(|(allowed, _)| allowed[user]).sum::<u64>();
        let statuses: BTreeSet<_> = found.iter().flat_map(|(_, statuses)| statuses.clone()).collect();
        let allowed: Vec<_> = (0..USERS).map(sum).collect();
        // Afterwards it is as ever. The next one serves before it has reached Redis, and fails what it is asked until then.
        let failed = second.metrics().verdicts("orders", "failed");
        for status in [200, 200, 200, 200, 200, 429] {
            assert_eq!(envoy.get("/orders", &[(USER, "after")]).status(), status);
        }
        assert_eq!(second.metrics().verdicts("orders", "failed"), failed);
        (allowed, statuses)
    });
    assert!(allowed.iter().all(|allowed| *allowed <= LIMIT), "{allowed:?}");
    assert!(statuses.is_subset(&BTreeSet::from([200, 429, 503])), "{statuses:?}");
    // An allowance whose answer was lost on the way counts; one that was given twice does not occur.
    assert!(redis.counters().iter().all(|(key, count)| *count <= LIMIT && key.starts_with("rl:orders:v1:")));
}
