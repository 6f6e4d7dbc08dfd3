//! The promises of the algorithms, for random numbers and histories. The script says the same as these rules (a test drives
//! both), so what holds here holds in Redis.

use proptest::prelude::*;

use super::*;

/// One limit's life: its rule, its state, and what it admitted so far as (instant in µs, units).
struct Life {
    algorithm: Algorithm,
    kept: Option<Kept>,
    admitted: Vec<(u64, u64)>,
}

impl Life {
    fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, kept: None, admitted: Vec::new() }
    }

    fn judge(&self, now_us: u64, cost: u64, n: u64) -> Judgement {
        let live = self.kept.as_ref().filter(|kept| kept.expires_at_ms > now_us / 1000);
        let demand =
            Demand { algorithm: self.algorithm, role: Role::Enforced, state: live.map(|kept| &kept.state), cost };
        judge(&[demand], now_us, n).expect("the clock only goes forward")
    }

    fn take(&mut self, now_us: u64, cost: u64, n: u64) -> Judgement {
        let judged = self.judge(now_us, cost, n);
        if let Some(Some(kept)) = judged.writes.first() {
            self.kept = Some(kept.clone());
            self.admitted.push((now_us, judged.admitted * cost));
        }
        judged
    }

    /// Units admitted from `from` on, for `length` microseconds.
    fn within(&self, from: u64, length: u64) -> u64 {
        let inside = self.admitted.iter().filter(|(at, _)| (from..from + length).contains(at));
        inside.map(|(_, units)| units).sum()
    }
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let window = prop_oneof![Just(1u64), 2u64..20, Just(1000), Just(60_000)];
    (0..4u8, 1u64..8, window, prop_oneof![Just(1u64), 2u64..9, Just(333)]).prop_map(|(kind, limit, window, rate)| {
        let rule = match kind {
            0 => FixedWindow::try_new(limit, window).map(Algorithm::FixedWindow).ok(),
            1 => SlidingLog::try_new(limit, window).map(Algorithm::SlidingLog).ok(),
            2 => SlidingWindow::try_new(limit, window).map(Algorithm::SlidingWindow).ok(),
            _ => TokenBucket::try_new(rate, window, limit).map(Algorithm::TokenBucket).ok(),
        };
        rule.expect("small numbers make a rule")
    })
}

/// Steps as (tenths of a window to wait, cost, n).
fn history() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    prop::collection::vec((prop_oneof![Just(0u64), 0u64..4, 0u64..40], 1u64..4, 1u64..5), 1..60)
}

/// A tenth of the window or period, in microseconds.
fn tenth_us(algorithm: &Algorithm) -> u64 {
    let ms = match algorithm {
        Algorithm::TokenBucket(rule) => rule.per_ms(),
        other => other.window_ms().unwrap_or(1),
    };
    ms * 100
}

fn live(algorithm: Algorithm, history: &[(u64, u64, u64)]) -> (Life, u64) {
    let (mut life, mut now_us) = (Life::new(algorithm), 1_800_000_000_123_456);
    for (wait, cost, n) in history {
        now_us += wait * tenth_us(&algorithm);
        life.take(now_us, *cost, *n);
    }
    (life, now_us)
}

