//! What Retry-After says is enough, for every algorithm and waits that are no whole seconds (P12). The waits are the
//! subject here, so they are waited for, side by side.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use redis::Connection;
use tallygate::decision::algorithm::{Algorithm, Role};
use tallygate::decision::limit::Charge;
use tallygate::decision::token_bucket::TokenBucket;

use crate::support::answer::{Answer, Outcome};
use crate::support::check::Check;
use crate::support::grpc::Client;
use crate::support::policy::{Policy, Rule};
use crate::support::redis::RedisServer;
use crate::support::schedule::Slot;
use crate::support::script::{Subject, connect, four, script_of};
use crate::support::setup::Setup;

const SUBJECTS: u64 = 7;
const ROUNDS: usize = 3;

/// One at a time, with waits that are no whole seconds: windows of 700 and 1300 ms, a token every 300 and every 1500 ms; and
/// requests that cost three of four, so that they wait for a part of what is taken.
fn rules() -> impl Iterator<Item = (Rule, u64, u64)> {
    let windows = ["fixed-window", "sliding-window", "sliding-log"].map(|name| [(name, 700), (name, 1300)]);
    let all = windows.into_iter().chain([[("token-bucket", 300), ("token-bucket", 1500)]]).flatten();
    all.flat_map(|(name, ms)| [(Rule::new(name, 1, ms), ms, 1), (Rule::new(name, 4, ms), ms, 3)])
}

/// Asks until it is refused: at a window's edge two may pass.
#[track_caller]
fn refused(client: &Client, check: &Check) -> Answer {
    let refused = (0..100).map(|_| client.check(check)).find(|answer| answer.outcome() == Outcome::Limited);
    refused.expect("of a hundred checks at once one is refused")
}

// RL-11
#[test]
fn a_client_that_waits_as_long_as_it_is_told_is_allowed() {
    let redis = RedisServer::start();
    let policy = |rule: &Rule, ms: u64, cost: u64| {
        Policy::only(&format!("{}-{ms}-{cost}", rule.name), &rule.yaml).more(&format!("cost: {cost}"))
    };
    let setup = Setup::patient(redis.port());
    let setup = rules().fold(setup, |setup, (rule, ms, cost)| setup.with(&policy(&rule, ms, cost)));
    let sidecar = setup.start();
    let client = sidecar.client();
    let rounds: Vec<&str> = thread::scope(|scope| {
        let mut clients = Vec::new();
        for (rule, ms, cost) in rules() {
            for n in 0..SUBJECTS {
                let (client, rule) = (&client, rule.clone());
                clients.push(scope.spawn(move || {
                    let check = Check::of(&format!("subject-{n}")).path(&format!("/{}-{ms}-{cost}", rule.name));
                    // Each meets another age of the window.
                    thread::sleep(Duration::from_millis(n * ms / SUBJECTS));
                    for _ in 0..ROUNDS {
                        let told = refused(client, &check).retry_after();
                        let longest = match rule.name {
                            "sliding-window" => 2 * ms,
                            // A token at a time.
                            "token-bucket" => cost * ms,
                            _ => ms,
                        };
                        assert!((1..=longest.div_ceil(1000)).contains(&told), "{}: {told} s", rule.yaml);
                        thread::sleep(Duration::from_secs(told));
                        let answer = client.check(&check);
                        assert_eq!(
                            answer.outcome(),
                            Outcome::Allowed,
                            "{} costs {cost}, after {told} s: {answer:?}",
                            rule.yaml
                        );
                    }
                    [rule.name; ROUNDS]
                }));
            }
        }
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let mut by_algorithm = HashMap::new();
    rounds.into_iter().for_each(|name| *by_algorithm.entry(name).or_insert(0) += 1);
    assert!(by_algorithm.len() == 4 && by_algorithm.values().all(|&rounds| rounds >= 80), "{by_algorithm:?}");
}

/// One call of the script: how many passed (0 or 1), the store's time, and the wait.
#[track_caller]
fn ask(connection: &mut Connection, charges: &[Charge<'_>]) -> (i64, i64, i64) {
    let reply: Vec<i64> = script_of(charges).by_text(charges, 1 << 52, 1).query(connection).expect("a reply");
    (reply[0], reply[1], reply[3])
}

// The milliseconds in the reply, which the header rounds up: neither too long nor too short by one.
#[test]
fn the_wait_in_the_reply_is_exact_on_the_stores_clock() {
    let redis = RedisServer::start();
    // Tokens that take no whole number of milliseconds.
    let fractions = [(3, 1000), (7, 1000), (9, 5000)].map(|(rate, per)| TokenBucket::try_new(rate, per, 1).unwrap());
    let fractions = fractions.map(|rule| Slot { algorithm: Algorithm::TokenBucket(rule), role: Role::Enforced });
    let slots: Vec<Slot> = [700, 1300, 37].iter().flat_map(|&ms| four(1, ms)).chain(fractions).collect();
    thread::scope(|scope| {
        for (n, slot) in slots.iter().enumerate() {
            let mut connection = connect(&redis);
            scope.spawn(move || {
                let slots = [*slot];
                let subject = Subject::new(&format!("s{n}"), &slots);
                let charges = subject.charges(&slots, 1);
                for _ in 0..ROUNDS {
                    let asked = (0..100).map(|_| ask(&mut connection, &charges)).find(|(passed, ..)| *passed == 0);
                    let (_, at_us, wait_ms) = asked.expect("of a hundred calls at once one is refused");
                    // A log counts in microseconds and rounds the wait up; the others count in milliseconds.
                    let (promised_us, rounding_us) = match slot.algorithm {
                        Algorithm::SlidingLog(_) => (at_us + wait_ms * 1000, 1000),
                        _ => ((at_us / 1000 + wait_ms) * 1000, 0),
                    };
                    // Most of the wait asleep, the rest without pause.
                    thread::sleep(Duration::from_millis(u64::try_from(wait_ms - 3).unwrap_or(0)));
                    let last = loop {
                        let (passed, now_us, _) = ask(&mut connection, &charges);
                        if passed == 1 {
                            break now_us;
                        }
                        assert!(now_us < promised_us, "{slot:?}: refused {} us late", now_us - promised_us);
                    };
                    assert!(last + rounding_us >= promised_us, "{slot:?}: passed {} us early", promised_us - last);
                }
            });
        }
    });
}
