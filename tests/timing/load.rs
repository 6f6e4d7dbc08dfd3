//! Checks at a steady rate, whatever becomes of them, and what must hold for each of them afterwards.
//!
//! Every tenth check is under no policy, so that it asks no store: how long it takes shows how long this machine keeps any
//! check waiting under this load, as the stall probe shows it for a thread that has nothing to do.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::answer::{Answer, Outcome};
use crate::support::check::Check;
use crate::support::grpc::Client;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::timing::stall::StallProbe;

/// The default decision budget.
pub const BUDGET: Duration = Duration::from_millis(250);
/// Once Redis is back, everything is decided by it again within this.
pub const RECOVERY: Duration = Duration::from_secs(2);
/// After this an outage is known: two time-outs, and the attempt to connect that fails first.
pub const NOTICED: Duration = Duration::from_millis(600);

/// One in so many checks asks no store.
const STORELESS: usize = 10;

/// What is sent.
#[derive(Clone, Copy)]
pub struct Stream {
    /// Checks a second.
    pub rate: u32,
    /// Checks are for so many subjects in turn.
    pub subjects: usize,
    /// And under these paths in turn.
    pub paths: &'static [&'static str],
}

impl Stream {
    /// For the policy `orders`.
    pub const fn of(rate: u32, subjects: usize) -> Self {
        Self { rate, subjects, paths: &["/orders"] }
    }

    fn nth(&self, n: usize) -> Check {
        let path = if n.is_multiple_of(STORELESS) { "/elsewhere" } else { self.paths[n % self.paths.len()] };
        Check::of(&format!("subject-{}", n % self.subjects)).path(path)
    }
}

/// A check of the load and what came of it.
pub struct Sent {
    /// Whose: `subject-N`.
    pub subject: usize,
    pub at: Instant,
    pub answer: Answer,
}

impl Sent {
    pub fn answered_at(&self) -> Instant {
        self.at + self.answer.took
    }

    pub fn outcome(&self) -> Outcome {
        self.answer.outcome()
    }
}

/// Everything that was sent.
pub struct Load {
    pub started: Instant,
    pub sent: Vec<Sent>,
    /// The longest stall that the probe or a check without a store has met.
    pub stall: Duration,
}

