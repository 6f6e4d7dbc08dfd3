//! What an algorithm is, and the joint rule over several of them: all admit, or none is charged.
//!
//! The embedded store runs this code; `lua/` holds its twin for Redis, and a test drives both with the same
//! schedules. To add an algorithm: one file beside this one, one variant in [`Algorithm`] and `Standing`, one
//! fragment in `lua/`.

use super::fixed_window::{self, FixedWindow};
use super::sliding_log::{self, SlidingLog};
use super::sliding_window::{self, SlidingWindow};
use super::token_bucket::{self, TokenBucket};

/// The largest count that a limit may name, whatever the guard rails say.
pub const HARD_MAX_LIMIT: u64 = 1_000_000_000;
/// The longest window that a limit may name, whatever the guard rails say: 366 days.
pub const HARD_MAX_WINDOW_MS: u64 = 366 * 24 * 3600 * 1000;
/// The largest integer that Redis' Lua, which has only doubles, counts exactly: 2^53 - 1. Every product stays below it.
pub const MAX_EXACT: u64 = (1 << 53) - 1;
/// How far stored time may run ahead of the store's clock before the state is foreign: a fail-over between two
/// clocks is met with a clamp, a stray value is not.
pub const CLOCK_TOLERANCE_MS: u64 = 1000;

/// One rule with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    FixedWindow(FixedWindow),
    SlidingLog(SlidingLog),
    SlidingWindow(SlidingWindow),
    TokenBucket(TokenBucket),
}

impl Algorithm {
    /// Algorithm and window, without the numbers: what makes a live counter meaningless when it changes.
    pub fn shape(&self) -> String {
        match self {
            Self::FixedWindow(rule) => format!("fixed_window/{}ms", rule.window_ms()),
            Self::SlidingLog(rule) => format!("sliding_log/{}ms", rule.window_ms()),
            Self::SlidingWindow(rule) => format!("sliding_window/{}ms", rule.window_ms()),
            Self::TokenBucket(rule) => format!("token_bucket/{}ms", rule.per_ms()),
        }
    }

    /// The most units that can pass at once: the quota of the RateLimit fields.
    pub fn quota(&self) -> u64 {
        match self {
            Self::FixedWindow(rule) => rule.limit(),
            Self::SlidingLog(rule) => rule.limit(),
            Self::SlidingWindow(rule) => rule.limit(),
            Self::TokenBucket(rule) => rule.burst(),
        }
    }

    /// The window in milliseconds, for rules that have one.
    pub fn window_ms(&self) -> Option<u64> {
        match self {
            Self::FixedWindow(rule) => Some(rule.window_ms()),
            Self::SlidingLog(rule) => Some(rule.window_ms()),
            Self::SlidingWindow(rule) => Some(rule.window_ms()),
            Self::TokenBucket(_) => None,
        }
    }

    /// Judges what a store keeps. State of another algorithm cannot be under this one's key, which carries its shape; if it is,
    /// nobody of ours wrote it.
    fn stand(&self, state: Option<&State>, now_us: u64) -> Result<Standing, Foreign> {
        macro_rules! judge {
            ($rule:expr, $kind:ident, $state:ident => $view:expr) => {
                match state {
                    None => $rule.stand(None, now_us).map(Standing::$kind),
                    Some(State::$kind($state)) => $rule.stand(Some($view), now_us).map(Standing::$kind),
                    Some(_) => Err(Foreign::WrongType),
                }
            };
        }
        match self {
            Self::FixedWindow(rule) => judge!(rule, FixedWindow, state => *state),
            Self::SlidingLog(rule) => judge!(rule, SlidingLog, state => state),
            Self::SlidingWindow(rule) => judge!(rule, SlidingWindow, state => *state),
            Self::TokenBucket(rule) => judge!(rule, TokenBucket, state => *state),
        }
    }
}

/// What a store keeps for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    FixedWindow(fixed_window::State),
    SlidingLog(sliding_log::State),
    SlidingWindow(sliding_window::State),
    TokenBucket(token_bucket::State),
}

/// One key, judged at one instant.
#[derive(Debug, Clone)]
enum Standing {
    FixedWindow(fixed_window::Standing),
    SlidingLog(sliding_log::Standing),
    SlidingWindow(sliding_window::Standing),
    TokenBucket(token_bucket::Standing),
}

/// The same expression for whichever algorithm stands there.
macro_rules! whichever {
    ($of:expr, $standing:ident => $result:expr) => {
        match $of {
            Standing::FixedWindow($standing) => $result,
            Standing::SlidingLog($standing) => $result,
            Standing::SlidingWindow($standing) => $result,
            Standing::TokenBucket($standing) => $result,
        }
    };
}

impl Standing {
    fn fits(&self, cost: u64) -> u64 {
        whichever!(self, standing => standing.fits(cost))
    }

    fn take(&mut self, units: u64) {
        whichever!(self, standing => standing.take(units));
    }

    fn admission(&self, cost: u64, charged: u64) -> Admission {
        let (remaining, retry_after_ms, reset_after_ms) = whichever!(self, standing => {
            (standing.remaining(), standing.retry_after_ms(cost), standing.reset_after_ms())
        });
        Admission { charged, remaining, retry_after_ms, reset_after_ms }
    }

