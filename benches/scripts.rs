//! What the scripts cost a Redis server, beside the plainest script that does the job: tables for `benches/README.md`.
//!
//! ```text
//! cargo bench --bench scripts -- [--server redis-server-8.2] [--rounds 31] [--only fixed_window]
//! ```
//!
//! Time is the server's own figure (`usec` of EVALSHA in `INFO commandstats`), so neither the network nor this program is in
//! it. Each candidate is measured right beside the reference, a few calls of each in turn, and what counts is the median of the
//! ratios: a busy machine slows both, or one of the few. Nothing is asserted but that each call did what its column says.

#![expect(clippy::disallowed_methods, reason = "a server is waited for by this program's own clock")]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a measurement that cannot go on says why and stops"
)]

use std::thread;
use std::time::Duration;

use redis::{Cmd, Connection, Pipeline, Script, Value};
use tallygate::decision::algorithm::{Algorithm, Role};
use tallygate::decision::fixed_window::FixedWindow;
use tallygate::decision::key::{Digest, Key, KeyTemplate, Secret};
use tallygate::decision::limit::{Charge, Limit, Mode};
use tallygate::decision::name::Name;
use tallygate::decision::sliding_log::SlidingLog;
use tallygate::decision::sliding_window::SlidingWindow;
use tallygate::decision::token_bucket::TokenBucket;
use tallygate::store::redis::script::{ShapeScript, Slot};

use support::redis::RedisServer;

#[path = "../tests/support/support.rs"]
#[expect(dead_code, reason = "the suite uses the rest")]
mod support;

/// GET, PTTL, and INCR or SET PX: a fixed window as one writes it first. No clock, no deadline, no check of anything.
const REFERENCE: &str = "
local count = tonumber(redis.call('GET', KEYS[1]) or '0')
local left = redis.call('PTTL', KEYS[1])
local limit = tonumber(ARGV[1])
if count >= limit then
  return {0, 0, left}
end
if count > 0 then
  redis.call('INCR', KEYS[1])
else
  redis.call('SET', KEYS[1], '1', 'PX', ARGV[2])
end
return {1, limit - count - 1, left}
";

/// Who asks: as many as there are keys a limit.
const SUBJECTS: usize = 500;
/// How many calls are measured at once: few, so that most of the times another process did not run in between.
const AT_ONCE: usize = 50;
/// Other keys in the database, so that its tables do not grow and shrink with the measured ones.
const OTHERS: usize = 5000;
const KEY_BYTES: usize = 90;
const LIMIT: u64 = 100;
/// A day, so that nothing runs out, refills or starts anew while it is measured.
const WINDOW_MS: u64 = 86_400_000;
/// What is taken before an allowed request is measured.
const TAKEN: u64 = 10;
/// What a sliding window took in the window before: a subject that asks all the time has one.
const PREVIOUS: &str = "
local state = redis.call('GET', KEYS[1])
return redis.call('SET', KEYS[1], (string.gsub(state, ':0:', ':20:')), 'KEEPTTL')
";
/// In the year 2100: no call is late.
const NOT_AFTER_MS: i64 = 4_102_444_800_000;

/// The longest sliding log by default, and the most units that one request adds to it.
const LONG_LOG: u64 = 10_000;
const DEAREST: u64 = 100;

#[derive(Debug, Clone, Copy)]
enum State {
    New,
    Allowed,
    Refused,
}

const STATES: [State; 3] = [State::New, State::Allowed, State::Refused];

/// One script, its calls ready to be sent.
struct Candidate {
    name: String,
    load: Cmd,
    forget: Pipeline,
    take_some: Pipeline,
    take_all: Pipeline,
    /// After either of the two.
    then: Pipeline,
    /// All subjects' calls, so many at once.
    calls: Vec<Pipeline>,
}

/// One candidate in one state: microseconds a call, and as a multiple of the reference beside it.
#[derive(Default)]
struct Cell {
    micros: Vec<f64>,
    ratios: Vec<f64>,
}

