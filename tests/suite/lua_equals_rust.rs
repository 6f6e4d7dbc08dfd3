//! The script in Redis and the rule in Rust are one rule: random schedules, every field of every reply equal.
//!
//! The script runs in a real server with a clock of the test's own (`support/clocked.lua`). The generator reports what it
//! met; a run that met too little of what matters fails.

use std::collections::HashMap;
use std::ops::Range;

use redis::{Cmd, Connection, Value};
use tallygate::decision::algorithm::{Demand, Foreign, Judgement, Kept, Role, State, judge};
use tallygate::decision::limit::Charge;
use tallygate::store::redis::reply::{Reply, decode};

use crate::support::redis::RedisServer;
use crate::support::schedule::{self, Move, Random, Slot};
use crate::support::script::{Subject, connect, script_of};

const HEADER: &str = "#!lua\n";
const STEPS: usize = 20_000;
const SCHEDULE: usize = 100;
/// 2027, in microseconds.
const START_US: u64 = 1_800_000_000_000_000;

/// The script of these charges behind the test's clock, as a command.
fn clocked(charges: &[Charge<'_>], n: u64) -> Cmd {
    let script = script_of(charges);
    let body = script.text().strip_prefix(HEADER).expect("the header line");
    let text = [HEADER, include_str!("../support/clocked.lua"), body].concat();
    let mut command = Cmd::new();
    for (place, argument) in script.by_text(charges, i64::MAX >> 11, n).args_iter().enumerate() {
        match (place, argument) {
            (1, _) => command.arg(&text),
            (_, redis::Arg::Simple(bytes)) => command.arg(bytes),
            _ => panic!("the command has plain arguments only"),
        };
    }
    command
}

#[derive(Default, Debug)]
pub(super) struct Coverage {
    steps: usize,
    refused: usize,
    edges: usize,
    partial: usize,
    backward: usize,
    foreign: usize,
    shadow_full: usize,
}

impl Coverage {
    fn note(&mut self, step: Move, n: u64, judged: &Result<Judgement, (usize, Foreign)>) {
        self.steps += 1;
        self.edges += usize::from(step == Move::Edge);
        self.backward += usize::from(step == Move::Backward);
        match judged {
            Ok(judged) => {
                self.refused += usize::from(judged.admitted == 0);
                self.partial += usize::from(judged.admitted > 0 && judged.admitted < n);
                self.shadow_full += usize::from(judged.admissions.iter().any(|a| a.charged < judged.admitted));
            }
            Err(_) => self.foreign += 1,
        }
    }

    fn assert_enough(&self) {
        for (what, count) in [
            ("refusals", self.refused),
            ("edges within 1 ms", self.edges),
            ("partial n", self.partial),
            ("backward steps", self.backward),
        ] {
            assert!(count * 20 >= self.steps, "{what}: {count} of {} steps are below 5 %: {self:?}", self.steps);
        }
        assert!(self.foreign > 0 && self.shadow_full > 0, "{self:?}");
    }
}

/// One policy's life: what both sides say at each step.
fn run(connection: &mut Connection, seed: u64, coverage: &mut Coverage) {
    let mut random = Random::new(seed);
    let mut slots = schedule::shape(&mut random);
    let subject = Subject::new(&format!("s{seed}"), &slots);
    let mut kept: HashMap<usize, Kept> = HashMap::new();
    let (mut now_us, mut last) = (START_US + random.within(0, 1_000_000_000), Vec::new());
    let mut latest_us = now_us;
    for step in 0..SCHEDULE {
        let (by, kind) = schedule::advance(&mut random, &last);
        now_us = now_us.checked_add_signed(by).expect("the clock stays positive");
        latest_us = latest_us.max(now_us);
        if random.one_in(10) {
            let place = usize::try_from(random.next()).unwrap_or(0) % slots.len();
            schedule::renumber(&mut random, &mut slots[place]);
        }
        let cost = if random.one_in(8) { random.within(4, 11) } else { random.within(1, 3) };
        let n = if random.one_in(2) { 1 } else { random.within(2, 7) };
        let charges = subject.charges(&slots, cost);
        forget_some(connection, &mut random, &charges, &mut kept, now_us);

        let demands = slots.iter().enumerate().map(|(place, slot)| Demand {
            algorithm: slot.algorithm,
            role: slot.role,
            state: live(&kept, place, now_us),
            cost,
        });
        let demands = demands.collect::<Vec<_>>();
        let judged = judge(&demands, now_us, n);
        n_at_once_is_n_in_turn(&slots, &kept, now_us, cost, n, &judged);

        let () = redis::cmd("SET").arg("test:clock").arg(now_us).query(connection).expect("a clock");
        let value: Value =
            clocked(&charges, n).query(connection).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let roles = slots.iter().map(|slot| slot.role).collect::<Vec<Role>>();
        let (reply, store_us) = decode(&value, roles.into_iter()).expect("a reply of the script's shape");
        let context = format!("seed {seed}, step {step}, at {now_us} us, {slots:?}, cost {cost}, n {n}, {kept:?}");
        assert_eq!(u64::try_from(store_us), Ok(now_us), "{context}");
        match (reply, &judged) {
            (Reply::Taken(taken), Ok(judged)) => {
                assert_eq!((taken.admitted, &taken.admissions), (judged.admitted, &judged.admissions), "{context}");
                last = taken.admissions;
            }
            (Reply::Foreign { charge, foreign }, Err(wanted)) => assert_eq!((charge, foreign), *wanted, "{context}"),
            (reply, judged) => panic!("{context}: Redis says {reply:?}, the rule says {judged:?}"),
        }
        // Whatever numbers changed on live keys: only a clock that stepped back by about a second makes them foreign (P14).
        assert!(judged.is_ok() || now_us + 999_000 < latest_us, "{context}");
        coverage.note(kind, n, &judged);
        if let Ok(judged) = judged {
            let written = judged.writes.into_iter().enumerate();
            kept.extend(written.filter_map(|(place, kept)| Some((place, kept?))));
        }
        expiries_agree(connection, &charges, &kept, &context);
    }
}

/// What the rule is given: a state past its end is none.
fn live(kept: &HashMap<usize, Kept>, place: usize, now_us: u64) -> Option<&State> {
    kept.get(&place).filter(|kept| kept.expires_at_ms > now_us / 1000).map(|kept| &kept.state)
}

/// A key past its end may be gone or linger in Redis, and reads alike either way: deleted at random.
fn forget_some(
    connection: &mut Connection,
    random: &mut Random,
    charges: &[Charge<'_>],
    kept: &mut HashMap<usize, Kept>,
    now_us: u64,
) {
    for (place, charge) in charges.iter().enumerate() {
        let is_over = kept.get(&place).is_some_and(|kept| kept.expires_at_ms <= now_us / 1000);
        if !is_over {
            continue;
        }
        if random.one_in(2) {
            kept.remove(&place);
            let mut forget = redis::pipe();
            forget.del(&charge.key.text).ignore().hdel("test:expiries", &charge.key.text).ignore();
            let () = forget.query(connection).expect("a deletion");
        }
    }
}

/// What the rule says of n requests at once is what it says of them one after another.
fn n_at_once_is_n_in_turn(
    slots: &[Slot],
    kept: &HashMap<usize, Kept>,
    now_us: u64,
    cost: u64,
    n: u64,
    at_once: &Result<Judgement, (usize, Foreign)>,
) {
    let Ok(at_once) = at_once else { return };
    let mut states: Vec<Option<State>> = (0..slots.len()).map(|place| live(kept, place, now_us).cloned()).collect();
    let (mut admitted, mut admissions) = (0, Vec::new());
    for _ in 0..n {
        let demands = slots.iter().zip(&states).map(|(slot, state)| Demand {
            algorithm: slot.algorithm,
            role: slot.role,
            state: state.as_ref(),
            cost,
        });
        let judged = judge(&demands.collect::<Vec<_>>(), now_us, 1).expect("as sound as before");
        admitted += judged.admitted;
        admissions = judged.admissions;
        for (state, write) in states.iter_mut().zip(judged.writes) {
            *state = write.map(|kept| kept.state).or(state.take());
        }
    }
    let numbers = |list: &[tallygate::decision::algorithm::Admission]| {
        list.iter().map(|a| (a.remaining, a.retry_after_ms, a.reset_after_ms)).collect::<Vec<_>>()
    };
    assert_eq!((admitted, numbers(&admissions)), (at_once.admitted, numbers(&at_once.admissions)));
}

/// The expiry in Redis is the one that the rule names.
fn expiries_agree(connection: &mut Connection, charges: &[Charge<'_>], kept: &HashMap<usize, Kept>, context: &str) {
    for (place, charge) in charges.iter().enumerate() {
        let held: Option<u64> =
            redis::cmd("HGET").arg("test:expiries").arg(&charge.key.text).query(connection).expect("an expiry or none");
        assert_eq!(held, kept.get(&place).map(|kept| kept.expires_at_ms), "{context}, limit {place}");
    }
}

/// Drives both sides with these schedules.
pub(super) fn drive(server: &RedisServer, schedules: Range<u64>) -> Coverage {
    let mut connection = connect(server);
    let mut coverage = Coverage::default();
    // Half of the seeds are always the same, so that a failure stays found; the others are new in each run.
    let fresh = u64::from(std::process::id()) << 20;
    for schedule in schedules {
        let seed = if schedule % 2 == 0 { schedule } else { fresh + schedule };
        run(&mut connection, seed, &mut coverage);
        if schedule % 50 == 0 {
            let () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut connection).expect("a flush");
        }
    }
    coverage
}

#[test]
fn lua_equals_rust_over_random_schedules() {
    let coverage = drive(&RedisServer::start(), 0..u64::try_from(STEPS / SCHEDULE).expect("small"));
    println!("{coverage:?}");
    coverage.assert_enough();
}

#[test]
fn the_shipped_script_has_no_door_for_another_clock() {
    let subject = Subject::new("door", &schedule::shape(&mut Random::new(1)));
    let charges = subject.charges(&schedule::shape(&mut Random::new(1)), 1);
    let text = script_of(&charges).text().to_owned();
    assert_eq!(text.matches("TIME'").count() - text.matches("PEXPIRETIME'").count(), 1, "one reading of the clock");
    let clocked = clocked(&charges, 1);
    let mut arguments = clocked.args_iter();
    let Some(redis::Arg::Simple(tried)) = arguments.nth(1) else { panic!("a text") };
    let prelude = include_str!("../support/clocked.lua");
    assert_eq!(
        tried,
        [HEADER, prelude, &text[HEADER.len()..]].concat().as_bytes(),
        "the bytes behind the prelude are ours"
    );
}