impl Load {
    /// Sends `stream` while `during` runs, and waits for every answer.
    pub fn run(client: &Client, stream: Stream, stall: &StallProbe, during: impl FnOnce()) -> Self {
        let (started, pace, done) = (Instant::now(), Duration::from_secs(1) / stream.rate, AtomicBool::new(false));
        let sent = thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let mut sent = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    let n = sent.len();
                    let due = started + pace * u32::try_from(n).expect("a short run");
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    sent.push((n % stream.subjects, Instant::now(), client.start(&stream.nth(n))));
                }
                sent
            });
            // A panic in there must not leave the sender running.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
            done.store(true, Ordering::Relaxed);
            let sent = sending.join().expect("the sender only sends");
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sent
        });
        let sent = sent.into_iter().map(|(subject, at, check)| Sent { subject, at, answer: check.join() });
        let (storeless, sent): (Vec<_>, Vec<_>) = sent.enumerate().partition(|(n, _)| n.is_multiple_of(STORELESS));
        let slowest = storeless.iter().map(|(_, sent)| sent.answer.took).max().unwrap_or_default();
        let sent = sent.into_iter().map(|(_, sent)| sent).collect();
        Self { started, sent, stall: stall.longest().max(slowest) }
    }

    /// Those sent at or after `from` and answered before `to`.
    pub fn between(&self, from: Instant, to: Instant) -> impl Iterator<Item = &Sent> {
        self.sent.iter().filter(move |sent| sent.at >= from && sent.answered_at() < to)
    }

    pub fn since(&self, from: Instant) -> impl Iterator<Item = &Sent> {
        self.sent.iter().filter(move |sent| sent.at >= from)
    }

    /// Each was answered, in time, with nothing but the three verdicts of a closed policy.
    #[track_caller]
    pub fn is_answered_in_time(&self) {
        let expected = [Outcome::Allowed, Outcome::Limited, Outcome::Failed];
        let odd = self.sent.iter().find(|sent| !expected.contains(&sent.outcome()));
        assert!(odd.is_none(), "{:?}", odd.map(|sent| &sent.answer));
        let slowest = self.sent.iter().max_by_key(|sent| sent.answer.took).expect("something was sent");
        let (took, bound) = (slowest.answer.took, BUDGET + Duration::from_millis(50) + self.stall);
        let (at, reason) = (slowest.at - self.started, slowest.answer.metadata("reason"));
        assert!(took <= bound, "an answer took {took:?}, more than {bound:?}; sent after {at:?}, {reason}");
    }

    /// In a known outage nobody waits: 99 % of these answers took no more than 5 ms.
    #[track_caller]
    pub fn came_at_once<'a>(&self, sent: impl Iterator<Item = &'a Sent>) {
        let mut took: Vec<_> = sent.map(|sent| sent.answer.took).collect();
        took.sort();
        assert!(took.len() >= 100, "only {} answers to judge by", took.len());
        let (most, bound) = (took[took.len() * 99 / 100], Duration::from_millis(5) + self.stall);
        assert!(most <= bound, "1 % of the answers took more than {most:?}; wanted {bound:?}");
    }

    /// Each subject's counter is explained by its checks since `from`, when there was none: an allowed check is counted, a
    /// limited one is not, and of a failed one nobody can tell but that it counts once at most. None is above `limit`.
    #[track_caller]
    pub fn explains(&self, redis: &RedisServer, from: Instant, limit: u64) {
        let mut checks: HashMap<usize, (u64, u64)> = HashMap::new();
        for sent in self.since(from) {
            let (allowed, failed) = checks.entry(sent.subject).or_default();
            *allowed += u64::from(sent.outcome() == Outcome::Allowed);
            *failed += u64::from(sent.outcome() == Outcome::Failed);
        }
        for (subject, (allowed, failed)) in checks {
            let text = redis.get(&key(subject));
            let counted = text.map_or(0, |count| count.parse().expect("a counter is a number"));
            let explained = allowed..=(allowed + failed).min(limit);
            assert!(explained.contains(&counted), "subject {subject}: {counted} counted, explained are {explained:?}");
        }
    }
}

/// The key of the n-th subject.
pub fn key(subject: usize) -> String {
    keys::orders(&format!("subject-{subject}"))
}

/// How often each outcome is among these.
pub fn outcomes<'a>(sent: impl Iterator<Item = &'a Sent>) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for sent in sent {
        let word = match sent.outcome() {
            Outcome::Failed => format!("Failed {}", sent.answer.metadata("reason")),
            other => format!("{other:?}"),
        };
        *found.entry(word).or_default() += 1;
    }
    found
}

/// All of these, and there is one, failed.
#[track_caller]
pub fn all_failed<'a>(sent: impl Iterator<Item = &'a Sent>) {
    let found = outcomes(sent);
    assert!(
        !found.is_empty() && found.keys().all(|word| word.starts_with("Failed")),
        "wanted failures, found {found:?}"
    );
}

/// Each of these, and there is one, was decided by the shared limit.
#[track_caller]
pub fn are_decided<'a>(sent: impl Iterator<Item = &'a Sent>) {
    let found = outcomes(sent);
    let decided = |word: &String| word == "Allowed" || word == "Limited";
    assert!(!found.is_empty() && found.keys().all(decided), "wanted decisions, found {found:?}");
}

/// Lets a fault, or the time after one, last. Nothing is hoped for meanwhile: what happens is judged afterwards.
pub fn hold(duration: Duration) {
    thread::sleep(duration);
}