fn main() {
    let options = Options::parse(std::env::args().skip(1));
    let server = RedisServer::start_part(options.server);
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port())).expect("a URL");
    let mut connection = client.get_connection().expect("a connection");
    println!("### {}\n", version(&mut connection));
    compare(&mut connection, options.rounds, &options.only);
    if options.only.is_empty() {
        sizes(&mut connection);
        longest(&mut connection);
    }
}

struct Options {
    server: &'static str,
    rounds: usize,
    /// Scripts whose name holds this; only their times are taken then.
    only: String,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Self {
        let mut options = Self { server: "redis-server", rounds: 31, only: String::new() };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} wants a value"));
            match argument.as_str() {
                "--bench" => {} // cargo says it to every benchmark
                // One for the whole run, so leaking it costs nothing.
                "--server" => options.server = value().leak(),
                "--rounds" => options.rounds = value().parse().expect("a number of rounds"),
                "--only" => options.only = value(),
                _ => panic!("unknown argument {argument}: there are --server NAME, --rounds N and --only NAME"),
            }
        }
        options
    }
}

/// What the server says it is.
fn version(connection: &mut Connection) -> String {
    let text: String = redis::cmd("INFO").arg("server").query(connection).expect("INFO");
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    match field("valkey_version") {
        Some(version) => format!("Valkey {version}"),
        None => format!("Redis {}", field("redis_version").expect("a version")),
    }
}

// --- time a call

/// The table of times: every candidate in every state, each beside the reference.
fn compare(connection: &mut Connection, rounds: usize, only: &str) {
    let reference = reference();
    let mut candidates = candidates();
    candidates.retain(|candidate| candidate.name.contains(only));
    for candidate in candidates.iter().chain([&reference]) {
        let _: String = candidate.load.query(connection).expect("the script compiles");
    }
    put_others(connection);
    let mut cells: Vec<[Cell; 3]> = candidates.iter().map(|_| Default::default()).collect();
    let mut plain: [Cell; 3] = Default::default();
    for round in 0..=rounds {
        for (candidate, cells) in candidates.iter().zip(&mut cells) {
            for ((state, cell), plain) in STATES.into_iter().zip(cells).zip(&mut plain) {
                prepare(connection, &reference, state);
                prepare(connection, candidate, state);
                for (place, (theirs, ours)) in reference.calls.iter().zip(&candidate.calls).enumerate() {
                    // Who goes first alternates, as whoever goes second finds the caches warmer.
                    let (theirs, ours) = if place % 2 == 0 {
                        let theirs = measure(connection, theirs, state);
                        (theirs, measure(connection, ours, state))
                    } else {
                        let ours = measure(connection, ours, state);
                        (measure(connection, theirs, state), ours)
                    };
                    if round > 0 {
                        cell.micros.push(ours);
                        cell.ratios.push(ours / theirs);
                        plain.micros.push(theirs);
                    }
                }
            }
        }
    }
    println!("| script | new | allowed | refused |\n|---|---|---|---|");
    println!("| reference | {} |", plain.map(|cell| format!("1.00 ({:.1} µs)", median(&cell.micros))).join(" | "));
    for (candidate, cells) in candidates.iter().zip(&cells) {
        let cells = cells.each_ref().map(|cell| {
            let (ratio, micros) = (median(&cell.ratios), median(&cell.micros));
            format!("{ratio:.2} ({micros:.1} µs)")
        });
        println!("| {} | {} |", candidate.name, cells.join(" | "));
    }
    let spreads: Vec<f64> = cells.iter().flatten().map(|cell| spread(&cell.ratios)).collect();
    let (usual, worst) = (median(&spreads), spreads.iter().copied().fold(0.0, f64::max));
    let pairs = rounds * SUBJECTS / AT_ONCE;
    println!("\nMedians of {pairs} pairs; half of them lie within ±{usual:.0} %, in the worst cell ±{worst:.0} %.\n");
}

