//! What a decision costs from Envoy's side: CPU of the sidecar and of Redis, and the time to an answer, beside a bare floor.
//!
//! ```text
//! cargo bench --bench decisions -- [--rounds 9] [--checks 20000] [--at-once 64] [--ratelimit PATH]
//! ```
//!
//! The floor is a gRPC server of the same libraries that answers the same service without looking at the request: what remains
//! above it is ours. Everybody is asked in turn, a batch each, round after round, and what counts is the median of the ratios to
//! the floor of the same round, so that a busy machine slows both. CPU is what the kernel accounted to the process. `--ratelimit`
//! takes a binary of envoyproxy/ratelimit into the same run, on the same Redis, by its own protocol. Nothing is asserted but that
//! each answer was the one that the row names.

#![expect(clippy::disallowed_methods, reason = "a measurement reads a clock")]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measurement that cannot go on says why and stops, and its figures are rounded for people"
)]

mod candidates;
mod floor;
mod load;

#[path = "../../tests/support/support.rs"]
#[expect(dead_code, reason = "the suite uses the rest")]
mod support;

use std::env;

use candidates::Candidate;
use load::Batch;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let Some(port_file) = value(&arguments, "--floor") {
        return floor::serve(port_file);
    }
    let number = |name, default| value(&arguments, name).map_or(default, |text| text.parse().expect("a number"));
    let (rounds, checks) = (number("--rounds", 9), number("--checks", 20_000));
    // Checks that wait for an answer at the same time, over one connection, as of one busy Envoy worker.
    let at_once = number("--at-once", 64);
    let candidates = candidates::all(value(&arguments, "--ratelimit"));
    let mut batches: Vec<Vec<Batch>> = candidates.iter().map(|_| Vec::new()).collect();
    for candidate in &candidates {
        candidate.ask(checks / 10, at_once); // connections, code paths and Redis' tables are warm then
    }
    for round in 1..=rounds {
        for (candidate, batches) in candidates.iter().zip(&mut batches) {
            batches.push(candidate.ask(checks, at_once));
        }
        eprintln!("round {round} of {rounds}");
    }
    table(&candidates, &batches);
}

fn value<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let at = arguments.iter().position(|argument| argument == name)?;
    arguments.get(at + 1).map(String::as_str)
}

fn table(candidates: &[Candidate], batches: &[Vec<Batch>]) {
    println!(
        "| asked | CPU of it, multiple of the floor | its CPU per check | Redis' CPU per check | p50 | p99 | resident |"
    );
    println!("|---|---|---|---|---|---|---|");
    let floor = &batches[0];
    for (candidate, own) in candidates.iter().zip(batches) {
        let ratios = own.iter().zip(floor).map(|(own, floor)| own.cpu_us / floor.cpu_us).collect();
        let of = |figure: fn(&Batch) -> f64| median(own.iter().map(figure).collect());
        println!(
            "| {} | {:.2} | {:.1} µs | {:.1} µs | {:.2} ms | {:.2} ms | {:.1} MiB |",
            candidate.name,
            median(ratios),
            of(|batch| batch.cpu_us),
            of(|batch| batch.redis_cpu_us),
            of(|batch| batch.p50_ms),
            of(|batch| batch.p99_ms),
            candidate.resident_mib(),
        );
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
