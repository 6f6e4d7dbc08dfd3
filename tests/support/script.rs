//! The shipped script, sent to a real server by the test itself: what it answers, and what it leaves behind.

use redis::Connection;
use tallygate::decision::key::{KeyTemplate, Secret};
use tallygate::decision::limit::{Charge, Limit, Mode};
use tallygate::decision::name::Name;
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
