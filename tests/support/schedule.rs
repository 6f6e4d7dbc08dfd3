//! Random schedules for a policy's limits: which, with what numbers, and when the next request comes.

use tallygate::decision::algorithm::{Admission, Algorithm, Role};
use tallygate::decision::fixed_window::FixedWindow;
use tallygate::decision::sliding_log::SlidingLog;
use tallygate::decision::sliding_window::SlidingWindow;
use tallygate::decision::token_bucket::TokenBucket;

/// A small generator of its own (SplitMix64), so that a seed means the same schedule for ever.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From `low` to `high`, both included.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let place = usize::try_from(self.next() % from.len() as u64).expect("a small list");
        from[place]
    }
}

/// One limit of the schedule's policy.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    pub algorithm: Algorithm,
    pub role: Role,
}

/// Numbers for `kind` (0..=3): small, so that edges are met often. `window_ms` stays, as it is part of the key.
fn numbers(random: &mut Random, kind: u64, window_ms: u64) -> Algorithm {
    let limit = random.within(1, 9);
    match kind {
        0 => Algorithm::FixedWindow(FixedWindow::try_new(limit, window_ms).expect("small numbers")),
        1 => Algorithm::SlidingLog(SlidingLog::try_new(limit, window_ms).expect("small numbers")),
        2 => Algorithm::SlidingWindow(SlidingWindow::try_new(limit, window_ms).expect("small numbers")),
        _ => {
            let rate = random.pick(&[1, 3, 7, 50, 1000]);
            Algorithm::TokenBucket(TokenBucket::try_new(rate, window_ms, limit).expect("small numbers"))
        }
    }
}

fn kind_and_window(algorithm: &Algorithm) -> (u64, u64) {
    match algorithm {
        Algorithm::FixedWindow(rule) => (0, rule.window_ms()),
        Algorithm::SlidingLog(rule) => (1, rule.window_ms()),
        Algorithm::SlidingWindow(rule) => (2, rule.window_ms()),
        Algorithm::TokenBucket(rule) => (3, rule.per_ms()),
    }
}

/// One to four limits, at least one of them enforced.
pub fn shape(random: &mut Random) -> Vec<Slot> {
    let count = random.within(1, 4);
    let slot = |place| {
        let window = random.pick(&[1, 2, 7, 10, 50, 333, 1000, 60_000]);
        let kind = random.within(0, 3);
        let role = if place > 0 && random.one_in(4) { Role::Shadow } else { Role::Enforced };
        Slot { algorithm: numbers(random, kind, window), role }
    };
    (0..count).map(slot).collect()
}

/// The same limit with other numbers, as after a reload.
pub fn renumber(random: &mut Random, slot: &mut Slot) {
    let (kind, window) = kind_and_window(&slot.algorithm);
    slot.algorithm = numbers(random, kind, window);
}

/// What a step was, for the coverage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    Edge,
    Backward,
    Other,
}

/// How far the clock goes to the next request: nowhere, a little, long, back, or to within 1 ms of an instant that the last
/// reply named.
pub fn advance(random: &mut Random, last: &[Admission]) -> (i64, Move) {
    let signed = |number: u64| i64::try_from(number).expect("small");
    match random.within(0, 19) {
        0..=3 => (0, Move::Other),
        4..=6 => (signed(random.within(1, 2_000)), Move::Other),
        7..=8 => (signed(random.within(1, 100_000)), Move::Other),
        9 => (signed(random.within(1_000_000, 200_000_000)), Move::Other),
        10 => (-signed(random.within(1, 900_000)), Move::Backward),
        11 => (-signed(random.within(1, 5_000)), Move::Backward),
        12 if random.one_in(4) => (-signed(random.within(900_000, 3_000_000)), Move::Backward),
        _ => {
            let named: Vec<u64> = last
                .iter()
                .flat_map(|a| [a.retry_after_ms.unwrap_or(0), a.reset_after_ms])
                .filter(|ms| *ms > 0)
                .collect();
            if named.is_empty() {
                return (signed(random.within(0, 1_000)), Move::Other);
            }
            let around = random.pick(&[-1000, -1, 0, 0, 1, 1000]);
            ((signed(random.pick(&named)) * 1000 + around).max(0), Move::Edge)
        }
    }
}
