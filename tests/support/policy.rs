//! A policy as text, for tests that are about more than one fixed window.

use std::fmt::Write;

use super::redis::RedisServer;

/// Everybody has a counter.
pub const SUBJECT: &str = "[tenant, subject]";
/// Everybody of a tenant shares one.
pub const TENANT: &str = "[tenant]";

/// A policy for the requests below the path `/name`, built step by step.
#[derive(Clone)]
pub struct Policy {
    name: String,
    version: u32,
    limits: String,
    more: String,
}

impl Policy {
    /// Version 1, closed when the store fails.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), version: 1, limits: String::new(), more: String::new() }
    }

    /// The same with its only limit, which counts by tenant and subject.
    pub fn only(name: &str, rule: &str) -> Self {
        Self::new(name).limit("only", SUBJECT, rule)
    }

    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// One more limit. `rule` is as in the file: `fixed_window: { limit: 3, window: 60s }`, a mode behind it if need be.
    pub fn limit(mut self, name: &str, per: &str, rule: &str) -> Self {
        let written = write!(self.limits, "\n      - {{ name: {name}, per: {per}, {rule} }}");
        written.expect("a string takes any text");
        self
    }

    /// One more line: `cost: 2`.
    pub fn more(mut self, line: &str) -> Self {
        let written = write!(self.more, "\n    {line}");
        written.expect("a string takes any text");
        self
    }

    /// An item of the list of policies.
    pub fn text(&self) -> String {
        let Self { name, version, limits, more } = self;
        format!(
            "
  - name: {name}
    version: {version}
    match: {{ path: {{ prefix: /{name} }} }}
    limits:{limits}
    on_failure: closed{more}"
        )
    }
}

/// One of the four algorithms with numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// A name for a policy.
    pub name: &'static str,
    /// As in the file.
    pub yaml: String,
    /// As in the keys.
    pub shape: String,
    limit: u64,
    window_ms: u64,
}

pub const ALGORITHMS: [&str; 4] = ["fixed-window", "sliding-window", "sliding-log", "token-bucket"];

impl Rule {
    /// An algorithm that lets `limit` units pass at once, and none of them again for `window_ms`: a bucket gets one token
    /// in that time.
    pub fn new(name: &'static str, limit: u64, window_ms: u64) -> Self {
        let kind = name.replace('-', "_");
        let numbers = match name {
            "token-bucket" => format!("rate: 1, per: {window_ms}ms, burst: {limit}"),
            _ => format!("limit: {limit}, window: {window_ms}ms"),
        };
        let (yaml, shape) = (format!("{kind}: {{ {numbers} }}"), format!("{kind}/{window_ms}ms"));
        Self { name, yaml, shape, limit, window_ms }
    }

    /// The units that the state at `key` holds; of a bucket, those that are missing.
    #[track_caller]
    pub fn units(&self, redis: &RedisServer, key: &str) -> u64 {
        if self.name == "sliding-log" {
            return redis.run(&["ZCARD", key]).integer().try_into().expect("a size");
        }
        let state = redis.get(key).expect("a state");
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok()).expect("a number");
        match self.name {
            "token-bucket" => self.limit - number(state.split(':').next()) / self.window_ms,
            _ => number(state.rsplit(':').next()),
        }
    }

    /// All four.
    pub fn all(limit: u64, window_ms: u64) -> [Self; 4] {
        ALGORITHMS.map(|name| Self::new(name, limit, window_ms))
    }
}