proptest! {
    #[test]
    fn never_more_passes_than_the_bound(algorithm in algorithms(), history in history()) {
        let (life, _) = live(algorithm, &history);
        for (from, _) in &life.admitted {
            match algorithm {
                // Around an edge twice the limit: once at the end of a window, once at the start of the next.
                Algorithm::FixedWindow(rule) => {
                    prop_assert!(life.within(*from, rule.window_ms() * 1000) <= 2 * rule.limit());
                }
                Algorithm::SlidingLog(rule) => {
                    prop_assert!(life.within(*from, rule.window_ms() * 1000) <= rule.limit());
                }
                Algorithm::SlidingWindow(rule) => {
                    let window_us = rule.window_ms() * 1000;
                    prop_assert!(life.within(from / window_us * window_us, window_us) <= rule.limit());
                    prop_assert!(life.within(*from, window_us) <= 2 * rule.limit());
                }
                Algorithm::TokenBucket(rule) => for (to, _) in life.admitted.iter().filter(|(to, _)| to >= from) {
                    let ms = to / 1000 - from / 1000;
                    let passed = life.within(*from, to - from + 1);
                    // burst + rate x t, compared in 1/per of a token so that nothing is rounded
                    prop_assert!(passed * rule.per_ms() <= rule.burst() * rule.per_ms() + ms * rule.rate());
                }
            }
        }
    }

    #[test]
    fn a_refusal_changes_nothing(algorithm in algorithms(), history in history()) {
        let (mut life, now_us) = live(algorithm, &history);
        let before = life.kept.clone();
        let judged = life.take(now_us, algorithm.quota() + 1, 3);
        prop_assert_eq!(judged.admitted, 0);
        prop_assert_eq!(judged.admissions[0].retry_after_ms, None, "a cost above the limit never passes");
        prop_assert_eq!(&life.kept, &before);
    }

    #[test]
    fn the_wait_is_refused_at_every_earlier_instant_and_admitted_at_its_end(
        algorithm in algorithms(), history in history(), cost in 1u64..4,
    ) {
        let (life, now_us) = live(algorithm, &history);
        let admission = life.judge(now_us, cost, 1).admissions[0];
        let Some(wait_ms) = life.judge(now_us, cost, 0).admissions[0].retry_after_ms else {
            prop_assert!(cost > algorithm.quota());
            return Ok(());
        };
        prop_assert!(admission.remaining <= algorithm.quota());
        prop_assert_eq!(life.judge(now_us + wait_ms * 1000, cost, 1).admitted, 1);
        // Each earlier millisecond for short waits; for long ones the last of them and some between.
        let earlier = (0..wait_ms.min(50)).chain((1..20).map(|part| wait_ms * part / 20)).chain(wait_ms.checked_sub(1));
        for ms in earlier.filter(|ms| *ms < wait_ms) {
            prop_assert_eq!(life.judge(now_us + ms * 1000, cost, 1).admitted, 0, "after {} of {} ms", ms, wait_ms);
        }
    }

    #[test]
    fn what_remains_passes_now_and_one_more_does_not(algorithm in algorithms(), history in history()) {
        let (mut life, now_us) = live(algorithm, &history);
        let remaining = life.judge(now_us, 1, 0).admissions[0].remaining;
        prop_assert_eq!(life.take(now_us, 1, remaining + 5).admitted, remaining);
    }

    #[test]
    fn at_the_reset_the_whole_quota_is_back_and_no_more(algorithm in algorithms(), history in history()) {
        let (life, now_us) = live(algorithm, &history);
        let reset_ms = life.judge(now_us, 1, 0).admissions[0].reset_after_ms;
        prop_assert_eq!(life.judge(now_us + reset_ms * 1000, 1, 1000).admitted, algorithm.quota());
        let idle_us = 400 * 24 * 3600 * 1_000_000;
        prop_assert_eq!(life.judge(now_us + idle_us, 1, 1000).admitted, algorithm.quota(), "after any idle");
    }

    #[test]
    fn a_client_that_retries_without_pause_gets_what_a_patient_one_gets(
        algorithm in algorithms(), waits in prop::collection::vec(1u64..30, 1..20),
    ) {
        let (mut patient, mut pushy) = (Life::new(algorithm), Life::new(algorithm));
        let mut now_us = 1_800_000_000_000_000;
        for wait in waits {
            let next = now_us + wait * tenth_us(&algorithm);
            // Refused at once and again and again: a cost that can never pass.
            for at in (now_us..next).step_by(usize::try_from(tenth_us(&algorithm)).expect("small")) {
                prop_assert_eq!(pushy.take(at, algorithm.quota() + 1, 1).admitted, 0);
            }
            now_us = next;
            prop_assert_eq!(patient.take(now_us, 1, 2), pushy.take(now_us, 1, 2));
        }
    }
}
