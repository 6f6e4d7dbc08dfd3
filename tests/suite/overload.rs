//! A Redis that hangs fills this process with waiting checks up to a bound, and beyond it each policy's failure mode answers.

use std::time::Duration;

use crate::support::answer::{Answer, Outcome, count};
use crate::support::check::Check;
use crate::support::grpc::{Client, InFlight};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;

/// Calls that wait for one Redis node at once.
const PLACES: usize = 4096;
const LOCAL: &str = "{ open: { per: [tenant, subject], fixed_window: { limit: 2, window: 60s } } }";

/// `orders` closed and `catalog` open. A call waits for so long that it is still there at the end of a test, unless it was
/// answered or its client left.
fn start() -> (RedisServer, Sidecar) {
    let redis = RedisServer::start();
    let url = format!("redis://127.0.0.1:{}", redis.port());
    let patient = format!("{{ redis: {{ url: '{url}', command_timeout: 5s }} }}\ndecision_budget: 10s");
    let setup = Setup::store(&patient).policy("orders", 1_000_000, "60s", "closed").policy("catalog", 5, "60s", LOCAL);
    let sidecar = setup.start();
    let client = sidecar.client();
    assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
    (redis, sidecar)
}

/// Takes every place, with 200 checks more than there are.
#[track_caller]
fn fill(sidecar: &Sidecar, client: &Client) -> Vec<InFlight> {
    let waiting = (0..PLACES + 200).map(|_| client.start(&Check::of("ada"))).collect();
    wait_for("every place to be taken", Duration::from_secs(4), || sidecar.metrics().store_errors("overload") == 200);
    waiting
}

fn overloads(answers: &[Answer]) -> usize {
    answers.iter().filter(|answer| answer.metadata("reason") == "overload").count()
}

// RL-29
#[test]
fn with_4096_checks_waiting_a_closed_policy_fails_at_once_and_an_open_one_keeps_its_local_limit() {
    let (redis, sidecar) = start();
    let client = sidecar.client();
    redis.pause();
    let waiting = fill(&sidecar, &client);

    let closed = client.check(&Check::of("grace"));
    assert_eq!((closed.outcome(), closed.metadata("reason").as_str()), (Outcome::Failed, "overload"));
    let catalog = Check::of("grace").path("/catalog");
    let open: Vec<_> = (0..4).map(|_| client.check(&catalog)).collect();
    let outcomes: Vec<_> = open.iter().map(Answer::outcome).collect();
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Allowed, Outcome::Limited, Outcome::Limited]);
    assert_eq!(overloads(&open), 4);
    assert_eq!(sidecar.metrics().verdicts("catalog", "open_denied"), 2);

    redis.resume();
    let answers: Vec<_> = waiting.into_iter().map(InFlight::join).collect();
    assert_eq!(
        (count(&answers, Outcome::Allowed), overloads(&answers)),
        (PLACES, 200),
        "and those that waited are decided"
    );
    assert_eq!(client.check(&catalog).outcome(), Outcome::Allowed, "by the shared limit again");
}

// RL-28: a client that has left keeps no place and leaves no work behind.
#[test]
fn clients_that_leave_give_their_places_back() {
    let (redis, sidecar) = start();
    let client = sidecar.client();
    redis.pause();
    let waiting = fill(&sidecar, &client);
    waiting.into_iter().for_each(InFlight::leave);
    // Sooner than the calls would have ended by themselves. A check that has found a place waits in it.
    wait_for("a check to find a place", Duration::from_secs(2), || {
        let one = vec![(Check::of("ada"), Some(Duration::from_millis(200)))];
        client.check_impatiently(one, 1).iter().all(|(_, answer)| answer.is_none())
    });
    redis.resume();
    assert_eq!(client.check(&Check::of("after")).outcome(), Outcome::Allowed);
}
