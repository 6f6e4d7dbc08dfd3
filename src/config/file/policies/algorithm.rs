//! The four algorithms' settings, and the rails around their numbers.

use std::fmt::Display;
use std::time::Duration;

use crate::config::duration::shown;
use crate::config::reader::{Field, Section};
use crate::decision::algorithm::{Algorithm, HARD_MAX_LIMIT, HARD_MAX_WINDOW_MS};
use crate::decision::fixed_window::FixedWindow;
use crate::decision::sliding_log::SlidingLog;
use crate::decision::sliding_window::SlidingWindow;
use crate::decision::token_bucket::TokenBucket;

/// Ends that catch a slip of the hand; the operator may widen them up to the hard ends.
#[derive(Clone, Copy)]
pub struct Rails {
    pub max_limit: u64,
    pub max_window: Duration,
    /// A sliding log remembers each unit: its own ends keep Redis from being held up.
    pub max_log_limit: u64,
    pub max_log_cost: u64,
}

impl Default for Rails {
    fn default() -> Self {
        Self { max_limit: 1_000_000, max_window: Duration::from_secs(3600), max_log_limit: 10_000, max_log_cost: 100 }
    }
}

pub fn rails(field: Option<Field<'_>>) -> Rails {
    let mut rails = Rails::default();
    let Some(section) = field.and_then(|field| field.section()) else { return rails };
    let number = |key, into: &mut u64| {
        let Some(field) = section.optional(key) else { return };
        match field.whole() {
            Some(number) if (1..=HARD_MAX_LIMIT).contains(&number) => *into = number,
            Some(_) => field.problem(format!("can be 1 to {HARD_MAX_LIMIT}")),
            None => {}
        }
    };
    number("max_limit", &mut rails.max_limit);
    number("max_log_limit", &mut rails.max_log_limit);
    number("max_log_cost", &mut rails.max_log_cost);
    if let Some(field) = section.optional("max_window")
        && let Some(window) = field.duration()
    {
        if window.is_zero() || window > Duration::from_millis(HARD_MAX_WINDOW_MS) {
            field.problem("can be 1ms to 366d");
        }
        rails.max_window = window;
    }
    section.finish();
    rails
}

/// Reads the one algorithm that `section` names.
pub fn algorithm(section: &Section<'_>, rails: Rails) -> Option<Algorithm> {
    let (kind, field) = section.one_of(&["fixed_window", "sliding_window", "sliding_log", "token_bucket"])?;
    let section = field.section()?;
    let read = match kind {
        "token_bucket" => {
            let rate = count(&section, "rate", rails.max_limit, "max_limit");
            let per = period(&section, "per", rails);
            let burst = count(&section, "burst", rails.max_limit, "max_limit");
            rate.zip(per).zip(burst).and_then(|((rate, per), burst)| {
                sound(&field, TokenBucket::try_new(rate, per, burst)).map(Algorithm::TokenBucket)
            })
        }
        _ => {
            let (most, rail) = match kind {
                "sliding_log" => (rails.max_log_limit, "max_log_limit"),
                _ => (rails.max_limit, "max_limit"),
            };
            let limit = count(&section, "limit", most, rail);
            let window = period(&section, "window", rails);
            limit.zip(window).and_then(|(limit, window)| match kind {
                "fixed_window" => sound(&field, FixedWindow::try_new(limit, window)).map(Algorithm::FixedWindow),
                "sliding_log" => sound(&field, SlidingLog::try_new(limit, window)).map(Algorithm::SlidingLog),
                _ => sound(&field, SlidingWindow::try_new(limit, window)).map(Algorithm::SlidingWindow),
            })
        }
    };
    section.finish();
    read
}

/// The same algorithm with other numbers, as `section` gives them. Window and period stay: they are part of the key.
pub fn with_numbers(of: &Algorithm, field: &Field<'_>, section: &Section<'_>, rails: Rails) -> Option<Algorithm> {
    let optional = |key, current, most, rail| match section.optional(key) {
        Some(field) => bounded_count(&field, most, rail),
        None => Some(current),
    };
    let limit = |most, rail| section.required("limit", "100").and_then(|field| bounded_count(&field, most, rail));
    match of {
        Algorithm::TokenBucket(rule) => {
            let rate = optional("rate", rule.rate(), rails.max_limit, "max_limit");
            let burst = optional("burst", rule.burst(), rails.max_limit, "max_limit");
            sound(field, TokenBucket::try_new(rate?, rule.per_ms(), burst?)).map(Algorithm::TokenBucket)
        }
        Algorithm::FixedWindow(rule) => {
            sound(field, FixedWindow::try_new(limit(rails.max_limit, "max_limit")?, rule.window_ms()))
                .map(Algorithm::FixedWindow)
        }
        Algorithm::SlidingWindow(rule) => {
            sound(field, SlidingWindow::try_new(limit(rails.max_limit, "max_limit")?, rule.window_ms()))
                .map(Algorithm::SlidingWindow)
        }
        Algorithm::SlidingLog(rule) => {
            sound(field, SlidingLog::try_new(limit(rails.max_log_limit, "max_log_limit")?, rule.window_ms()))
                .map(Algorithm::SlidingLog)
        }
    }
}

/// One share of `replicas`, at least 1. Smaller numbers make a rule wherever larger ones did, but for a bucket that would fill
/// too slowly: that keeps its rate.
pub fn shared_by(of: &Algorithm, replicas: u64) -> Algorithm {
    let share = |number: u64| (number / replicas).max(1);
    let smaller = match of {
        Algorithm::FixedWindow(rule) => {
            FixedWindow::try_new(share(rule.limit()), rule.window_ms()).map(Algorithm::FixedWindow).ok()
        }
        Algorithm::SlidingWindow(rule) => {
            SlidingWindow::try_new(share(rule.limit()), rule.window_ms()).map(Algorithm::SlidingWindow).ok()
        }
        Algorithm::SlidingLog(rule) => {
            SlidingLog::try_new(share(rule.limit()), rule.window_ms()).map(Algorithm::SlidingLog).ok()
        }
        Algorithm::TokenBucket(rule) => TokenBucket::try_new(share(rule.rate()), rule.per_ms(), share(rule.burst()))
            .map(Algorithm::TokenBucket)
            .ok(),
    };
    smaller.unwrap_or(*of)
}

fn sound<T, E: Display>(field: &Field<'_>, rule: Result<T, E>) -> Option<T> {
    rule.map_err(|error| field.problem(error)).ok()
}

fn count(section: &Section<'_>, key: &'static str, most: u64, rail: &str) -> Option<u64> {
    bounded_count(&section.required(key, "100")?, most, rail)
}

fn bounded_count(field: &Field<'_>, most: u64, rail: &str) -> Option<u64> {
    let count = field.whole()?;
    if count == 0 {
        field.problem("0 lets nothing pass: to block a tenant write an override with set: { limit: 0 }");
        return None;
    }
    if count > most {
        field.problem(format!(
            "{count} is above {most}: if it is meant, raise guard_rails.{rail} (at most {HARD_MAX_LIMIT})"
        ));
        return None;
    }
    Some(count)
}

fn period(section: &Section<'_>, key: &'static str, rails: Rails) -> Option<u64> {
    let field = section.required(key, "1m")?;
    let period = field.duration()?;
    if period.is_zero() {
        field.problem("must be at least 1ms");
        return None;
    }
    if period > rails.max_window {
        let most = shown(rails.max_window);
        field.problem(format!("is longer than {most}: if it is meant, raise guard_rails.max_window (at most 366d)"));
        return None;
    }
    u64::try_from(period.as_millis()).ok()
}
