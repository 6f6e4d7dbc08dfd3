//! Redis refuses to write while 500 checks a second arrive: each of them is told so at once, and none is charged.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::answer::Outcome;
use crate::support::redis::RedisServer;
use crate::support::resp::Value;
use crate::support::setup::Setup;
use crate::support::wait::wait_for;
use crate::timing::load::{Load, Stream, are_decided, hold, outcomes};
use crate::timing::soak::lasts;
use crate::timing::stall::StallProbe;

/// A subject a check.
const STREAM: Stream = Stream::of(500, usize::MAX);

/// Between `refuse` and `mend` every check fails with the class `oom`, before and afterwards it is decided; and what is counted
/// are the allowed ones, since a refusal proves that nothing ran.
#[track_caller]
fn refuses_under_load(redis: &RedisServer, refuse: impl FnOnce(), mend: impl FnOnce()) {
    let stall = StallProbe::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 5, "60s", "closed").start();
    let (mut refusing, mut mended) = (Instant::now(), Instant::now());
    let mut mending = mended;
    let load = Load::run(&sidecar.client(), STREAM, &stall, || {
        hold(Duration::from_millis(300));
        refuse();
        refusing = Instant::now();
        hold(lasts(1, 10));
        mending = Instant::now();
        mend();
        mended = Instant::now();
        hold(Duration::from_millis(500));
    });
    load.is_answered_in_time();
    let refused = outcomes(load.between(refusing, mending));
    assert_eq!(refused.keys().collect::<Vec<_>>(), ["Failed oom"]);
    are_decided(load.since(mended));
    let allowed = load.sent.iter().filter(|sent| sent.outcome() == Outcome::Allowed).count();
    assert_eq!(redis.keys().len(), allowed, "the failed ones left no key");
    assert_eq!(sidecar.metrics().store_errors("oom"), u64::try_from(load.sent.len() - allowed).unwrap());
}

// RL-26
#[test]
fn a_redis_that_is_full_under_load_fails_each_check_and_is_used_again_at_once() {
    let redis = RedisServer::start();
    refuses_under_load(
        &redis,
        || drop(redis.run(&["CONFIG", "SET", "maxmemory", "1"])),
        || drop(redis.run(&["CONFIG", "SET", "maxmemory", "0"])),
    );
}

// RL-27: MISCONF. Redis takes no writes while it cannot save them.
#[test]
fn a_redis_that_cannot_persist_under_load_fails_each_check_and_is_used_again_at_once() {
    let redis = RedisServer::start();
    redis.run(&["CONFIG", "SET", "save", "3600 1000000", "stop-writes-on-bgsave-error", "yes"]);
    // A folder in the place of the file that it would write.
    let Value::Array(folder) = redis.run(&["CONFIG", "GET", "dir"]) else { panic!("a name and a value") };
    let obstacle = Path::new(&folder[1].text()).join("dump.rdb");
    let save_until = |status: &str| {
        redis.run(&["BGSAVE"]);
        wait_for(status, Duration::from_secs(10), || {
            let text = redis.run(&["INFO", "persistence"]).text();
            text.contains("rdb_bgsave_in_progress:0") && text.contains(status)
        });
    };
    refuses_under_load(
        &redis,
        || {
            fs::create_dir_all(obstacle.join("in-the-way")).expect("a folder");
            save_until("rdb_last_bgsave_status:err");
        },
        || {
            fs::remove_dir_all(&obstacle).expect("it is ours");
            save_until("rdb_last_bgsave_status:ok");
        },
    );
}
