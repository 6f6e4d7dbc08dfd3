//! Whatever a server answers that is no answer of the script: the check fails by a class of the closed set, the server's words
//! stay here, and the next check is decided (RL-27).

use std::collections::BTreeSet;
use std::time::Duration;

use tallygate::decision::verdict::FailureClass;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::odd_replies::{self, CANARY, OddReply};
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::stub::{Reply, Stub};
use crate::support::wait::wait_for;

/// A closed policy over the stub. The time-outs leave a busy machine the time to be slow.
fn start() -> (Stub, Sidecar) {
    let stub = Stub::start();
    let port = stub.port();
    let store = format!(
        "{{ redis: {{ url: 'redis://127.0.0.1:{port}', command_timeout: 5s, connect_timeout: 5s }} }}\n\
         decision_budget: 10s"
    );
    let sidecar = Setup::store(&store).policy("orders", 5, "60s", "closed").start();
    (stub, sidecar)
}

/// Each is a failure of its class, is asked once, and spoils nothing for the next check.
#[track_caller]
fn each_fails_by_its_class(odd: Vec<OddReply>) {
    let (stub, sidecar) = start();
    let client = sidecar.client();
    let series = sidecar.metrics().names().join("\n");
    for OddReply { bytes, class, name, keeps_connection } in odd {
        let before = (sidecar.metrics().store_errors(class), stub.asked(), stub.accepted());
        stub.answer(Reply::Bytes(bytes));
        let answer = client.check(&Check::of("ada"));
        assert_eq!(answer.outcome(), Outcome::Failed, "{name}: {answer:?}");
        assert_eq!(answer.metadata("reason"), class, "{name}");
        assert_eq!(sidecar.metrics().store_errors(class), before.0 + 1, "{name}");
        assert_eq!(stub.asked(), before.1 + 1, "{name} proves nothing, so it is not asked for again");
        assert!(!format!("{answer:?}").contains(CANARY), "{name}: {answer:?}");

        stub.answer(Reply::Admit);
        if keeps_connection {
            assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed, "{name}: the next check");
            assert_eq!(stub.accepted(), before.2, "{name}: on the same connection");
        } else {
            wait_for("a new connection", Duration::from_secs(5), || {
                client.check(&Check::of("ada")).outcome() == Outcome::Allowed
            });
            assert_eq!(stub.accepted(), before.2 + 1, "{name}: the connection is replaced, once");
        }
    }
    let now = sidecar.get("/metrics").text();
    assert!(!now.contains(CANARY), "{now}");
    assert_eq!(sidecar.metrics().names().join("\n"), series, "no series follows from what a server says");
}

// RL-27
#[test]
fn every_error_of_a_server_is_a_failure_by_its_code() {
    each_fails_by_its_class(odd_replies::errors());
}

// RL-27
#[test]
fn every_reply_of_another_shape_is_a_failure_and_never_an_allow() {
    each_fails_by_its_class(odd_replies::shapes());
}

// RL-27
#[test]
fn the_classes_of_store_errors_are_a_closed_set_that_is_there_from_the_start() {
    let (_stub, sidecar) = start();
    let metrics = sidecar.metrics();
    let series = metrics.names().into_iter().filter_map(|name| name.strip_prefix("tallygate_store_errors_total"));
    let shown: BTreeSet<_> = series.map(str::to_owned).collect();
    let closed: BTreeSet<_> = FailureClass::ALL.map(|class| format!("{{class=\"{}\"}}", class.as_str())).into();
    assert_eq!(shown, closed);
}

// RL-20: the one error that proves that nothing ran is followed by one more command, and by no third.
#[test]
fn a_server_that_never_knows_the_script_is_asked_twice_and_not_again() {
    let (stub, sidecar) = start();
    let client = sidecar.client();
    stub.answer(Reply::Bytes(format!("-NOSCRIPT {CANARY}\r\n").into_bytes()));
    for n in 1..=3 {
        let answer = client.check(&Check::of("ada"));
        assert_eq!((answer.outcome(), answer.metadata("reason").as_str()), (Outcome::Failed, "other"));
        assert_eq!(stub.asked(), 2 * n);
        assert!(!format!("{answer:?}").contains(CANARY), "{answer:?}");
    }
}

// RL-20: *late* proves that nothing ran; the second time it is the answer.
#[test]
fn a_server_that_is_always_late_is_asked_twice_and_not_again() {
    let (stub, sidecar) = start();
    let client = sidecar.client();
    stub.answer(Reply::Bytes(b"*3\r\n:-1\r\n:1700000000000000\r\n:0\r\n".to_vec()));
    for n in 1..=3 {
        let answer = client.check(&Check::of("ada"));
        assert_eq!((answer.outcome(), answer.metadata("reason").as_str()), (Outcome::Failed, "late"));
        assert_eq!(stub.asked(), 2 * n);
    }
}

// RL-20: no answer proves nothing either.
#[test]
fn a_check_that_gets_no_answer_is_sent_once() {
    let stub = Stub::start();
    let sidecar = Setup::redis(stub.port()).policy("orders", 5, "60s", "closed").start();
    stub.answer(Reply::Silence);
    let answer = sidecar.client().check(&Check::of("ada"));
    assert_eq!((answer.outcome(), answer.metadata("reason").as_str()), (Outcome::Failed, "timeout"));
    assert_eq!(stub.asked(), 1);
    assert_eq!(sidecar.metrics().store_errors("timeout"), 1);
}

// RL-22: what nobody asked for answers nobody.
#[test]
fn a_message_that_the_server_pushes_is_not_taken_for_an_answer() {
    let (stub, sidecar) = start();
    let client = sidecar.client();
    let pushed = format!(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n${}\r\n{CANARY}\r\n", CANARY.len());
    stub.answer(Reply::Bytes([pushed.into_bytes(), b"-OOM full\r\n".to_vec()].concat()));
    for _ in 0..3 {
        let answer = client.check(&Check::of("ada"));
        assert_eq!((answer.outcome(), answer.metadata("reason").as_str()), (Outcome::Failed, "oom"));
    }
    assert_eq!(stub.accepted(), 1);
}

#[test]
fn an_answer_that_arrives_byte_by_byte_is_an_answer() {
    let (stub, sidecar) = start();
    let client = sidecar.client();
    stub.answer(Reply::AdmitByteByByte);
    for _ in 0..5 {
        assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
    }
}