    fn kept(&self) -> Kept {
        let expires_at_ms = whichever!(self, standing => standing.expires_at_ms());
        let state = match self {
            Self::FixedWindow(standing) => State::FixedWindow(standing.state()),
            Self::SlidingLog(standing) => State::SlidingLog(standing.state()),
            Self::SlidingWindow(standing) => State::SlidingWindow(standing.state()),
            Self::TokenBucket(standing) => State::TokenBucket(standing.state()),
        };
        Kept { state, expires_at_ms }
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
    /// An expiry that this state cannot have.
    WrongExpiry,
    /// Its own latest instant is ahead of the store's clock.
    AheadOfClock,
}

impl Foreign {
    pub const ALL: [Self; 5] =
        [Self::WrongType, Self::NoExpiry, Self::Malformed, Self::WrongExpiry, Self::AheadOfClock];

    /// A word of a closed set, for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WrongType => "wrong_type",
            Self::NoExpiry => "no_expiry",
            Self::Malformed => "malformed",
            Self::WrongExpiry => "wrong_expiry",
            Self::AheadOfClock => "ahead_of_clock",
        }
    }
}

/// The store's answer for one charge, after what was admitted. Times count from the decision's instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// How many requests this charge was made for: all that passed, or fewer for a shadow limit without room for them.
    pub charged: u64,
    /// Units that would still pass now.
    pub remaining: u64,
    /// Milliseconds until one more request of this cost fits, alone: `Some(0)` = now, `None` = never.
    pub retry_after_ms: Option<u64>,
    /// Milliseconds until the whole quota is back.
    pub reset_after_ms: u64,
}

/// What a charge does to its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Without room here the request does not pass.
    Enforced,
    /// Rides along: charged if the enforced limits admit and there is room here, and never refuses.
    Shadow,
}

/// One charge as the joint rule sees it.
pub struct Demand<'a> {
    pub algorithm: Algorithm,
    pub role: Role,
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
    /// One for each demand, in order: what to write, `None` where nothing changes.
    pub writes: Vec<Option<Kept>>,
}

/// Judges `n` equal requests at `now_us` (the store's clock, microseconds): every demand is checked before anything
/// counts, and either all enforced ones are charged for the requests that pass, or none is. An error names the demand at
/// fault.
pub fn judge(demands: &[Demand<'_>], now_us: u64, n: u64) -> Result<Judgement, (usize, Foreign)> {
    let mut admitted = n;
    let mut standings = Vec::with_capacity(demands.len());
    for (index, demand) in demands.iter().enumerate() {
        let standing = demand.algorithm.stand(demand.state, now_us).map_err(|foreign| (index, foreign))?;
        let fits = standing.fits(demand.cost);
        if demand.role == Role::Enforced {
            admitted = admitted.min(fits);
        }
        standings.push((standing, fits));
    }
    let mut judgement = Judgement { admitted, admissions: Vec::new(), writes: Vec::new() };
    for ((mut standing, fits), demand) in standings.into_iter().zip(demands) {
        let charged = admitted.min(fits);
        if charged > 0 {
            standing.take(charged * demand.cost);
        }
        judgement.admissions.push(standing.admission(demand.cost, charged));
        judgement.writes.push((charged > 0).then(|| standing.kept()));
    }
    Ok(judgement)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests {
    use super::*;

    fn window(limit: u64) -> Algorithm {
        Algorithm::FixedWindow(FixedWindow::try_new(limit, 1000).unwrap())
    }

    fn demand(algorithm: Algorithm, state: Option<&State>) -> Demand<'_> {
        Demand { algorithm, role: Role::Enforced, state, cost: 1 }
    }

    #[test]
    fn several_limits_are_charged_all_or_none() {
        let full = State::FixedWindow(fixed_window::State { count: 3, expires_at_ms: 1500 });
        let refused = judge(&[demand(window(10), None), demand(window(3), Some(&full))], 1_000_000, 1).unwrap();
        assert_eq!((refused.admitted, refused.writes), (0, vec![None, None]));
        assert_eq!(refused.admissions[0].remaining, 10);
        assert_eq!(refused.admissions[1].retry_after_ms, Some(500));

        let allowed = judge(&[demand(window(10), None), demand(window(4), Some(&full))], 1_000_000, 1).unwrap();
        assert_eq!((allowed.admitted, allowed.writes.iter().flatten().count()), (1, 2));
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
        assert_eq!(judged, Err((1, Foreign::WrongExpiry)));
    }

    #[test]
    fn a_shadow_limit_is_charged_as_far_as_it_has_room_and_never_refuses() {
        let shadow = |limit| Demand { role: Role::Shadow, ..demand(window(limit), None) };
        let judged = judge(&[demand(window(5), None), shadow(2)], 0, 4).unwrap();
        assert_eq!(judged.admitted, 4);
        assert_eq!(judged.admissions.iter().map(|a| (a.charged, a.remaining)).collect::<Vec<_>>(), [(4, 1), (2, 0)]);
        let full = State::FixedWindow(fixed_window::State { count: 5, expires_at_ms: 500 });
        let refused = judge(&[demand(window(5), Some(&full)), shadow(2)], 0, 1).unwrap();
        assert_eq!((refused.admitted, refused.writes), (0, vec![None, None]), "a refused request charges no shadow");
    }
}
