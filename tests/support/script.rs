//! The shipped script, sent to a real server by the test itself: what it answers, and what it leaves behind.

use redis::Connection;
use tallygate::decision::algorithm::{Algorithm, Role};
use tallygate::decision::fixed_window::FixedWindow;
use tallygate::decision::key::{KeyTemplate, Secret};
use tallygate::decision::limit::{Charge, Limit, Mode};
use tallygate::decision::name::Name;
use tallygate::decision::sliding_log::SlidingLog;
use tallygate::decision::sliding_window::SlidingWindow;
use tallygate::decision::token_bucket::TokenBucket;
use tallygate::store::redis::script::{ShapeScript, Slot as Place};

use super::redis::RedisServer;
use super::schedule::Slot;
use super::setup::SECRET;

/// The limits of one policy, all counting nobody in particular.
pub struct Subject {
    limits: Vec<Limit>,
}

impl Subject {
    pub fn new(name: &str, slots: &[Slot]) -> Self {
        let secret = Secret::read(SECRET).expect("long enough");
        let limit = |(place, slot): (usize, &Slot)| {
            let limit_name = format!("l{place}");
            let key = KeyTemplate::joint(&secret, ("rl", name, 1), &limit_name, &slot.algorithm.shape());
            Limit {
                name: Name::parse(&limit_name).expect("a name"),
                algorithm: slot.algorithm,
                per: Vec::new(),
                mode: Mode::Enforce,
                key,
            }
        };
        Self { limits: slots.iter().enumerate().map(limit).collect() }
    }

    pub fn charges<'s>(&'s self, slots: &[Slot], cost: u64) -> Vec<Charge<'s>> {
        let charge = |(limit, slot): (&'s Limit, &Slot)| Charge {
            key: limit.key.key(std::iter::empty(), std::iter::empty()),
            limit,
            algorithm: slot.algorithm,
            role: slot.role,
            cost,
        };
        self.limits.iter().zip(slots).map(charge).collect()
    }
}

pub fn connect(server: &RedisServer) -> Connection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port())).expect("a URL");
    client.get_connection().expect("a connection")
}

/// The script for the shape of these charges.
pub fn script_of(charges: &[Charge<'_>]) -> ShapeScript {
    ShapeScript::assemble(&charges.iter().map(Place::of).collect::<Vec<_>>())
}

/// The four algorithms, each letting `limit` pass at once; a bucket gets one token every `window_ms`.
pub fn four(limit: u64, window_ms: u64) -> [Slot; 4] {
    let rules = [
        FixedWindow::try_new(limit, window_ms).map(Algorithm::FixedWindow).ok(),
        SlidingWindow::try_new(limit, window_ms).map(Algorithm::SlidingWindow).ok(),
        SlidingLog::try_new(limit, window_ms).map(Algorithm::SlidingLog).ok(),
        TokenBucket::try_new(1, window_ms, limit).map(Algorithm::TokenBucket).ok(),
    ];
    rules.map(|rule| Slot { algorithm: rule.expect("numbers within the hard ends"), role: Role::Enforced })
}