fn candidates() -> Vec<Candidate> {
    let [f, s, t, l] = [
        Algorithm::FixedWindow(FixedWindow::try_new(LIMIT, WINDOW_MS).unwrap()),
        Algorithm::SlidingWindow(SlidingWindow::try_new(LIMIT, WINDOW_MS).unwrap()),
        Algorithm::TokenBucket(TokenBucket::try_new(LIMIT, WINDOW_MS, LIMIT).unwrap()),
        Algorithm::SlidingLog(SlidingLog::try_new(LIMIT, WINDOW_MS).unwrap()),
    ];
    let alone = [("fixed_window", f), ("sliding_window", s), ("token_bucket", t), ("sliding_log", l)];
    let several = |(name, algorithm)| {
        [1, 2, 4].map(|n| match n {
            1 => candidate(name, &[algorithm]),
            n => candidate(&format!("{n} × {name}"), &vec![algorithm; n]),
        })
    };
    let mut all: Vec<_> = alone.into_iter().flat_map(several).collect();
    all.push(candidate("one of each", &[f, t, s, l]));
    all
}

fn reference() -> Candidate {
    let script = Script::new(REFERENCE);
    let set = |taken: u64| {
        let mut pipeline = Pipeline::new();
        for subject in 0..SUBJECTS {
            pipeline.cmd("SET").arg(key("plain", subject, 1)).arg(taken).arg("PX").arg(WINDOW_MS);
        }
        pipeline
    };
    let call = |subject| {
        let mut call = Cmd::new();
        call.arg("EVALSHA").arg(script.get_hash()).arg(1);
        call.arg(key("plain", subject, 1)).arg(LIMIT).arg(WINDOW_MS);
        call
    };
    let mut load = Cmd::new();
    load.arg("SCRIPT").arg("LOAD").arg(REFERENCE);
    Candidate {
        name: "reference".into(),
        load,
        forget: forget("plain", 1),
        take_some: set(TAKEN),
        take_all: set(LIMIT),
        then: Pipeline::new(),
        calls: some_at_once(call),
    }
}

fn candidate(name: &str, algorithms: &[Algorithm]) -> Candidate {
    let limits: Vec<_> = algorithms.iter().map(|algorithm| limit(*algorithm)).collect();
    let shape: Vec<_> = charges(&limits, name, 0, 1).iter().map(Slot::of).collect();
    let script = ShapeScript::assemble(&shape);
    let call = |subject, n| script.by_hash(&charges(&limits, name, subject, 1), NOT_AFTER_MS, n);
    let take = |n| {
        let mut pipeline = Pipeline::new();
        for subject in 0..SUBJECTS {
            pipeline.add_command(call(subject, n));
        }
        pipeline
    };
    let mut load = Cmd::new();
    load.arg("SCRIPT").arg("LOAD").arg(script.text());
    Candidate {
        name: name.into(),
        load,
        forget: forget(name, algorithms.len()),
        take_some: take(TAKEN),
        take_all: take(LIMIT),
        then: give_previous(name, algorithms),
        calls: some_at_once(|subject| call(subject, 1)),
    }
}

fn some_at_once(call: impl Fn(usize) -> Cmd) -> Vec<Pipeline> {
    let some = |first| {
        let mut pipeline = Pipeline::new();
        for subject in first..first + AT_ONCE {
            pipeline.add_command(call(subject));
        }
        pipeline
    };
    (0..SUBJECTS).step_by(AT_ONCE).map(some).collect()
}

fn limit(algorithm: Algorithm) -> Limit {
    let secret = Secret::read([7; 32]).expect("long enough");
    Limit {
        name: Name::parse("limit").expect("a name"),
        algorithm,
        per: Vec::new(),
        mode: Mode::Enforce,
        key: KeyTemplate::lone(&secret, ("rl", "bench", 1), &algorithm.shape()),
    }
}

fn charges<'l>(limits: &'l [Limit], name: &str, subject: usize, cost: u64) -> Vec<Charge<'l>> {
    let charge = |(limit, place): (&'l Limit, usize)| Charge {
        key: Key { digest: Digest([0; 32]), text: key(name, subject, place) },
        limit,
        algorithm: limit.algorithm,
        role: Role::Enforced,
        cost,
    };
    limits.iter().zip(1..).map(charge).collect()
}

