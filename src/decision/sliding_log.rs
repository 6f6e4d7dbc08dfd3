//! Sliding log: at most `limit` units in *any* window, exactly, at the price of remembering each unit.
//!
//! State: the instants at which units were taken, in microseconds of the store's clock, never decreasing. A unit is alive
//! for `window` after its instant. Nothing is trimmed unless something is added. For limits up to some thousands; above that
//! a sliding window is the better choice.
//!
//! The Lua twin is `lua/sliding_log.lua`.

use std::collections::VecDeque;

use super::algorithm::{CLOCK_TOLERANCE_MS, Foreign, HARD_MAX_LIMIT, HARD_MAX_WINDOW_MS};

/// The rule's numbers, valid by construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingLog {
    limit: u64,
    window_ms: u64,
}

/// Why numbers are not a [`SlidingLog`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSlidingLog {
    #[error("a limit is a whole number from 1 to {HARD_MAX_LIMIT}")]
    Limit,
    #[error("a window is 1 ms to 366 days")]
    Window,
}

/// What is stored: instants in µs and the units taken at each, oldest first. (In Redis each unit is a member of its own.)
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub taken: VecDeque<(u64, u64)>,
}

/// A log judged at one instant.
#[derive(Debug, Clone)]
pub struct Standing {
    rule: SlidingLog,
    now_us: u64,
    /// Only what is alive, oldest first.
    alive: VecDeque<(u64, u64)>,
}

impl SlidingLog {
    pub fn try_new(limit: u64, window_ms: u64) -> Result<Self, BadSlidingLog> {
        if !(1..=HARD_MAX_LIMIT).contains(&limit) {
            return Err(BadSlidingLog::Limit);
        }
        if !(1..=HARD_MAX_WINDOW_MS).contains(&window_ms) {
            return Err(BadSlidingLog::Window);
        }
        Ok(Self { limit, window_ms })
    }

    pub fn limit(self) -> u64 {
        self.limit
    }

    pub fn window_ms(self) -> u64 {
        self.window_ms
    }

    fn window_us(self) -> u64 {
        self.window_ms * 1000
    }

    /// Judges stored state at `now_us`, or at its own latest instant if the clock stepped back behind that.
    pub fn stand(self, stored: Option<&State>, now_us: u64) -> Result<Standing, Foreign> {
        let taken = stored.map(|state| &state.taken);
        let latest = taken.and_then(|taken| taken.back()).map_or(0, |(at, _)| *at);
        if latest > now_us + CLOCK_TOLERANCE_MS * 1000 {
            return Err(Foreign::AheadOfClock);
        }
        let now_us = now_us.max(latest);
        let alive = |(at, _): &&(u64, u64)| at + self.window_us() > now_us;
        let alive = taken.map(|taken| taken.iter().filter(alive).copied().collect()).unwrap_or_default();
        Ok(Standing { rule: self, now_us, alive })
    }
}

impl Standing {
    /// How many requests of `cost` units fit now.
    pub fn fits(&self, cost: u64) -> u64 {
        self.remaining() / cost
    }

    /// Charges `units`, which must fit.
    pub fn take(&mut self, units: u64) {
        self.alive.push_back((self.now_us, units));
    }

    pub fn remaining(&self) -> u64 {
        self.rule.limit.saturating_sub(self.units())
    }

    pub fn retry_after_ms(&self, cost: u64) -> Option<u64> {
        if cost <= self.remaining() {
            Some(0)
        } else if cost > self.rule.limit {
            None
        } else {
            // So many of the oldest units must have gone; the last of them decides.
            Some(self.dead_after_ms(self.instant_of(self.units() + cost - self.rule.limit)))
        }
    }

    /// Until the last unit has gone.
    pub fn reset_after_ms(&self) -> u64 {
        self.alive.back().map_or(0, |(at, _)| self.dead_after_ms(*at))
    }

    /// What to store after [`take`](Self::take).
    pub fn state(&self) -> State {
        State { taken: self.alive.clone() }
    }

