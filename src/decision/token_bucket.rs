//! Token bucket: `burst` tokens at most, `rate` more every `per`, each request takes its cost.
//!
//! State: a level in 1/per_ms of a token and the instant that it is of. So a millisecond refills exactly `rate` units, no
//! fraction is ever lost, and the level keeps its meaning when rate or burst change. Refill is computed when somebody asks and
//! stored only when something is taken, so a client that retries without pause does not stop it. A full bucket is no state.
//!
//! Times are whole milliseconds of the store's clock. The Lua twin is `lua/token_bucket.lua`.

use super::algorithm::{CLOCK_TOLERANCE_MS, Foreign, HARD_MAX_LIMIT, HARD_MAX_WINDOW_MS, MAX_EXACT};

/// The rule's numbers, valid by construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    rate: u64,
    per_ms: u64,
    burst: u64,
}

/// Why numbers are not a [`TokenBucket`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTokenBucket {
    #[error("a rate is a whole number from 1 to {HARD_MAX_LIMIT}")]
    Rate,
    #[error("a burst is a whole number from 1 to {HARD_MAX_LIMIT}")]
    Burst,
    #[error("per is 1 ms to 366 days")]
    Per,
    /// Burst times per is beyond [`MAX_EXACT`]; the largest burst for this period.
    #[error("with this per a burst above {0} cannot be counted exactly: lower one of them")]
    Product(u64),
    /// The days that an empty bucket would take to fill.
    #[error("an empty bucket would take {0} days to fill, more than 366: raise rate or lower burst")]
    Fill(u64),
}

/// What is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// In 1/per_ms of a token.
    pub level: u64,
    /// The instant of the level, in milliseconds of the store's clock.
    pub time_ms: u64,
}

/// A bucket judged at one instant, refilled up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    rule: TokenBucket,
    state: State,
}

impl TokenBucket {
    pub fn try_new(rate: u64, per_ms: u64, burst: u64) -> Result<Self, BadTokenBucket> {
        if !(1..=HARD_MAX_LIMIT).contains(&rate) {
            return Err(BadTokenBucket::Rate);
        }
        if !(1..=HARD_MAX_LIMIT).contains(&burst) {
            return Err(BadTokenBucket::Burst);
        }
        if !(1..=HARD_MAX_WINDOW_MS).contains(&per_ms) {
            return Err(BadTokenBucket::Per);
        }
        let capacity = burst.saturating_mul(per_ms);
        if capacity > MAX_EXACT {
            return Err(BadTokenBucket::Product(MAX_EXACT / per_ms));
        }
        match capacity.div_ceil(rate) {
            fill if fill > HARD_MAX_WINDOW_MS => Err(BadTokenBucket::Fill(fill.div_ceil(24 * 3600 * 1000))),
            _ => Ok(Self { rate, per_ms, burst }),
        }
    }

    pub fn rate(self) -> u64 {
        self.rate
    }

    pub fn per_ms(self) -> u64 {
        self.per_ms
    }

    pub fn burst(self) -> u64 {
        self.burst
    }

    fn capacity(self) -> u64 {
        self.burst * self.per_ms
    }

    /// Judges stored state at `now_us`, or at its own instant if the clock stepped back behind that. A level above
    /// today's burst is today's burst.
    pub fn stand(self, stored: Option<State>, now_us: u64) -> Result<Standing, Foreign> {
        let now_ms = now_us / 1000;
        let Some(stored) = stored else {
            return Ok(Standing { rule: self, state: State { level: self.capacity(), time_ms: now_ms } });
        };
        if stored.time_ms > now_ms + CLOCK_TOLERANCE_MS {
            return Err(Foreign::AheadOfClock);
        }
        let time_ms = now_ms.max(stored.time_ms);
        let level = stored.level.min(self.capacity());
        let idle = time_ms - stored.time_ms;
        // Compared before it is multiplied, so that no idle time is too long.
        let full = idle >= (self.capacity() - level).div_ceil(self.rate);
        let level = if full { self.capacity() } else { level + idle * self.rate };
        Ok(Standing { rule: self, state: State { level, time_ms } })
    }
}

impl Standing {
    /// How many requests of `cost` tokens fit now.
    pub fn fits(&self, cost: u64) -> u64 {
        if cost > self.rule.burst { 0 } else { self.state.level / (cost * self.rule.per_ms) }
    }

    /// Charges `tokens`, which must fit.
    pub fn take(&mut self, tokens: u64) {
        self.state.level -= tokens * self.rule.per_ms;
    }

    pub fn remaining(&self) -> u64 {
        self.state.level / self.rule.per_ms
    }

