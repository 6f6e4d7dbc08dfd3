//! Fixed window: at most `limit` units in a window that the first allowed request starts.
//!
//! State: a count and the instant at which the window ends. A refused request changes neither. The window lasts
//! exactly `window_ms`: with 0 ms left it is over, so waiting `retry_after` is always enough. Around a window's edge
//! up to twice the limit can pass, which is the price of one small counter.
//!
//! Times are whole milliseconds of the store's clock. The Lua twin is `lua/fixed_window.lua`.

use super::algorithm::{CLOCK_TOLERANCE_MS, Foreign, HARD_MAX_LIMIT, HARD_MAX_WINDOW_MS};

/// The rule's numbers, valid by construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    window_ms: u64,
}

/// Why numbers are not a [`FixedWindow`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFixedWindow {
    #[error("a limit is a whole number from 1 to {HARD_MAX_LIMIT}")]
    Limit,
    #[error("a window is 1 ms to 366 days")]
    Window,
}

/// What is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Units taken in this window, at least 1.
    pub count: u64,
    /// The end of the window, in milliseconds of the store's clock.
    pub expires_at_ms: u64,
}

/// A counter judged at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    rule: FixedWindow,
    now_ms: u64,
    /// The running window, if there is one: units taken and milliseconds left (1 to `window_ms`).
    running: Option<State>,
}

impl FixedWindow {
    pub fn try_new(limit: u64, window_ms: u64) -> Result<Self, BadFixedWindow> {
        if !(1..=HARD_MAX_LIMIT).contains(&limit) {
            return Err(BadFixedWindow::Limit);
        }
        if !(1..=HARD_MAX_WINDOW_MS).contains(&window_ms) {
            return Err(BadFixedWindow::Window);
        }
        Ok(Self { limit, window_ms })
    }

    pub fn limit(self) -> u64 {
        self.limit
    }

    pub fn window_ms(self) -> u64 {
        self.window_ms
    }

    /// Judges stored state at `now_us`. An end further away than a window can have is foreign, unless a clock that
    /// stepped back within the tolerance explains it.
    pub fn stand(self, state: Option<State>, now_us: u64) -> Result<Standing, Foreign> {
        let now_ms = now_us / 1000;
        if state.is_some_and(|state| state.expires_at_ms > now_ms + self.window_ms + CLOCK_TOLERANCE_MS) {
            return Err(Foreign::WrongExpiry);
        }
        Ok(Standing { rule: self, now_ms, running: state.filter(|state| state.expires_at_ms > now_ms) })
    }
}

impl Standing {
    /// How many requests of `cost` units fit now.
    pub fn fits(&self, cost: u64) -> u64 {
        self.remaining() / cost
    }

    /// Charges `units`, which must fit.
    pub fn take(&mut self, units: u64) {
        let fresh = State { count: 0, expires_at_ms: self.now_ms + self.rule.window_ms };
        let running = self.running.get_or_insert(fresh);
        running.count += units;
    }

    /// A count above today's limit (the limit was lowered) leaves no room and is no failure.
    pub fn remaining(&self) -> u64 {
        self.rule.limit.saturating_sub(self.running.map_or(0, |state| state.count))
    }

    pub fn retry_after_ms(&self, cost: u64) -> Option<u64> {
        match cost {
            cost if cost <= self.remaining() => Some(0),
            cost if cost <= self.rule.limit => Some(self.reset_after_ms()),
            _ => None,
        }
    }

    /// What is left of the window. After a clock that stepped back it is still never longer than the window.
    pub fn reset_after_ms(&self) -> u64 {
        self.running.map_or(0, |state| (state.expires_at_ms - self.now_ms).min(self.rule.window_ms))
    }

    /// What to store after [`take`](Self::take).
    pub fn state(&self) -> State {
        self.running.unwrap_or(State { count: 0, expires_at_ms: self.now_ms })
    }

    pub fn expires_at_ms(&self) -> u64 {
        self.state().expires_at_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// limit 3, window 10 s, seen at `now_ms` with one request of cost 1: fits, remaining, retry, reset.
    fn stand(state: Option<(u64, u64)>, now_ms: u64) -> Result<(u64, u64, Option<u64>, u64), Foreign> {
        let rule = FixedWindow::try_new(3, 10_000).unwrap();
        let state = state.map(|(count, expires_at_ms)| State { count, expires_at_ms });
        let standing = rule.stand(state, now_ms * 1000)?;
        Ok((standing.fits(1), standing.remaining(), standing.retry_after_ms(1), standing.reset_after_ms()))
    }

    #[test]
    fn a_window_from_its_start_to_its_end() {
        //                 stored          now        fits remaining retry      reset
        assert_eq!(stand(None, /*      */ 5_000), Ok((3, 3, Some(0), 0)));
        assert_eq!(stand(Some((1, 15_000)), 5_000), Ok((2, 2, Some(0), 10_000)));
        assert_eq!(stand(Some((3, 15_000)), 5_000), Ok((0, 0, Some(10_000), 10_000)));
        assert_eq!(stand(Some((3, 15_000)), 14_999), Ok((0, 0, Some(1), 1)));
        assert_eq!(stand(Some((3, 15_000)), 15_000), Ok((3, 3, Some(0), 0)));
        assert_eq!(stand(Some((3, 15_000)), 99_000), Ok((3, 3, Some(0), 0)));
    }

    #[test]
    fn a_lowered_limit_leaves_no_room_and_is_no_failure() {
        assert_eq!(stand(Some((40, 15_000)), 5_000), Ok((0, 0, Some(10_000), 10_000)));
    }

    // RL-10: up to the tolerance a later end is a clock that stepped back; beyond it, somebody else's key.
    #[test]
    fn an_end_past_its_bound_is_clamped_or_foreign() {
        assert_eq!(stand(Some((3, 16_000)), 5_000), Ok((0, 0, Some(10_000), 10_000)));
        assert_eq!(stand(Some((3, 16_001)), 5_000), Err(Foreign::WrongExpiry));
    }

    #[test]
    fn a_cost_above_the_limit_never_passes() {
        let standing = FixedWindow::try_new(3, 10).unwrap().stand(None, 0).unwrap();
        assert_eq!((standing.fits(4), standing.retry_after_ms(4)), (0, None));
    }

    #[test]
    fn the_first_allowed_request_starts_the_window() {
        let mut standing = FixedWindow::try_new(3, 10_000).unwrap().stand(None, 5_000_999).unwrap();
        standing.take(2);
        assert_eq!(standing.state(), State { count: 2, expires_at_ms: 15_000 });
        assert_eq!(standing.reset_after_ms(), 10_000);
    }

    #[test]
    fn numbers_outside_the_hard_ends_do_not_make_a_rule() {
        assert_eq!(FixedWindow::try_new(0, 1), Err(BadFixedWindow::Limit));
        assert_eq!(FixedWindow::try_new(HARD_MAX_LIMIT + 1, 1), Err(BadFixedWindow::Limit));
        assert_eq!(FixedWindow::try_new(1, 0), Err(BadFixedWindow::Window));
        assert_eq!(FixedWindow::try_new(1, HARD_MAX_WINDOW_MS + 1), Err(BadFixedWindow::Window));
    }
}
