//! What a server may answer: a reply that is not the script's is a failure, never an allowance, whichever bytes it is made of.

use std::time::Duration;

use tallygate::decision::algorithm::Role;
use tallygate::store::redis::reply::{Reply as Decoded, decode};

use super::{driver, mutate};
use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::odd_replies;
use crate::support::setup::Setup;
use crate::support::stub::{Reply, Stub};
use crate::support::wait::wait_for;

const WORDS: [&[u8]; 18] = [
    b"\r\n",
    b":1\r\n",
    b":-1\r\n",
    b":0\r\n",
    b"*0\r\n",
    b"*5\r\n",
    b"*-1\r\n",
    b"$-1\r\n",
    b"_\r\n",
    b"#t\r\n",
    b">2\r\n",
    b"|1\r\n",
    b"%1\r\n",
    b"~1\r\n",
    b"*2147483647\r\n",
    b"$2147483647\r\n",
    b":9223372036854775807\r\n",
    b"-NOSCRIPT x\r\n",
];

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![
        b"*5\r\n:1\r\n:1700000000000000\r\n:4\r\n:0\r\n:60000\r\n".to_vec(),
        b"*5\r\n:0\r\n:1700000000000000\r\n:0\r\n:60000\r\n:60000\r\n".to_vec(),
        b"*9\r\n:1\r\n:1700000000000000\r\n:4\r\n:0\r\n:60000\r\n:9\r\n:-1\r\n:10\r\n:1\r\n".to_vec(),
        b"*3\r\n:-4\r\n:1700000000000000\r\n:1\r\n".to_vec(),
    ];
    // The time in the other odd ones is that of the run, and the same seed must make the same cases.
    let odd = odd_replies::errors().into_iter();
    seeds.extend(odd.map(|reply| reply.bytes).filter(|bytes| bytes.len() < 1000));
    seeds
}

/// The numbers of the one reply that the script makes, read off the bytes without any library. Spaces around them are no
/// matter.
fn numbers(bytes: &[u8]) -> Option<Vec<i64>> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split("\r\n");
    let count: usize = lines.next()?.trim().strip_prefix('*')?.trim().parse().ok()?;
    let mut number = |_| lines.next()?.trim().strip_prefix(':')?.trim().parse().ok();
    (0..count.min(100)).map(&mut number).collect()
}

#[test]
fn every_reply_is_the_scripts_or_malformed() {
    let seeds = seeds();
    driver::run(
        "every_reply_is_the_scripts_or_malformed",
        |random| mutate::mutated(random, &seeds, &WORDS),
        |bytes| {
            let Ok(value) = redis::parse_redis_value(bytes) else { return };
            for roles in [&[Role::Enforced][..], &[Role::Enforced, Role::Shadow]] {
                let Ok((Decoded::Taken(taken), store_us)) = decode(&value, roles.iter().copied()) else { continue };
                let mut told = vec![i64::try_from(taken.admitted).unwrap(), store_us];
                for (admission, role) in taken.admissions.iter().zip(roles) {
                    let number = |number: u64| i64::try_from(number).unwrap();
                    let retry = admission.retry_after_ms.map_or(-1, number);
                    told.extend([number(admission.remaining), retry, number(admission.reset_after_ms)]);
                    if *role == Role::Shadow {
                        assert!(admission.charged <= taken.admitted);
                        told.push(number(admission.charged));
                    }
                }
                assert_eq!(numbers(bytes), Some(told));
            }
        },
    );
}

#[test]
fn every_reply_is_answered_and_none_but_the_scripts_allows() {
    let stub = Stub::start();
    let times = "command_timeout: 20ms, connect_timeout: 200ms";
    let store = format!("{{ redis: {{ url: 'redis://127.0.0.1:{}', {times} }} }}", stub.port());
    let sidecar = Setup::store(&store).policy("orders", 5, "60s", "closed").start();
    let (client, seeds) = (sidecar.client(), seeds());
    let mut connections = stub.accepted();
    // What the server has said on this connection: a reply may be put together from two.
    let mut said = Vec::new();
    driver::run(
        "every_reply_is_answered",
        |random| mutate::mutated(random, &seeds, &WORDS),
        |bytes| {
            if stub.accepted() != connections || said.len() > 256 * 1024 {
                connections = stub.accepted();
                said.clear();
            }
            stub.answer(Reply::Bytes(bytes.clone()));
            said.extend(bytes);
            let outcome = client.check(&Check::of("ada")).outcome();
            match outcome {
                Outcome::Failed => {}
                Outcome::Allowed | Outcome::Limited => {
                    let is_scripts = |reply: &[u8]| numbers(reply).is_some_and(|numbers| numbers.len() == 5);
                    let begins = said.iter().enumerate().filter(|(_, byte)| **byte == b'*').map(|(at, _)| at);
                    assert!(begins.into_iter().any(|at| is_scripts(&said[at..])), "{outcome:?}");
                }
                other => panic!("{other:?}"),
            }
        },
    );
    stub.answer(Reply::Admit);
    wait_for("an ordinary check", Duration::from_secs(10), || {
        client.check(&Check::of("ada")).outcome() == Outcome::Allowed
    });
    assert!(!sidecar.log().contains("panic"), "{}", sidecar.log());
}