    pub fn retry_after_ms(&self, cost: u64) -> Option<u64> {
        let needed = (cost <= self.rule.burst).then(|| cost * self.rule.per_ms)?;
        Some(needed.saturating_sub(self.state.level).div_ceil(self.rule.rate))
    }

    /// Until the bucket is full.
    pub fn reset_after_ms(&self) -> u64 {
        (self.rule.capacity() - self.state.level).div_ceil(self.rule.rate)
    }

    /// What to store after [`take`](Self::take).
    pub fn state(&self) -> State {
        self.state
    }

    /// When the bucket is full again and there is nothing to store.
    pub fn expires_at_ms(&self) -> u64 {
        self.state.time_ms + self.reset_after_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(rate: u64, per_ms: u64, burst: u64) -> TokenBucket {
        TokenBucket::try_new(rate, per_ms, burst).unwrap()
    }

    /// How many of one request every `step_ms`, for `for_ms`, pass after the bucket was drained at 0.
    fn pass(rule: TokenBucket, step_ms: u64, for_ms: u64) -> u64 {
        let mut standing = rule.stand(None, 0).unwrap();
        standing.take(rule.burst());
        let (mut state, mut passed) = (standing.state(), 0);
        for now in (step_ms..=for_ms).step_by(usize::try_from(step_ms).unwrap()) {
            let mut standing = rule.stand(Some(state), now * 1000).unwrap();
            if standing.fits(1) > 0 {
                standing.take(1);
                state = standing.state();
                passed += 1;
            }
        }
        passed
    }

    // RL-08: refill under pressure is neither lost nor given twice.
    #[test]
    fn refill_survives_a_client_that_retries_without_pause() {
        assert_eq!(pass(bucket(1, 1000, 5), 250, 10_000), 10);
        assert_eq!(pass(bucket(1, 60_000, 1), 1000, 130_000), 2);
        assert_eq!(pass(bucket(3, 1000, 3), 100, 10_000), 30);
        assert_eq!(pass(bucket(7, 1000, 2), 1, 10_000), 70, "fractions add up");
    }

    #[test]
    fn the_wait_is_enough_and_not_a_millisecond_more() {
        for rule in [bucket(1, 300, 1), bucket(1, 1500, 1), bucket(7, 1000, 3), bucket(1000, 1, 1)] {
            let mut standing = rule.stand(None, 5_000_000).unwrap();
            standing.take(rule.burst());
            let wait = standing.retry_after_ms(1).unwrap();
            let fits = |ms: u64| rule.stand(Some(standing.state()), (5000 + ms) * 1000).unwrap().fits(1);
            assert!(fits(wait) >= 1 && fits(wait - 1) == 0, "{rule:?} {wait}");
        }
    }

    #[test]
    fn after_any_idle_no_more_than_the_burst_passes_at_once() {
        let rule = bucket(50, 1000, 100);
        let standing = rule.stand(Some(State { level: 0, time_ms: 0 }), u64::MAX / 2).unwrap();
        assert_eq!(standing.fits(1), 100);
    }

    #[test]
    fn a_level_keeps_its_meaning_when_rate_and_burst_change() {
        let state = State { level: 100 * 1000, time_ms: 0 };
        assert_eq!(bucket(60, 1000, 200).stand(Some(state), 0).unwrap().fits(1), 100);
        assert_eq!(bucket(60, 1000, 40).stand(Some(state), 0).unwrap().fits(1), 40);
    }

    #[test]
    fn a_cost_above_the_burst_never_passes() {
        let standing = bucket(50, 1000, 100).stand(None, 0).unwrap();
        assert_eq!((standing.fits(101), standing.retry_after_ms(101)), (0, None));
    }

    #[test]
    fn numbers_beyond_exact_counting_or_a_years_fill_do_not_make_a_rule() {
        assert!(TokenBucket::try_new(1, 1, 1).is_ok());
        assert_eq!(TokenBucket::try_new(0, 1, 1), Err(BadTokenBucket::Rate));
        assert_eq!(TokenBucket::try_new(1, 1, 0), Err(BadTokenBucket::Burst));
        assert_eq!(TokenBucket::try_new(1, 0, 1), Err(BadTokenBucket::Per));
        assert_eq!(TokenBucket::try_new(1, 3_600_000, 1_000_000), Err(BadTokenBucket::Fill(41_667)));
        let beyond = Err(BadTokenBucket::Product(284_836));
        assert_eq!(TokenBucket::try_new(1_000_000, HARD_MAX_WINDOW_MS, 284_837), beyond);
        // Beyond 2^64 too, where the product once wrapped round to a small one.
        assert_eq!(TokenBucket::try_new(1_000_000, HARD_MAX_WINDOW_MS, 583_344_215), beyond);
    }
}
