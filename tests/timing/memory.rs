//! What an idle sidecar costs, and that an outage does not make it grow.

use std::fs;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::ports;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

const MIB: u64 = 1024 * 1024;

/// Resident memory in bytes.
fn resident(sidecar: &Sidecar) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", sidecar.pid())).expect("it is running");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells it");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
    kilobytes * 1024
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
    let local = "{ open: { per: [tenant, subject], fixed_window: { limit: 2, window: 60s } } }";
    let sidecar = Setup::redis(ports::free()).policy("orders", 3, "60s", local).start_without_store();
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
