//! A steady load while something happens to Redis, and what became of each check.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::support::answer::{Answer, Outcome};
use crate::support::check::Check;
use crate::support::grpc::{Client, InFlight};
use crate::support::keys;
use crate::support::wait::wait_for;
use crate::timing::stall::StallProbe;

/// The default decision budget.
pub const BUDGET: Duration = Duration::from_millis(250);
/// A check that no fault touches takes a millisecond; one that waits for a silent node 200.
pub const UNHINDERED: Duration = Duration::from_millis(50);
/// 100 checks a second.
const PACE: Duration = Duration::from_millis(10);

pub struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<Asked>>,
    stall: StallProbe,
}

pub struct Asked {
    pub subject: String,
    pub sent: Instant,
    pub answer: Answer,
}

/// What a load has met.
pub struct Report {
    pub asked: Vec<Asked>,
    /// What every bound is widened by.
    slack: Duration,
}

impl Load {
    /// Each check is of a subject of its own, so that a counter above 1 was counted twice.
    pub fn start(client: &Client) -> Self {
        Self::of(client, |n| format!("load-{n}"))
    }

    /// The same with subjects of the caller's choice, by the number of the check.
    pub fn of(client: &Client, subject: impl Fn(usize) -> String + Send + 'static) -> Self {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopping, counting, client) = (Arc::clone(&stop), Arc::clone(&sent), client.clone());
        let thread = thread::spawn(move || {
            let started = Instant::now();
            let mut flying = Vec::new();
            while !stopping.load(Ordering::Relaxed) {
                let n = counting.fetch_add(1, Ordering::Relaxed);
                let subject = subject(n);
                flying.push((Instant::now(), client.start(&Check::of(&subject)), subject));
                let next = started + PACE * u32::try_from(n + 1).expect("a short load");
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            let land = |(sent, check, subject): (_, InFlight, _)| Asked { subject, sent, answer: check.join() };
            flying.into_iter().map(land).collect()
        });
        Self { stop, sent, thread, stall: StallProbe::start() }
    }

    /// Waits for so many checks more.
    #[track_caller]
    pub fn goes_on_for(&self, checks: usize) {
        let until = self.sent.load(Ordering::Relaxed) + checks;
        wait_for("the load to go on", Duration::from_secs(60), || self.sent.load(Ordering::Relaxed) >= until);
    }

    #[track_caller]
    pub fn stop(self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        let asked = self.thread.join().expect("every check got an answer");
        Report { asked, slack: self.stall.bound(Duration::ZERO) }
    }
}

impl Asked {
    pub fn is_failed(&self) -> bool {
        self.answer.outcome() == Outcome::Failed
    }

    pub fn is_allowed(&self) -> bool {
        self.answer.outcome() == Outcome::Allowed
    }

    pub fn key(&self) -> String {
        keys::orders(&self.subject)
    }
}

impl Report {
    /// Every check was allowed or failed, within its budget.
    #[track_caller]
    pub fn was_answered_in_time(&self) {
        let bound = BUDGET + self.slack;
        for Asked { subject, answer, .. } in &self.asked {
            let outcome = answer.outcome();
            assert!([Outcome::Allowed, Outcome::Failed].contains(&outcome), "{subject}: {outcome:?}");
            assert!(answer.took <= bound, "{subject} took {:?}, more than {bound:?}", answer.took);
        }
    }

    /// Each allowance was counted by one of these nodes, and no check twice by one.
    #[track_caller]
    pub fn is_explained_by(&self, nodes: &[&BTreeMap<String, u64>]) {
        for asked in &self.asked {
            let counts: Vec<u64> = nodes.iter().filter_map(|node| node.get(&asked.key()).copied()).collect();
            assert!(counts.iter().all(|count| *count == 1), "{}: one check, counted {counts:?}", asked.subject);
            assert!(!asked.is_allowed() || !counts.is_empty(), "{}: allowed, and counted nowhere", asked.subject);
        }
    }

    /// Splits off the checks whose subject is `chosen`.
    pub fn split(self, chosen: impl Fn(&str) -> bool) -> (Self, Self) {
        let (these, others) = self.asked.into_iter().partition(|asked| chosen(&asked.subject));
        let slack = self.slack;
        (Self { asked: these, slack }, Self { asked: others, slack })
    }

    /// Every check was allowed, and none waited as long as a time-out lasts.
    #[track_caller]
    pub fn went_on_unhindered(&self) {
        let bound = UNHINDERED + self.slack;
        for asked in &self.asked {
            let Asked { subject, answer, .. } = asked;
            assert!(asked.is_allowed(), "{subject}: {:?} {}", answer.outcome(), answer.metadata("reason"));
            assert!(answer.took <= bound, "{subject} took {:?}, more than {bound:?}", answer.took);
        }
    }

    /// Of the checks sent from `known` on, none that failed had waited for a time-out.
    #[track_caller]
    pub fn failed_at_once(&self, known: Instant) {
        let bound = UNHINDERED + self.slack;
        for Asked { subject, sent, answer } in self.asked.iter().filter(|asked| asked.is_failed()) {
            assert!(*sent < known || answer.took <= bound, "{subject} took {:?}, more than {bound:?}", answer.took);
        }
    }

    /// Nothing failed before the fault, nor longer than promised after all was `well` again.
    #[track_caller]
    pub fn recovered_within(&self, promised: Duration, fault: Instant, well: Instant) {
        let bound = promised + self.slack;
        for Asked { subject, sent, answer } in self.asked.iter().filter(|asked| asked.is_failed()) {
            let at = *sent + answer.took;
            assert!(at >= fault, "{subject} failed before the fault: {}", answer.metadata("reason"));
            let late = at.saturating_duration_since(well);
            assert!(late <= bound, "{subject} failed {late:?} after all was well, more than {bound:?}");
        }
    }
}
