//! Nobody gets the answer to somebody else's question, however many leave before theirs (RL-22).

use std::time::{Duration, Instant};

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::keys;
use crate::support::proxy::FaultProxy;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::timing::soak::times;

const SUBJECTS: usize = 200;
/// One check in so many meets a key of a wrong type.
const FOREIGN: usize = 500;

/// A subject at its limit, told from all others by what is left of its window.
struct Seeded {
    left: Duration,
    /// When the counter was put there: not before the first, not after the second.
    at: [Instant; 2],
}

impl Seeded {
    /// What `Retry-After` may say of this subject in an answer to a check that was sent then and took so long.
    fn waits(&self, sent: Instant, took: Duration) -> std::ops::RangeInclusive<u64> {
        let seconds = |left: Duration| u64::try_from(left.as_millis().div_ceil(1000)).expect("a short wait");
        // Both ends of a wait are whole milliseconds.
        let rounding = Duration::from_millis(2);
        let least = self.left.saturating_sub(sent + took - self.at[0] + rounding);
        let most = self.left + rounding - sent.saturating_duration_since(self.at[1]);
        seconds(least)..=seconds(most)
    }
}

fn key(subject: &str) -> String {
    keys::key("orders", 3_600_000, &[("route/tenant", "", b"acme"), ("route/subject", "", subject.as_bytes())])
}

// RL-22
#[test]
fn each_of_thousands_of_checks_gets_its_own_answer_although_a_third_of_the_clients_leave() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let sidecar = Setup::redis(proxy.port()).policy("orders", 5, "1h", "closed").start();
    let client = sidecar.client();
    let seed = |n: usize| {
        let ms = 1_000_000 + u64::try_from(n).expect("a small number") * 10_000;
        let before = Instant::now();
        redis.seed(&key(&format!("subject-{n}")), "5", ms);
        Seeded { left: Duration::from_millis(ms), at: [before, Instant::now()] }
    };
    let seeded: Vec<_> = (0..SUBJECTS).map(seed).collect();
    redis.run(&["RPUSH", &key("list"), "5"]);
    redis.run(&["PEXPIRE", &key("list"), "3600000"]);

    proxy.jitter(Duration::from_millis(5));
    let is_foreign = |n: usize| n % FOREIGN == FOREIGN - 1;
    let checks = (0..times(6_000, 50_000)).map(|n| {
        let subject = if is_foreign(n) { "list".to_owned() } else { format!("subject-{}", n % SUBJECTS) };
        // Three in ten leave, after 0 to 5 ms.
        let patience = (n * 7 % 10 < 3).then(|| Duration::from_micros(u64::try_from(n * 13 % 51).unwrap() * 100));
        (Check::of(&subject), patience)
    });
    let answers = client.check_impatiently(checks.collect(), 64);

    let (mut left, mut late) = (0, 0);
    for (n, (sent, answer)) in answers.iter().enumerate() {
        let Some(answer) = answer else {
            left += 1;
            continue;
        };
        match (answer.outcome(), answer.metadata("reason").as_str()) {
            (Outcome::Failed, "foreign") => assert!(is_foreign(n), "check {n} got the error of another"),
            // On a machine that stalls; whoever hears it was at least told nothing wrong.
            (Outcome::Failed, "timeout" | "disconnected" | "late") => late += 1,
            (Outcome::Limited, _) if !is_foreign(n) => {
                let waits = seeded[n % SUBJECTS].waits(*sent, answer.took);
                let said = answer.retry_after();
                assert!(waits.contains(&said), "check {n} was told {said} s, and its own wait is {waits:?} s");
            }
            _ => panic!("check {n}: {answer:?}"),
        }
    }
    let all = answers.len();
    assert!(left >= all / 20, "only {left} of {all} clients left early: the trial shows nothing");
    assert!(late <= all / 20, "{late} of {all} were not decided");
    assert_eq!(client.check(&Check::of("after")).outcome(), Outcome::Allowed);
}
