use std::time::Duration;

use super::*;
use crate::decision::identity::{IdentitySources, Part, Source};
use crate::decision::key::{KeyTemplate, Secret};
use crate::decision::policy::{Policy, fixtures};
use crate::store::clock::ManualClock;

/// Local limits with a table of so many counters, and the clock they go by.
struct Local {
    limits: LocalLimits,
    clock: Arc<ManualClock>,
    policy: Policy,
    sources: IdentitySources,
}

impl Local {
    fn with_room_for(counters: usize) -> Self {
        let clock = Arc::new(ManualClock::default());
        Self {
            limits: LocalLimits::new(counters, Arc::clone(&clock)),
            clock,
            policy: fixtures::policy(&[("a", 1, &[Part::Subject])]),
            sources: IdentitySources { subject: vec![Source::route("subject")], ..Default::default() },
        }
    }

    /// Whether `limit` lets this subject pass.
    fn allows(&self, limit: &Limit, subject: &str) -> bool {
        let route = fixtures::route(&[("subject", subject)]);
        let plan = self.policy.plan(&self.sources, &fixtures::request(&route)).ok().unwrap();
        match self.limits.decide(&plan, limit) {
            Verdict::Allowed(_) => true,
            Verdict::Denied(_) => false,
            _ => panic!("neither allowed nor denied"),
        }
    }
}

/// So many a second for each subject, in policy `p` like everything of the fixtures.
fn limit(number: u64) -> Limit {
    fixtures::policy(&[("local", number, &[Part::Subject])]).limits.remove(0)
}

#[test]
fn with_every_counter_in_use_newcomers_share_one() {
    let (local, limit) = (Local::with_room_for(1), limit(1));
    assert!(local.allows(&limit, "first"));
    assert!(local.allows(&limit, "second"), "the overflow counter");
    assert!(!local.allows(&limit, "third"), "the same overflow counter");
    assert!(!local.allows(&limit, "first"), "those who have a counter keep it");
    assert_eq!(local.limits.len(), 2);
}

// Nothing is cleared wholesale: neither a newcomer nor the sweep gives anybody a second allowance.
#[test]
fn a_full_table_and_its_sweep_refill_nobody() {
    let (local, limit) = (Local::with_room_for(2), limit(1));
    assert!(local.allows(&limit, "first") && local.allows(&limit, "second") && local.allows(&limit, "third"));
    for n in 0..9 {
        local.clock.advance(Duration::from_millis(100));
        local.limits.sweep();
        for subject in ["first", "second", "third", &format!("newcomer-{n}")] {
            assert!(!local.allows(&limit, subject), "{subject} after {} ms", n * 100 + 100);
        }
    }
    assert_eq!(local.limits.len(), 3, "newcomers took no room");
}

#[test]
fn counters_whose_window_is_over_make_room_first() {
    let (local, limit) = (Local::with_room_for(2), limit(1));
    assert!(local.allows(&limit, "first"));
    local.clock.advance(Duration::from_millis(600));
    assert!(local.allows(&limit, "second") && local.allows(&limit, "third"), "third has the overflow counter");
    local.clock.advance(Duration::from_millis(400));
    assert!(local.allows(&limit, "fourth"), "in the place of first, whose second is over");
    assert!(!local.allows(&limit, "fifth"), "the overflow counter that third has used up");
    assert!(!local.allows(&limit, "second"), "whose second is not over");
}

#[test]
fn each_policy_has_an_overflow_counter_of_its_own() {
    let (local, ours) = (Local::with_room_for(1), limit(1));
    let secret = Secret::read([7; 32]).unwrap();
    let theirs = Limit { key: KeyTemplate::lone(&secret, ("rl", "q", 1), &ours.algorithm.shape()), ..limit(1) };
    assert!(local.allows(&ours, "first"));
    assert!(local.allows(&ours, "second"));
    assert!(local.allows(&theirs, "second"), "the other policy's");
    assert!(!local.allows(&ours, "third") && !local.allows(&theirs, "third"));
}

#[test]
fn after_their_window_counters_give_their_memory_back_without_another_check() {
    let (local, limit) = (Local::with_room_for(2), limit(1));
    assert!(local.allows(&limit, "first") && local.allows(&limit, "second") && local.allows(&limit, "third"));
    assert_eq!(local.limits.len(), 3);
    local.clock.advance(Duration::from_millis(1000));
    local.limits.sweep();
    assert_eq!(local.limits.len(), 0);
}

// A reload may change the number; what was counted stays counted.
#[test]
fn another_number_goes_on_from_the_same_count() {
    let local = Local::with_room_for(2);
    assert!(local.allows(&limit(1), "first"));
    assert!(local.allows(&limit(2), "first"), "one more");
    assert!(!local.allows(&limit(2), "first"));
    assert!(!local.allows(&limit(1), "first"));
}