/// A key as long as ours are, and unlike its neighbours from end to end.
fn key(name: &str, subject: usize, place: usize) -> String {
    let head = format!("rl:bench:v1:{{{subject:04x}}}:{}-{place}:", name.replace(' ', ""));
    let rest = KEY_BYTES - head.len();
    format!("{head}{:0>rest$x}", u64::try_from(subject).unwrap().wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn forget(name: &str, places: usize) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for subject in 0..SUBJECTS {
        for place in 1..=places {
            pipeline.cmd("DEL").arg(key(name, subject, place));
        }
    }
    pipeline
}

fn give_previous(name: &str, algorithms: &[Algorithm]) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for subject in 0..SUBJECTS {
        for (algorithm, place) in algorithms.iter().zip(1..) {
            if matches!(algorithm, Algorithm::SlidingWindow(_)) {
                pipeline.cmd("EVAL").arg(PREVIOUS).arg(1).arg(key(name, subject, place));
            }
        }
    }
    pipeline
}

fn put_others(connection: &mut Connection) {
    let mut pipeline = Pipeline::new();
    for other in 0..OTHERS {
        pipeline.cmd("SET").arg(key("other", other, 1)).arg(other).arg("PX").arg(WINDOW_MS).ignore();
    }
    let () = pipeline.query(connection).expect("keys are set");
}

/// Brings a candidate's keys into `state`.
fn prepare(connection: &mut Connection, candidate: &Candidate, state: State) {
    let mut steps = vec![&candidate.forget];
    match state {
        State::New => {}
        State::Allowed => steps.extend([&candidate.take_some, &candidate.then]),
        State::Refused => steps.extend([&candidate.take_all, &candidate.then]),
    }
    for step in steps.into_iter().filter(|step| !step.is_empty()) {
        let _: Vec<Value> = step.query(connection).expect("a preparation");
    }
}

/// Microseconds a call, all of keys in `state`.
fn measure(connection: &mut Connection, calls: &Pipeline, state: State) -> f64 {
    let (micros, replies) = timed(connection, calls);
    let admitted = match state {
        State::New | State::Allowed => 1,
        State::Refused => 0,
    };
    for reply in replies {
        let as_meant = matches!(&reply, Value::Array(items) if items.first() == Some(&Value::Int(admitted)));
        assert!(as_meant, "in state {state:?} the script replied {reply:?}");
    }
    micros / f64::from(u32::try_from(AT_ONCE).unwrap())
}

/// What the server says that these scripts took, in microseconds, and their replies.
fn timed(connection: &mut Connection, calls: &Pipeline) -> (f64, Vec<Value>) {
    let () = redis::cmd("CONFIG").arg("RESETSTAT").query(connection).expect("a reset");
    let replies: Vec<Value> = calls.query(connection).expect("replies");
    let text: String = redis::cmd("INFO").arg("commandstats").query(connection).expect("INFO");
    let stats = text.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).expect("EVALSHA ran");
    let field = |name: &str| stats.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    assert_eq!(field("calls"), Some(replies.len().to_string().as_str()), "{stats}");
    (field("usec").expect("a time").parse().expect("a number"), replies)
}

fn median(values: &[f64]) -> f64 {
    quantile(values, 2)
}

/// Half of the distance between the quartiles, in per cent of the median.
fn spread(values: &[f64]) -> f64 {
    50.0 * (quantile(values, 3) - quantile(values, 1)) / median(values)
}

fn quantile(values: &[f64], quarters: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * quarters / 4]
}

// --- bytes a key

