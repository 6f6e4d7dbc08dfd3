//! What an algorithm is, and the joint rule over several of them: all admit, or none is charged.
//!
//! The embedded store runs this code; `lua/` holds its twin for Redis, and a test drives both with the same
//! schedules. To add an algorithm: one file beside this one, one variant in [`Algorithm`] and [`Standing`], one
//! fragment in `lua/`.

use super::fixed_window::{self, FixedWindow};

/// The largest count that a limit may name, whatever the guard rails say: every product stays below 2^53, the
/// largest integer that Redis' Lua counts exactly.
pub const HARD_MAX_LIMIT: u64 = 1_000_000_000;
/// The longest window that a limit may name, whatever the guard rails say: 366 days.
pub const HARD_MAX_WINDOW_MS: u64 = 366 * 24 * 3600 * 1000;
/// How far stored time may run ahead of the store's clock before the state is foreign: a fail-over between two
/// clocks is met with a clamp, a stray value is not.
pub const CLOCK_TOLERANCE_MS: u64 = 1000;

/// One rule with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    FixedWindow(FixedWindow),
}

impl Algorithm {
    /// Algorithm and window, without the numbers: what makes a live counter meaningless when it changes.
    pub fn shape(&self) -> String {
        match self {
            Self::FixedWindow(rule) => format!("fixed_window/{}ms", rule.window_ms()),
        }
    }

    /// The most units that can pass at once: the quota of the RateLimit fields.
    pub fn quota(&self) -> u64 {
        match self {
            Self::FixedWindow(rule) => rule.limit(),
        }
    }

    /// The window in milliseconds, for rules that have one.
    pub fn window_ms(&self) -> Option<u64> {
        match self {
            Self::FixedWindow(rule) => Some(rule.window_ms()),
        }
    }

    fn stand(&self, state: Option<&State>, now_us: u64) -> Result<Standing, Foreign> {
        match (self, state) {
            (Self::FixedWindow(rule), None) => rule.stand(None, now_us).map(Standing::FixedWindow),
            (Self::FixedWindow(rule), Some(State::FixedWindow(state))) => {
                rule.stand(Some(*state), now_us).map(Standing::FixedWindow)
            }
        }
    }
}

/// What a store keeps for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    FixedWindow(fixed_window::State),
}

/// One key, judged at one instant.
#[derive(Debug, Clone)]
pub enum Standing {
    FixedWindow(fixed_window::Standing),
}

impl Standing {
    fn fits(&self, cost: u64) -> u64 {
        match self {
            Self::FixedWindow(standing) => standing.fits(cost),
        }
    }

    fn take(&mut self, units: u64) {
        match self {
            Self::FixedWindow(standing) => standing.take(units),
        }
    }

    fn admission(&self, cost: u64) -> Admission {
        match self {
            Self::FixedWindow(standing) => standing.admission(cost),
        }
    }

    fn kept(&self) -> Kept {
        match self {
            Self::FixedWindow(standing) => {
                let state = standing.state();
                Kept { expires_at_ms: state.expires_at_ms, state: State::FixedWindow(state) }
            }
        }
    }
}

/// State that the limiter did not write. It is never repaired and never read as room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Foreign {
    /// Another Redis type.
    WrongType,
    /// No expiry: it would limit for ever.
    NoExpiry,
    /// Not what this algorithm writes: for a fixed window, a positive plain integer.
    Malformed,
    /// An expiry further away than this state can have.
    ExpiryTooFar,
    /// Its own latest instant is ahead of the store's clock.
    AheadOfClock,
}

impl Foreign {
    pub const ALL: [Self; 5] =
        [Self::WrongType, Self::NoExpiry, Self::Malformed, Self::ExpiryTooFar, Self::AheadOfClock];

    /// A word of a closed set, for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WrongType => "wrong_type",
            Self::NoExpiry => "no_expiry",
            Self::Malformed => "malformed",
            Self::ExpiryTooFar => "expiry_too_far",
            Self::AheadOfClock => "ahead_of_clock",
        }
    }
}

