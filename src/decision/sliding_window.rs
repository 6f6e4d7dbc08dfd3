//! Sliding window: the previous window counts by the share that still overlaps, the current one in full.
//!
//! State: the index of a window aligned to the store's epoch, and the units taken in it and in the one before. With
//! *el* = milliseconds into the window, a request of *cost* passes if
//! `previous × (W − el) + (current + cost) × W ≤ limit × W`, an exact inequality of integers; as everything else is
//! whole, it equals `current + cost + ⌈previous × (W − el) / W⌉ ≤ limit`. At most the limit passes in each aligned
//! window, and somewhat more (up to 1.9 ×, seen) in an arbitrary one. Small state at any limit, no burst at the edge.
//!
//! Times are whole milliseconds of the store's clock. The Lua twin is `lua/sliding_window.lua`.

use super::algorithm::{CLOCK_TOLERANCE_MS, Foreign, HARD_MAX_LIMIT, HARD_MAX_WINDOW_MS, MAX_EXACT};

/// The rule's numbers, valid by construction: `limit × window_ms` stays exact in the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    limit: u64,
    window_ms: u64,
}

/// Why numbers are not a [`SlidingWindow`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSlidingWindow {
    #[error("a limit is a whole number from 1 to {HARD_MAX_LIMIT}")]
    Limit,
    #[error("a window is 1 ms to 366 days")]
    Window,
    /// Limit times window is beyond [`MAX_EXACT`]; the largest limit for this window.
    #[error("with this window a limit above {0} cannot be counted exactly: lower one of them")]
    Product(u64),
}

/// What is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The window's number: its start divided by its length.
    pub index: u64,
    /// Units taken in the window before.
    pub previous: u64,
    /// Units taken in this window, at least 1.
    pub current: u64,
}

/// A counter judged at one instant: the window that this instant lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    rule: SlidingWindow,
    state: State,
    /// Milliseconds into the window, less than its length.
    elapsed_ms: u64,
}

impl SlidingWindow {
    pub fn try_new(limit: u64, window_ms: u64) -> Result<Self, BadSlidingWindow> {
        if !(1..=HARD_MAX_LIMIT).contains(&limit) {
            return Err(BadSlidingWindow::Limit);
        }
        if !(1..=HARD_MAX_WINDOW_MS).contains(&window_ms) {
            return Err(BadSlidingWindow::Window);
        }
        match limit.saturating_mul(window_ms) {
            product if product > MAX_EXACT => Err(BadSlidingWindow::Product(MAX_EXACT / window_ms)),
            _ => Ok(Self { limit, window_ms }),
        }
    }

    pub fn limit(self) -> u64 {
        self.limit
    }

    pub fn window_ms(self) -> u64 {
        self.window_ms
    }

    /// Judges stored state at `now_us`, or at the start of its own window if the clock stepped back behind that.
    pub fn stand(self, stored: Option<State>, now_us: u64) -> Result<Standing, Foreign> {
        let (now_ms, window) = (now_us / 1000, self.window_ms);
        let start = |state: State| state.index.checked_mul(window).ok_or(Foreign::Malformed);
        let exact = |units: u64| units.checked_mul(window).is_some_and(|product| product <= MAX_EXACT);
        let mut at_ms = now_ms;
        if let Some(state) = stored {
            if !exact(state.previous) || !exact(state.current) {
                return Err(Foreign::Malformed);
            }
            let start = start(state)?;
            if start > now_ms + CLOCK_TOLERANCE_MS {
                return Err(Foreign::AheadOfClock);
            }
            at_ms = now_ms.max(start);
        }
        let index = at_ms / window;
        let state = match stored {
            Some(state) if state.index == index => state,
            Some(state) if state.index + 1 == index => State { index, previous: state.current, current: 0 },
            _ => State { index, previous: 0, current: 0 },
        };
        Ok(Standing { rule: self, state, elapsed_ms: at_ms - index * window })
    }
}

impl Standing {
    /// How many requests of `cost` units fit now.
    pub fn fits(&self, cost: u64) -> u64 {
        self.remaining() / cost
    }

    /// Charges `units`, which must fit.
    pub fn take(&mut self, units: u64) {
        self.state.current += units;
    }

    pub fn remaining(&self) -> u64 {
        let window = self.rule.window_ms;
        let weighted = (self.state.previous * (window - self.elapsed_ms)).div_ceil(window);
        self.rule.limit.saturating_sub(self.state.current).saturating_sub(weighted)
    }

    pub fn retry_after_ms(&self, cost: u64) -> Option<u64> {
        let (limit, window) = (self.rule.limit, self.rule.window_ms);
        let State { previous, current, .. } = self.state;
        if cost <= self.remaining() {
            Some(0)
        } else if cost > limit {
            None
        } else if current + cost <= limit {
            // The previous window's weight has to fall; it is above zero, or the request would fit.
            Some(window - self.elapsed_ms - (limit - cost - current) * window / previous)
        } else {
            // Not in this window: in the next one this window's units weigh less and less.
            Some(2 * window - self.elapsed_ms - (limit - cost) * window / current)
        }
    }