/// The table of sizes, by what a key holds.
fn sizes(connection: &mut Connection) {
    println!("| state | bytes a key of {KEY_BYTES} bytes |\n|---|---|");
    let small = candidates();
    for name in ["fixed_window", "sliding_window", "token_bucket"] {
        let candidate = small.iter().find(|candidate| candidate.name == name).expect("one of ours");
        let _: Vec<Value> = candidate.forget.query(connection).expect("a deletion");
        let _: Vec<Value> = candidate.take_some.query(connection).expect("a preparation");
        println!("| {name} | {} |", memory_usage(connection, &key(name, 0, 1)));
    }
    let log = Log::new(WINDOW_MS);
    for units in [1, 10, 100, 128, 129, 1000, 10_000] {
        log.fill(connection, units);
        println!("| sliding_log, units: {units} | {} |", memory_usage(connection, &log.key()));
    }
    println!();
}

fn memory_usage(connection: &mut Connection, key: &str) -> u64 {
    redis::cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).query(connection).expect("a size")
}

// --- the longest calls

/// A sliding log of the longest kind.
struct Log {
    limits: [Limit; 1],
    script: ShapeScript,
}

impl Log {
    fn new(window_ms: u64) -> Self {
        let limits = [limit(Algorithm::SlidingLog(SlidingLog::try_new(LONG_LOG, window_ms).unwrap()))];
        let shape: Vec<_> = charges(&limits, "long", 0, 1).iter().map(Slot::of).collect();
        Self { limits, script: ShapeScript::assemble(&shape) }
    }

    fn key(&self) -> String {
        key("long", 0, self.limits.len())
    }

    /// A new log with so many units.
    fn fill(&self, connection: &mut Connection, units: u64) {
        let () = redis::cmd("DEL").arg(self.key()).query(connection).expect("a deletion");
        let _: String =
            redis::cmd("SCRIPT").arg("LOAD").arg(self.script.text()).query(connection).expect("it compiles");
        for cost in (0..units).step_by(100).map(|before| (units - before).min(100)) {
            self.take(connection, cost, 1);
        }
    }

    /// One call, which must admit so many; the microseconds that it took.
    fn take(&self, connection: &mut Connection, cost: u64, admitted: i64) -> f64 {
        let mut pipeline = Pipeline::new();
        pipeline.add_command(self.script.by_hash(&charges(&self.limits, "long", 0, cost), NOT_AFTER_MS, 1));
        let (micros, replies) = timed(connection, &pipeline);
        let ours = matches!(&replies[..], [Value::Array(items)] if items.first() == Some(&Value::Int(admitted)));
        assert!(ours, "the long log replied {replies:?}");
        micros
    }
}

/// The table of the calls that hold a server longest: whatever a log of 10,000 members may be asked for.
fn longest(connection: &mut Connection) {
    const TRIES: usize = 15;
    println!("| a sliding log of {LONG_LOG} members | median | longest of {TRIES} |\n|---|---|---|");
    let print = |what: &str, micros: &[f64]| {
        let longest = micros.iter().copied().fold(0.0, f64::max);
        println!("| {what} | {:.2} ms | {:.2} ms |", median(micros) / 1000.0, longest / 1000.0);
    };
    let log = Log::new(WINDOW_MS);
    let admit = |connection: &mut Connection| {
        log.fill(connection, LONG_LOG - DEAREST);
        log.take(connection, DEAREST, 1)
    };
    print(&format!("admit {DEAREST} units beside {}", LONG_LOG - DEAREST), &repeat(TRIES, connection, admit));
    let refuse = |connection: &mut Connection| log.take(connection, DEAREST, 0);
    print(&format!("refuse {DEAREST} units"), &repeat(TRIES, connection, refuse));
    // A log expires with its last unit, so it takes one late unit to see the others dead.
    let short = Log::new(900);
    let trim = |connection: &mut Connection| {
        short.fill(connection, LONG_LOG - 1);
        thread::sleep(Duration::from_millis(600));
        short.take(connection, 1, 1);
        thread::sleep(Duration::from_millis(400));
        short.take(connection, DEAREST, 1)
    };
    print(&format!("admit {DEAREST} units, {} others just died", LONG_LOG - 1), &repeat(TRIES, connection, trim));
}

fn repeat(times: usize, connection: &mut Connection, measured: impl Fn(&mut Connection) -> f64) -> Vec<f64> {
    (0..times).map(|_| measured(connection)).collect()
}