/// The store's answer for one charge, after what was admitted. Times count from the decision's instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// Units that would still pass now.
    pub remaining: u64,
    /// Milliseconds until one more request of this cost fits, alone: `Some(0)` = now, `None` = never.
    pub retry_after_ms: Option<u64>,
    /// Milliseconds until the whole quota is back.
    pub reset_after_ms: u64,
}

/// One charge as the joint rule sees it.
pub struct Demand<'a> {
    pub algorithm: Algorithm,
    /// What the store keeps, `None` if nothing.
    pub state: Option<&'a State>,
    /// Units per request, at least 1.
    pub cost: u64,
}

/// What to store for one charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub state: State,
    pub expires_at_ms: u64,
}

/// What the joint rule found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// How many of the `n` requests pass.
    pub admitted: u64,
    /// One for each demand, in order.
    pub admissions: Vec<Admission>,
    /// What to write, in the order of the demands; empty when nothing passes.
    pub writes: Vec<Kept>,
}

/// Judges `n` equal requests at `now_us` (the store's clock, microseconds): every demand is checked before anything
/// counts, and either all are charged for the requests that pass, or none is. An error names the demand at fault.
pub fn judge(demands: &[Demand<'_>], now_us: u64, n: u64) -> Result<Judgement, (usize, Foreign)> {
    let mut admitted = n;
    let mut standings = Vec::with_capacity(demands.len());
    for (index, demand) in demands.iter().enumerate() {
        let standing = demand.algorithm.stand(demand.state, now_us).map_err(|foreign| (index, foreign))?;
        admitted = admitted.min(standing.fits(demand.cost));
        standings.push(standing);
    }
    if admitted > 0 {
        for (standing, demand) in standings.iter_mut().zip(demands) {
            standing.take(admitted * demand.cost);
        }
    }
    let admissions = standings.iter().zip(demands).map(|(s, demand)| s.admission(demand.cost)).collect();
    let writes = if admitted > 0 { standings.iter().map(Standing::kept).collect() } else { Vec::new() };
    Ok(Judgement { admitted, admissions, writes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(limit: u64) -> Algorithm {
        Algorithm::FixedWindow(FixedWindow::try_new(limit, 1000).unwrap())
    }

    fn demand(algorithm: Algorithm, state: Option<&State>) -> Demand<'_> {
        Demand { algorithm, state, cost: 1 }
    }

    #[test]
    fn several_limits_are_charged_all_or_none() {
        let full = State::FixedWindow(fixed_window::State { count: 3, expires_at_ms: 1500 });
        let refused = judge(&[demand(window(10), None), demand(window(3), Some(&full))], 1_000_000, 1).unwrap();
        assert_eq!((refused.admitted, refused.writes.len()), (0, 0));
        assert_eq!(refused.admissions[0].remaining, 10);
        assert_eq!(refused.admissions[1].retry_after_ms, Some(500));

        let allowed = judge(&[demand(window(10), None), demand(window(4), Some(&full))], 1_000_000, 1).unwrap();
        assert_eq!((allowed.admitted, allowed.writes.len()), (1, 2));
        assert_eq!(allowed.admissions[1].remaining, 0);
    }

    #[test]
    fn n_equal_requests_pass_as_far_as_the_narrowest_limit_lets_them() {
        let judged = judge(&[demand(window(10), None), demand(window(3), None)], 0, 7).unwrap();
        assert_eq!(judged.admitted, 3);
        assert_eq!(judged.admissions.iter().map(|a| a.remaining).collect::<Vec<_>>(), [7, 0]);
    }

    #[test]
    fn foreign_state_names_its_place_and_nothing_is_charged() {
        let stray = State::FixedWindow(fixed_window::State { count: 1, expires_at_ms: 1_000_000 });
        let judged = judge(&[demand(window(10), None), demand(window(3), Some(&stray))], 0, 1);
        assert_eq!(judged, Err((1, Foreign::ExpiryTooFar)));
    }
}
