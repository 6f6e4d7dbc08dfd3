//! Whatever a server answers, nobody waits beyond the budget for it.

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::odd_replies;
use crate::support::setup::Setup;
use crate::support::stub::{Reply, Stub};
use crate::timing::load::BUDGET;
use crate::timing::stall::StallProbe;

// RL-27
#[test]
fn no_reply_of_a_server_holds_a_check_up_beyond_its_budget() {
    let stall = StallProbe::start();
    let stub = Stub::start();
    let sidecar = Setup::redis(stub.port()).policy("orders", 5, "60s", "closed").start();
    let client = sidecar.client();
    for odd in odd_replies::errors().into_iter().chain(odd_replies::shapes()) {
        stub.answer(Reply::Bytes(odd.bytes));
        for _ in 0..3 {
            let answer = client.check(&Check::of("ada"));
            assert_eq!(answer.outcome(), Outcome::Failed, "{}", odd.name);
            let bound = stall.bound(BUDGET);
            assert!(answer.took <= bound, "{} took {:?}, more than {bound:?}", odd.name, answer.took);
        }
    }
}
