//! Several sidecars, each over several connections, and one Redis: what passes in total is what one rule alone would let
//! pass (P1), for every algorithm.

use std::thread;
use std::time::Duration;

use crate::support::answer::{Answer, Outcome, count};
use crate::support::check::Check;
use crate::support::grpc::Client;
use crate::support::keys::{self, Scope, acme};
use crate::support::policy::{Policy, Rule};
use crate::support::redis::RedisServer;
use crate::support::resp::Value;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

const HOUR_MS: u64 = 3_600_000;
const A_TEST_MS: u64 = 30_000;
const LIMIT: u64 = 50;

/// One policy for each algorithm: fifty at once, and none of them again within the hour.
fn setup(redis: &RedisServer, more: &str) -> Setup {
    let with = |setup: Setup, rule: &Rule| setup.with(&Policy::only(rule.name, &rule.yaml).more(more));
    Rule::all(LIMIT, HOUR_MS).iter().fold(Setup::patient(redis.port()), with)
}

/// `connections` to each of these sidecars.
fn clients<'s>(sidecars: impl IntoIterator<Item = &'s Sidecar>, connections: usize) -> Vec<Client> {
    sidecars.into_iter().flat_map(|sidecar| (0..connections).map(|_| sidecar.client())).collect()
}

/// Sends all of `checks` over each of these connections at once.
fn crowd(clients: &[Client], checks: &[Check]) -> Vec<Answer> {
    thread::scope(|scope| {
        let all: Vec<_> = clients.iter().map(|client| scope.spawn(|| client.check_all(checks))).collect();
        all.into_iter().flat_map(|answers| answers.join().unwrap()).collect()
    })
}

fn key(rule: &Rule, subject: &str) -> String {
    keys::lone(Scope { policy: rule.name, version: 1, shape: &rule.shape }, &acme(subject))
}

fn check(rule: &Rule, subject: &str) -> Check {
    Check::of(subject).path(&format!("/{}", rule.name))
}

#[test]
fn of_a_crowd_over_three_sidecars_exactly_the_limit_passes() {
    let redis = RedisServer::start();
    let sidecars = [(); 3].map(|()| setup(&redis, "").start());
    let clients = clients(&sidecars, 2);
    redis.away_from_edge(HOUR_MS, A_TEST_MS);
    for rule in Rule::all(LIMIT, HOUR_MS) {
        for subject in ["ada", "grace", "edsger"] {
            let answers = crowd(&clients, &vec![check(&rule, subject); 40]);
            assert_eq!(count(&answers, Outcome::Allowed), 50, "{}, {subject}", rule.name);
            assert_eq!(count(&answers, Outcome::Limited), 190, "{}, {subject}", rule.name);
            assert_eq!(rule.units(&redis, &key(&rule, subject)), LIMIT, "{}, {subject}", rule.name);
        }
    }
}

// Whatever order they come in: with requests of one unit among them, the last unit is taken too.
#[test]
fn mixed_costs_fill_the_limit_to_its_last_unit_and_not_above() {
    let redis = RedisServer::start();
    let cost = "cost: { route: cost, max: 3 }";
    let sidecars = [(); 3].map(|()| setup(&redis, cost).start());
    let clients = clients(&sidecars, 2);
    redis.away_from_edge(HOUR_MS, A_TEST_MS);
    for rule in Rule::all(LIMIT, HOUR_MS) {
        for subject in ["ada", "grace", "edsger"] {
            let costs: Vec<u64> = (0..30).map(|n| 1 + n % 3).collect();
            let checks = costs.iter().map(|cost| check(&rule, subject).route("cost", &cost.to_string()));
            let answers = crowd(&clients, &checks.collect::<Vec<_>>());
            let passed =
                answers.iter().zip(costs.iter().cycle()).filter(|(answer, _)| answer.outcome() == Outcome::Allowed);
            assert_eq!(passed.map(|(_, cost)| cost).sum::<u64>(), LIMIT, "{}, {subject}", rule.name);
            assert_eq!(count(&answers, Outcome::Failed), 0, "{}, {subject}", rule.name);
            assert_eq!(rule.units(&redis, &key(&rule, subject)), LIMIT, "{}, {subject}", rule.name);
        }
    }
}

/// The members of a log and their scores, in order.
#[track_caller]
fn members(redis: &RedisServer, key: &str) -> Vec<(String, String)> {
    let Value::Array(items) = redis.run(&["ZRANGE", key, "0", "-1", "WITHSCORES"]) else { panic!("a list") };
    items.chunks(2).map(|pair| (pair[0].text(), pair[1].text())).collect()
}

// RL-06
#[test]
fn a_log_counts_every_request_of_one_instant() {
    let redis = RedisServer::start();
    let rule = Rule::new("sliding-log", LIMIT, 10_000);
    let setup = Setup::patient(redis.port()).with(&Policy::only(rule.name, &rule.yaml));
    let sidecars = [(); 2].map(|()| setup.start());
    let clients = clients(&sidecars, 1);
    for n in 0..20 {
        let subject = format!("subject-{n}");
        let answers = crowd(&clients, &vec![check(&rule, &subject); 100]);
        assert_eq!(count(&answers, Outcome::Allowed), 50, "{subject}");
        let members = members(&redis, &key(&rule, &subject));
        assert_eq!(members.len(), 50, "{subject}");
        for pair in members.windows(2) {
            assert!(pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1, "labels rise, scores never fall: {pair:?}");
        }
    }
}

// RL-06: nothing that a process keeps in its memory tells units apart.
#[test]
fn a_sidecar_that_restarts_half_way_through_a_burst_loses_no_unit() {
    let redis = RedisServer::start();
    let setup = setup(&redis, "");
    let steady = setup.start();
    redis.away_from_edge(HOUR_MS, A_TEST_MS);
    for rule in Rule::all(LIMIT, HOUR_MS) {
        let mut restarted = setup.start();
        let ada = check(&rule, "ada");
        let mut answers = crowd(&clients([&steady, &restarted], 2), &vec![ada.clone(); 5]);
        answers.extend(thread::scope(|scope| {
            let meanwhile = scope.spawn(|| steady.client().check_times(&ada, 5));
            restarted.sigterm();
            restarted.wait_exit(Duration::from_secs(10));
            restarted = setup.start();
            meanwhile.join().unwrap()
        }));
        assert_eq!(count(&answers, Outcome::Allowed), 25, "{}", rule.name);
        answers.extend(crowd(&clients([&steady, &restarted], 2), &vec![ada; 40]));
        assert_eq!(count(&answers, Outcome::Allowed), 50, "{}", rule.name);
        assert_eq!(count(&answers, Outcome::Failed), 0, "{}", rule.name);
        assert_eq!(rule.units(&redis, &key(&rule, "ada")), LIMIT, "{}", rule.name);
    }
}
