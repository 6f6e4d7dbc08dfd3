//! The script's own rules, by calls that no sidecar would make: what is not in order is answered with a reason and touches
//! nothing, because a script that writes and then errors keeps its write (P4).

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use redis::{Arg, Cmd, Connection};
use tallygate::decision::algorithm::Role;
use tallygate::decision::limit::Charge;

use crate::support::redis::RedisServer;
use crate::support::resp::Value;
use crate::support::schedule::Slot;
use crate::support::script::{Subject, connect, four, script_of};

const HOUR_MS: u64 = 3_600_000;
/// Far from now, and exact in a double.
const NEVER_LATE_MS: i64 = 1 << 52;
const LATE: i64 = -1;
const BAD_ARGUMENTS: i64 = -2;
/// How many words come before a call's ARGV: EVAL, the text, the number of keys, and one key.
const BEFORE_ARGV: usize = 4;

/// The words of one call of the shipped text, for a test to spoil.
fn words(charges: &[Charge<'_>], not_after_ms: i64, n: u64) -> Vec<Vec<u8>> {
    let command = script_of(charges).by_text(charges, not_after_ms, n);
    let word = |argument: Arg<&[u8]>| match argument {
        Arg::Simple(bytes) => bytes.to_vec(),
        _ => panic!("the command has plain arguments only"),
    };
    command.args_iter().map(word).collect()
}

#[track_caller]
fn send(connection: &mut Connection, words: &[Vec<u8>]) -> Vec<i64> {
    let mut command = Cmd::new();
    command.arg(words);
    command.query(connection).expect("a reply, and no error of Lua's")
}

/// What a call of one charge answers with some words in other words' place; nothing may change.
#[track_caller]
fn answers_untouched(server: &RedisServer, words: &[Vec<u8>], spoilt: &str) -> [i64; 2] {
    let key = String::from_utf8(words[BEFORE_ARGV - 1].clone()).expect("a key is text");
    let before = (server.snapshot(&key), server.changes());
    let reply = send(&mut connect(server), words);
    assert_eq!((server.snapshot(&key), server.changes()), before, "{spoilt}");
    let [code, now_us, place] = reply[..] else { panic!("{spoilt}: {reply:?}") };
    assert!(now_us > 0, "{spoilt}: every reply tells the time");
    [code, place]
}

/// `words` with ARGV `place` (from 1) as `text`.
fn with(words: &[Vec<u8>], place: usize, text: &str) -> Vec<Vec<u8>> {
    let mut words = words.to_vec();
    words[BEFORE_ARGV + place - 1] = text.into();
    words
}

// The reason for checking everything first.
#[test]
fn a_script_that_writes_and_then_errors_keeps_its_write() {
    let server = RedisServer::start();
    let text = "#!lua\nredis.call('SET', KEYS[1], '1') redis.call('LPUSH', KEYS[1], 'x')";
    let reply = server.command(&["EVAL", text, "1", "half"]);
    assert!(matches!(&reply, Value::Error(error) if error.contains("WRONGTYPE")), "{reply:?}");
    assert_eq!((server.get("half").as_deref(), server.pttl("half")), (Some("1"), -1));
}

#[test]
fn an_argument_out_of_its_bounds_is_refused_by_its_place_and_touches_nothing() {
    let server = RedisServer::start();
    for (n, slot) in four(5, HOUR_MS).into_iter().enumerate() {
        let (slots, algorithm) = ([slot], slot.algorithm);
        let subject = Subject::new(&format!("s{n}"), &slots);
        let good = words(&subject.charges(&slots, 1), NEVER_LATE_MS, 1);
        let arguments = good.len() - BEFORE_ARGV;
        // Once without a state, once with one.
        for _ in 0..2 {
            for place in 2..=arguments {
                for bad in ["0", "-1", "1.5", "9007199254740992", "1e300", "nan", "inf", "-inf", "", "x"] {
                    let fault = if place == 2 { 0 } else { 1 };
                    let spoilt = format!("{algorithm:?}, ARGV[{place}] = {bad:?}");
                    let answer = answers_untouched(&server, &with(&good, place, bad), &spoilt);
                    assert_eq!(answer, [BAD_ARGUMENTS, fault], "{spoilt}");
                }
            }
            for bad in ["", "x"] {
                let answer = answers_untouched(&server, &with(&good, 1, bad), "not-after");
                assert_eq!(answer, [BAD_ARGUMENTS, 0], "{algorithm:?}, not-after {bad:?}");
            }
            assert_eq!(send(&mut connect(&server), &good)[0], 1, "{algorithm:?}: the good call passes");
        }
    }
}

#[test]
fn numbers_whose_product_is_not_exact_are_refused() {
    let server = RedisServer::start();
    let [_, window, _, bucket] = four(5, HOUR_MS);
    let cases: [(Slot, &[&str]); 4] = [
        (window, &["284837", "31622400000"]),
        (bucket, &["1000000000", "31622400000", "284837"]),
        // A bucket that takes more than 366 days to fill.
        (bucket, &["1", "3600000", "8785"]),
        (bucket, &["1", "31622400000", "2"]),
    ];
    for (n, (slot, numbers)) in cases.into_iter().enumerate() {
        let slots = [slot];
        let subject = Subject::new(&format!("s{n}"), &slots);
        let good = words(&subject.charges(&slots, 1), NEVER_LATE_MS, 1);
        let bad = numbers.iter().zip(3..).fold(good, |words, (number, place)| with(&words, place, number));
        assert_eq!(answers_untouched(&server, &bad, &format!("{numbers:?}")), [BAD_ARGUMENTS, 1], "{numbers:?}");
    }
}

#[test]
fn a_wrong_number_of_keys_or_arguments_is_refused() {
    let server = RedisServer::start();
    for slot in four(5, HOUR_MS) {
        let (slots, algorithm) = ([slot; 2], slot.algorithm);
        let subject = Subject::new("orders", &slots);
        let good = words(&subject.charges(&slots, 1), NEVER_LATE_MS, 1);
        let mut one_more_argument = good.clone();
        one_more_argument.push(b"1".to_vec());
        let mut one_key_less = good.clone();
        one_key_less[2] = b"1".to_vec();
        let mut one_key_more = good.clone();
        one_key_more[2] = b"3".to_vec();
        let mut no_key = good.clone();
        no_key[2] = b"0".to_vec();
        for bad in [&good[..good.len() - 1], &good[..5], &one_more_argument, &one_key_less, &one_key_more, &no_key] {
            let reply = send(&mut connect(&server), bad);
            assert_eq!((reply[0], reply[2]), (BAD_ARGUMENTS, 0), "{algorithm:?}: {} words", bad.len());
        }
    }
    assert_eq!((server.keys(), server.changes()), (Vec::new(), 0));
}

// P6
#[test]
fn a_call_after_its_deadline_is_late_and_writes_nothing() {
    let server = RedisServer::start();
    let mut connection = connect(&server);
    let all = four(5, HOUR_MS);
    let shapes = all.iter().map(|slot| vec![*slot]).chain([all.to_vec()]);
    for (n, slots) in shapes.enumerate() {
        let subject = Subject::new(&format!("s{n}"), &slots);
        let charges = subject.charges(&slots, 1);
        let now_ms = || i64::try_from(server.now_us() / 1000).unwrap();
        for round in 0..2 {
            let keys: Vec<_> = charges.iter().map(|charge| server.snapshot(&charge.key.text)).collect();
            let before = (server.changes(), server.keys());
            for late_by in [1, 1000, 1_000_000_000] {
                let reply = send(&mut connection, &words(&charges, now_ms() - late_by, 1));
                assert_eq!((reply[0], reply[2], reply.len()), (LATE, 0, 3), "shape {n}, round {round}");
            }
            assert_eq!((server.changes(), server.keys()), before, "shape {n}, round {round}");
            let now: Vec<_> = charges.iter().map(|charge| server.snapshot(&charge.key.text)).collect();
            assert_eq!(now, keys, "shape {n}, round {round}");
            // A second time with states.
            assert_eq!(send(&mut connection, &words(&charges, NEVER_LATE_MS, 1))[0], 1);
        }
    }
}

// P6: the last millisecond still counts, the next does not.
#[test]
fn a_call_is_late_from_the_millisecond_after_its_deadline() {
    let server = RedisServer::start();
    let mut connection = connect(&server);
    let slots = [four(1_000_000, 10_000)[0]];
    let subject = Subject::new("orders", &slots);
    let charges = subject.charges(&slots, 1);
    let (mut late, mut counted) = (0, 0);
    for _ in 0..100_000 {
        let now_ms = send(&mut connection, &words(&charges, NEVER_LATE_MS, 1))[1] / 1000;
        let not_after = now_ms + i64::from(late >= counted);
        let reply = send(&mut connection, &words(&charges, not_after, 1));
        let is_late = reply[1] / 1000 > not_after;
        assert_eq!(reply[0], if is_late { LATE } else { 1 }, "not after {not_after}: {reply:?}");
        (late, counted) = (late + usize::from(is_late), counted + usize::from(!is_late));
        if late >= 50 && counted >= 50 {
            return;
        }
    }
    panic!("{late} late and {counted} counted calls are too few to tell");
}

// Lua has room for 200 locals in a function; a policy has at most eight limits.
#[test]
fn the_longest_scripts_load_and_decide() {
    let server = RedisServer::start();
    let mut connection = connect(&server);
    let all = four(2, HOUR_MS);
    let shapes = all.iter().map(|slot| [*slot; 8]).chain([[all, all].concat().try_into().unwrap()]);
    for (n, shape) in shapes.enumerate() {
        for role in [Role::Enforced, Role::Shadow] {
            let mut slots = shape;
            slots[1..].iter_mut().for_each(|slot| slot.role = role);
            let subject = Subject::new(&format!("s{n}-{}", role == Role::Shadow), &slots);
            let charges = subject.charges(&slots, 1);
            let script = script_of(&charges);
            let _sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(script.text()).query(&mut connection).unwrap();
            let ask = |connection: &mut Connection| {
                let reply: Vec<i64> = script.by_hash(&charges, NEVER_LATE_MS, 1).query(connection).unwrap();
                (reply[0], reply[2], reply.len())
            };
            let fields = 2 + 3 * 8 + if role == Role::Shadow { 7 } else { 0 };
            let answers = [(); 3].map(|()| ask(&mut connection));
            assert_eq!(answers, [(1, 1, fields), (1, 0, fields), (0, 0, fields)], "shape {n}, {role:?}");
            assert!(charges.iter().all(|charge| server.pttl(&charge.key.text) > 0), "shape {n}, {role:?}");
        }
    }
}

// Lua hands over some thousands of arguments at once and no more.
#[test]
fn a_log_takes_many_units_in_one_call_each_with_a_label_of_its_own() {
    let server = RedisServer::start();
    let mut connection = connect(&server);
    for (n, cost) in [1999, 2000, 2001, 4000, 4001, 10_000].into_iter().enumerate() {
        let slots = [four(100_000, 60_000)[2]];
        let subject = Subject::new(&format!("s{n}"), &slots);
        let charges = subject.charges(&slots, cost);
        let remaining = [(); 2].map(|()| send(&mut connection, &words(&charges, NEVER_LATE_MS, 1))[2].unsigned_abs());
        assert_eq!(remaining, [100_000 - cost, 100_000 - 2 * cost]);
        let size = server.run(&["ZCARD", &charges[0].key.text]).integer().unsigned_abs();
        assert_eq!(size, 2 * cost, "a member a unit");
        assert!(server.pttl(&charges[0].key.text) > 0);
    }
}

// Their sum is whole.
#[test]
fn two_fractions_are_not_taken_for_whole_numbers() {
    let server = RedisServer::start();
    for (n, slot) in four(5, HOUR_MS).into_iter().enumerate() {
        let subject = Subject::new(&format!("s{n}"), &[slot]);
        let good = words(&subject.charges(&[slot], 1), NEVER_LATE_MS, 1);
        let last = good.len() - BEFORE_ARGV;
        for (first, second) in [(3, 4), (3, last), (4, last)] {
            let half = |place: usize| String::from_utf8(good[BEFORE_ARGV + place - 1].clone()).unwrap() + ".5";
            let bad = with(&with(&good, first, &half(first)), second, &half(second));
            let spoilt = format!("{:?}, ARGV[{first}] and ARGV[{second}]", slot.algorithm);
            assert_eq!(answers_untouched(&server, &bad, &spoilt), [BAD_ARGUMENTS, 1], "{spoilt}");
        }
    }
}

// No instant is after a deadline that is no number, so nothing would ever be late.
#[test]
fn a_deadline_that_is_no_number_is_refused() {
    let server = RedisServer::start();
    let slots = [four(5, HOUR_MS)[0]];
    let good = words(&Subject::new("orders", &slots).charges(&slots, 1), NEVER_LATE_MS, 1);
    assert_eq!(answers_untouched(&server, &with(&good, 1, "nan"), "not-after"), [BAD_ARGUMENTS, 0]);
}

/// The commands that scripts send on this server while `during` runs, each with its words.
fn sent_by_scripts(server: &RedisServer, during: impl FnOnce()) -> Vec<Vec<String>> {
    let mut monitor = BufReader::new(TcpStream::connect(("127.0.0.1", server.port())).expect("it listens"));
    monitor.get_mut().write_all(b"MONITOR\r\n").expect("it reads");
    let mut lines = monitor.lines().map(|line| line.expect("a line"));
    assert_eq!(lines.next().as_deref(), Some("+OK"));
    during();
    server.run(&["ECHO", "the end of the test"]);
    let seen = lines.take_while(|line| !line.contains("the end of the test"));
    let words = |line: String| line.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    seen.filter(|line| line.contains(" lua]")).map(words).collect()
}

// P4: between a value and its expiry nothing can fail or be cut, since they are one command.
#[test]
fn a_value_and_its_expiry_are_written_by_one_command() {
    let server = RedisServer::start();
    for (slot, name) in four(9, HOUR_MS).iter().zip(["fixed window", "sliding window", "sliding log", "token bucket"]) {
        let slots = [*slot];
        let subject = Subject::new("whole", &slots);
        let charges = subject.charges(&slots, 2);
        let sent = sent_by_scripts(&server, || {
            for _ in 0..2 {
                let by_text = script_of(&charges).by_text(&charges, NEVER_LATE_MS, 1);
                let reply: Vec<i64> = by_text.query(&mut connect(&server)).expect("a reply");
                assert_eq!(reply[0], 1, "{name}: it is admitted");
            }
        });
        let reads = ["TIME", "GET", "PEXPIRETIME", "ZCARD", "ZRANGE", "ZCOUNT", "ZRANGEBYSCORE", "TYPE"];
        let writes: Vec<_> = sent.iter().filter(|words| !reads.contains(&words[0].to_uppercase().as_str())).collect();
        assert!(writes.len() >= 2, "{name}: {sent:?}");
        if name == "sliding log" {
            // No command sets a member and an expiry: the expiry goes first, and again for a key that was not there yet.
            let names: Vec<_> = writes.iter().map(|words| &*words[0]).collect();
            assert_eq!(names, ["PEXPIREAT", "ZADD", "PEXPIREAT", "PEXPIREAT", "ZADD", "PEXPIREAT"]);
            continue;
        }
        assert_eq!(writes.len(), 2, "{name}, one a request: {writes:?}");
        assert!(writes[0][0] == "SET" && writes[0].iter().any(|word| word == "PXAT"), "{name}: {writes:?}");
        let keeps_its_end =
            writes[1][0] == "INCRBY" || writes[1].iter().any(|word| ["PXAT", "KEEPTTL"].contains(&&**word));
        assert!(keeps_its_end, "{name}: {writes:?}");
    }
}