    /// When the last unit has gone.
    pub fn expires_at_ms(&self) -> u64 {
        let latest = self.alive.back().map_or(self.now_us, |(at, _)| *at);
        (latest + self.rule.window_us()).div_ceil(1000)
    }

    fn units(&self) -> u64 {
        self.alive.iter().map(|(_, units)| units).sum()
    }

    /// The instant of the `nth` oldest unit that is alive, from 1.
    fn instant_of(&self, nth: u64) -> u64 {
        let mut seen = 0;
        let reached = self.alive.iter().find(|(_, units)| {
            seen += units;
            seen >= nth
        });
        reached.map_or(self.now_us, |(at, _)| *at)
    }

    fn dead_after_ms(&self, at: u64) -> u64 {
        (at + self.rule.window_us() - self.now_us).div_ceil(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(limit: u64, window_ms: u64) -> SlidingLog {
        SlidingLog::try_new(limit, window_ms).unwrap()
    }

    /// Takes one request of `cost` at each instant that lets it pass, and tells which did.
    fn passed(rule: SlidingLog, cost: u64, instants: &[u64]) -> Vec<u64> {
        let mut state = None;
        let pass = |now: &&u64| {
            let mut standing = rule.stand(state.as_ref(), **now).unwrap();
            let fits = standing.fits(cost) > 0;
            if fits {
                standing.take(cost);
                state = Some(standing.state());
            }
            fits
        };
        instants.iter().filter(pass).copied().collect()
    }

    // RL-06: requests of one instant are as many as they are.
    #[test]
    fn requests_of_one_instant_are_all_counted() {
        assert_eq!(passed(rule(3, 10), 1, &[7; 5]), [7; 3]);
        assert_eq!(passed(rule(5, 10), 2, &[7; 5]), [7; 2]);
    }

    #[test]
    fn at_most_the_limit_in_any_window() {
        let instants: Vec<u64> = (0..100_000).step_by(700).collect();
        let passed = passed(rule(3, 10), 1, &instants);
        for from in &passed {
            let within = passed.iter().filter(|at| *at >= from && **at < from + 10_000).count();
            assert!(within <= 3, "{within} from {from}");
        }
        assert!(passed.len() >= 27, "and the limit is used: {}", passed.len());
    }

    #[test]
    fn the_wait_counts_from_the_decisions_microsecond() {
        let mut standing = rule(1, 10).stand(None, 1_000_001).unwrap();
        standing.take(1);
        let state = standing.state();
        let judged = rule(1, 10).stand(Some(&state), 1_005_500).unwrap();
        assert_eq!(judged.retry_after_ms(1), Some(5), "4.501 ms, rounded up");
        assert_eq!(rule(1, 10).stand(Some(&state), 1_010_000).unwrap().fits(1), 0);
        assert_eq!(rule(1, 10).stand(Some(&state), 1_010_001).unwrap().fits(1), 1);
        assert_eq!(standing.expires_at_ms(), 1011);
    }

    #[test]
    fn a_clock_that_stepped_back_stops_at_the_latest_instant() {
        let state = State { taken: VecDeque::from([(5_000_000, 1)]) };
        let mut standing = rule(2, 10).stand(Some(&state), 4_000_000).unwrap();
        standing.take(1);
        assert_eq!(standing.state().taken, [(5_000_000, 1), (5_000_000, 1)]);
        assert_eq!(rule(2, 10).stand(Some(&state), 3_999_999).map(|_| ()), Err(Foreign::AheadOfClock));
    }

    #[test]
    fn a_lowered_limit_leaves_no_room_and_a_right_wait() {
        let state = State { taken: VecDeque::from([(1000, 5), (2000, 5)]) };
        let standing = rule(4, 10).stand(Some(&state), 3000).unwrap();
        assert_eq!((standing.remaining(), standing.retry_after_ms(1), standing.reset_after_ms()), (0, Some(9), 9));
        assert_eq!(standing.retry_after_ms(5), None);
    }
}