    pub fn reset_after_ms(&self) -> u64 {
        let window = self.rule.window_ms;
        match (self.state.previous, self.state.current) {
            (0, 0) => 0,
            (_, 0) => window - self.elapsed_ms,
            _ => 2 * window - self.elapsed_ms,
        }
    }

    /// What to store after [`take`](Self::take).
    pub fn state(&self) -> State {
        self.state
    }

    /// When the stored state says nothing any more: the end of the next window.
    pub fn expires_at_ms(&self) -> u64 {
        (self.state.index + 2) * self.rule.window_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: u64 = 10_000;

    fn stand(limit: u64, state: Option<(u64, u64, u64)>, now_ms: u64) -> Standing {
        let rule = SlidingWindow::try_new(limit, W).unwrap();
        let state = state.map(|(index, previous, current)| State { index, previous, current });
        rule.stand(state, now_ms * 1000).unwrap()
    }

    // RL-07: the weight of the window before, at its edges.
    #[test]
    fn the_window_before_counts_by_the_share_that_still_overlaps() {
        let full = Some((1, 0, 10)); // ten in window 1, 10 s to 20 s
        assert_eq!(stand(10, full, 21_000).fits(1), 1, "weight 0.9");
        assert_eq!(stand(10, full, 29_900).fits(1), 9, "weight 0.01, rounded up to a whole request");
        assert_eq!(stand(10, full, 29_000).fits(1), 9, "weight 0.1");
        assert_eq!(stand(10, full, 20_000).fits(1), 0, "weight 1");
        assert_eq!(stand(10, full, 30_000).fits(1), 10, "gone");
        assert_eq!(stand(1, Some((0, 0, 1)), 1_000).fits(1), 0);
        assert_eq!(stand(1, Some((0, 0, 1)), 26_000).fits(1), 1);
    }

    #[test]
    fn the_wait_ends_where_the_inequality_holds_and_not_before() {
        for (limit, state, now) in [
            (10, (1, 0, 10), 20_000),
            (10, (1, 0, 10), 15_000),
            (10, (2, 9, 5), 20_001),
            (1, (0, 0, 1), 1_000),
            (3, (1, 7, 40), 12_345),
            (7, (1, 3, 7), 19_999),
        ] {
            for cost in [1, 2] {
                let standing = stand(limit, Some(state), now);
                let Some(wait) = standing.retry_after_ms(cost) else {
                    assert!(cost > limit);
                    continue;
                };
                assert!((1..=2 * W).contains(&wait), "{state:?} {wait}");
                assert!(stand(limit, Some(state), now + wait).fits(cost) >= 1, "{state:?} {wait}");
                assert_eq!(stand(limit, Some(state), now + wait - 1).fits(cost), 0, "{state:?} {wait}");
            }
        }
    }

    #[test]
    fn a_clock_that_stepped_back_stops_at_the_windows_start() {
        let standing = stand(10, Some((2, 0, 4)), 19_000);
        assert_eq!((standing.state.index, standing.elapsed_ms, standing.fits(1)), (2, 0, 6));
        let rule = SlidingWindow::try_new(10, W).unwrap();
        let state = State { index: 2, previous: 0, current: 4 };
        assert_eq!(rule.stand(Some(state), 18_999_999).map(|_| ()), Err(Foreign::AheadOfClock));
    }

    #[test]
    fn numbers_beyond_exact_counting_do_not_make_a_rule() {
        assert!(SlidingWindow::try_new(284_836, HARD_MAX_WINDOW_MS).is_ok());
        let beyond = Err(BadSlidingWindow::Product(284_836));
        assert_eq!(SlidingWindow::try_new(284_837, HARD_MAX_WINDOW_MS), beyond);
        assert!(SlidingWindow::try_new(HARD_MAX_LIMIT, 9_007_199).is_ok());
        assert!(SlidingWindow::try_new(HARD_MAX_LIMIT, 9_007_200).is_err());
        // Beyond 2^64 too, where the product once wrapped round to a small one.
        assert_eq!(SlidingWindow::try_new(583_344_215, HARD_MAX_WINDOW_MS), beyond);
        assert_eq!(SlidingWindow::try_new(HARD_MAX_LIMIT, HARD_MAX_WINDOW_MS), beyond);
        let rule = SlidingWindow::try_new(10, W).unwrap();
        let state = State { index: 0, previous: u64::MAX, current: 1 };
        assert_eq!(rule.stand(Some(state), 0).map(|_| ()), Err(Foreign::Malformed));
    }
}
