//! A closed loop of checks over one connection, and what it cost whom.

use std::fs;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::auth::v3::CheckRequest;
use envoy_types::pb::envoy::service::auth::v3::authorization_client::AuthorizationClient;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime"));

/// One batch of checks.
pub struct Batch {
    /// Of the process that was asked, per check, in microseconds.
    pub cpu_us: f64,
    pub redis_cpu_us: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// By which protocol somebody is asked.
#[derive(Clone)]
pub enum Peer {
    ExtAuthz(AuthorizationClient<Channel>),
    RateLimit(RateLimitServiceClient<Channel>),
}

/// A question in the peer's own protocol.
#[derive(Clone)]
pub enum Question {
    Check(Box<CheckRequest>),
    RateLimit(RateLimitRequest),
}

impl Peer {
    pub fn ext_authz(port: u16) -> Self {
        Self::ExtAuthz(AuthorizationClient::new(connect(port)))
    }

    pub fn rate_limit(port: u16) -> Self {
        Self::RateLimit(RateLimitServiceClient::new(connect(port)))
    }

    /// Whether the answer lets the request pass.
    async fn allows(&mut self, question: Question) -> bool {
        match (self, question) {
            (Self::ExtAuthz(client), Question::Check(check)) => {
                let answer = client.check(*check).await.expect("an answer").into_inner();
                answer.status.is_some_and(|status| status.code == 0)
            }
            (Self::RateLimit(client), Question::RateLimit(request)) => {
                // RateLimitResponse.Code: OK = 1, OVER_LIMIT = 2.
                client.should_rate_limit(request).await.expect("an answer").into_inner().overall_code == 1
            }
            _ => panic!("a question of another protocol"),
        }
    }
}

fn connect(port: u16) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("an address");
    RUNTIME.block_on(endpoint.connect()).expect("a server that listens")
}

/// Asks `questions` again and again, `checks` times in all and `at_once` at a time. Each answer must be `allowed`.
pub fn run(peer: &Peer, questions: &[Question], allowed: bool, checks: usize, at_once: usize) -> Vec<Duration> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let asked: Vec<_> = (0..at_once)
        .map(|_| {
            let (mut peer, questions) = (peer.clone(), questions.to_vec());
            RUNTIME.spawn(async move {
                let mut took = Vec::with_capacity(checks / at_once);
                for _ in 0..checks / at_once {
                    let question = questions[NEXT.fetch_add(1, Ordering::Relaxed) % questions.len()].clone();
                    let start = Instant::now();
                    assert_eq!(peer.allows(question).await, allowed, "another answer than the one that is measured");
                    took.push(start.elapsed());
                }
                took
            })
        })
        .collect();
    asked.into_iter().flat_map(|task| RUNTIME.block_on(task).expect("every answer is the right one")).collect()
}

/// Asks each question so many times, whatever the answers.
pub fn ask_each(peer: &Peer, questions: &[Question], times: usize) {
    let mut peer = peer.clone();
    RUNTIME.block_on(async {
        for question in questions {
            for _ in 0..times {
                peer.allows(question.clone()).await;
            }
        }
    });
}

/// Measures such a run.
pub fn measure(pids: (u32, Option<u32>), run: impl FnOnce() -> Vec<Duration>) -> Batch {
    let redis = |pid: Option<u32>| pid.map_or(0.0, cpu_us);
    let before = (cpu_us(pids.0), redis(pids.1));
    let mut took = run();
    let after = (cpu_us(pids.0), redis(pids.1));
    took.sort_unstable();
    let per_check = |from: f64, to: f64| (to - from) / took.len() as f64;
    let at = |share: f64| took[(took.len() as f64 * share) as usize].as_secs_f64() * 1e3;
    Batch {
        cpu_us: per_check(before.0, after.0),
        redis_cpu_us: per_check(before.1, after.1),
        p50_ms: at(0.5),
        p99_ms: at(0.99),
    }
}

/// What the kernel accounted to the threads of a process so far, in microseconds.
fn cpu_us(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a process that runs");
    let nanos = tasks.map(|task| {
        let text = fs::read_to_string(task.expect("a thread").path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|text| text.parse::<f64>().ok()).unwrap_or_default()
    });
    nanos.sum::<f64>() / 1e3
}
