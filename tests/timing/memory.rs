//! What an idle sidecar costs, and that an outage does not make it grow.

use std::collections::HashMap;
use std::fs;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::ports;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::stub::{Reply, Stub};
use crate::timing::load::{Load, Stream, hold};
use crate::timing::soak::lasts;
use crate::timing::stall::StallProbe;

const MIB: u64 = 1024 * 1024;
const LOCAL: &str = "{ open: { per: [tenant, subject], fixed_window: { limit: 2, window: 60s } } }";

/// Resident memory in bytes.
pub fn resident(sidecar: &Sidecar) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", sidecar.pid())).expect("it is running");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells it");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
    kilobytes * 1024
}

/// Open sockets, files and pipes.
pub fn descriptors(sidecar: &Sidecar) -> usize {
    fs::read_dir(format!("/proc/{}/fd", sidecar.pid())).expect("it is running").count()
}

/// Against a Redis that never answers 1,000 checks a second, half of them under a closed and half under an open policy: each gets
/// what its policy says, and memory and descriptors stay where they are.
#[track_caller]
fn does_not_grow(port: u16, hang: impl FnOnce()) {
    let stall = StallProbe::start();
    let setup = Setup::redis(port).policy("orders", 1_000_000, "60s", "closed");
    let sidecar = setup.policy("catalog", 1_000_000, "60s", LOCAL).start();
    let client = sidecar.client();
    // Brings in code and buffers that any load needs.
    client.check_times(&Check::of("before"), 500);
    let before = (resident(&sidecar), descriptors(&sidecar));
    hang();
    let stream = Stream { paths: &["/orders", "/catalog"], ..Stream::of(1000, 1000) };
    let load = Load::run(&client, stream, &stall, || hold(lasts(4, 60)));
    let (memory, open) = (resident(&sidecar).saturating_sub(before.0), descriptors(&sidecar));

    load.is_answered_in_time();
    let mut allowed = HashMap::new();
    for sent in &load.sent {
        // Paths take turns, so every subject has one of them for itself.
        let is_open = sent.subject % 2 == 1;
        assert_eq!(sent.outcome() == Outcome::Failed, !is_open, "subject {}: {:?}", sent.subject, sent.answer);
        *allowed.entry(sent.subject).or_insert(0) += usize::from(sent.outcome() == Outcome::Allowed);
    }
    assert!(allowed.values().all(|allowed| *allowed <= 2), "the local limit");
    assert!(memory < 50 * MIB, "grew by {} KiB", memory / 1024);
    // One connection to Redis more or less, and one that scrapes.
    assert!(open <= before.1 + 4, "{} descriptors became {open}", before.1);
}

// RL-29 b: connections stay open and nothing is answered any more.
#[test]
fn a_redis_that_hangs_does_not_make_the_process_grow() {
    let redis = RedisServer::start();
    does_not_grow(redis.port(), || redis.pause());
}

// RL-29: the worst kind. Each new connection is fit for use until the first check, so that checks wait again and again.
#[test]
fn a_redis_that_greets_and_never_decides_does_not_make_the_process_grow() {
    let stub = Stub::start();
    does_not_grow(stub.port(), || stub.answer(Reply::Silence));
    let (accepted, lasted) = (u64::try_from(stub.accepted()).unwrap(), lasts(4, 60).as_secs());
    assert!(accepted <= 5 + 4 * lasted, "no storm of reconnects: {accepted} in {lasted} s");
}

#[test]
fn an_idle_sidecar_stays_small() {
    // Without optimisation code and its tables are several times as large.
    let bound = if cfg!(debug_assertions) { 60 * MIB } else { 20 * MIB };
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 3, "60s", "closed").start();
    sidecar.client().check_times(&Check::of("ada"), 10);
    let found = resident(&sidecar);
    assert!(found < bound, "{} KiB resident", found / 1024);
}

// RL-29
#[test]
fn an_outage_does_not_make_the_process_grow() {
    let sidecar = Setup::redis(ports::free()).policy("orders", 3, "60s", LOCAL).start_without_store();
    let client = sidecar.client();
    let round = |from: usize| {
        let checks: Vec<_> = (from..from + 500).map(|n| Check::of(&format!("subject-{n}"))).collect();
        for answer in client.check_all(&checks) {
            assert_eq!(answer.outcome(), Outcome::Allowed);
        }
    };
    round(0);
    let before = resident(&sidecar);
    for n in 1..40 {
        round(n * 500);
    }
    let grown = resident(&sidecar).saturating_sub(before);
    assert!(grown < 50 * MIB, "grew by {} KiB over 20,000 subjects", grown / 1024);
}
