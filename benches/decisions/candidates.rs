//! Who is asked: the floor, Tallygate with one policy each, and a peer where one is given.

use std::fs;
use std::process::Command;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use tempfile::TempDir;

use super::load::{Batch, Peer, Question, ask_each, measure, run};
use super::support::check::Check;
use super::support::ports;
use super::support::process::Process;
use super::support::redis::RedisServer;
use super::support::setup::Setup;
use super::support::sidecar::Sidecar;
use super::support::wait::{poll, wait_for};

/// Who asks, one after another.
const SUBJECTS: usize = 1000;
/// More than is ever asked, and a limit that is used up at once.
const MUCH: u64 = 1_000_000;
const LITTLE: u64 = 1;
const LOG_LIMIT: usize = 10;

/// Ends what was started when it is dropped.
enum Server {
    Floor { process: Process, _folder: TempDir },
    Tallygate { sidecar: Box<Sidecar>, redis: Option<RedisServer> },
    RateLimit { process: Process, redis: RedisServer, _folder: TempDir },
}

pub struct Candidate {
    pub name: &'static str,
    server: Server,
    peer: Peer,
    questions: Vec<Question>,
    allowed: bool,
}

impl Candidate {
    pub fn ask(&self, checks: usize, at_once: usize) -> Batch {
        measure((self.pid(), self.redis()), || run(&self.peer, &self.questions, self.allowed, checks, at_once))
    }

    /// Memory that the process holds.
    pub fn resident_mib(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a process that runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its resident memory");
        let kib: f64 = line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number");
        kib / 1024.0
    }

    /// Asks until every subject has got what there was, where refusals are to be measured.
    fn use_up(self) -> Self {
        if !self.allowed {
            ask_each(&self.peer, &self.questions, LOG_LIMIT);
        }
        self
    }

    fn pid(&self) -> u32 {
        match &self.server {
            Server::Floor { process, .. } | Server::RateLimit { process, .. } => process.pid(),
            Server::Tallygate { sidecar, .. } => sidecar.pid(),
        }
    }

    fn redis(&self) -> Option<u32> {
        match &self.server {
            Server::Floor { .. } => None,
            Server::Tallygate { redis, .. } => redis.as_ref().map(pid),
            Server::RateLimit { redis, .. } => Some(pid(redis)),
        }
    }
}

fn pid(redis: &RedisServer) -> u32 {
    redis.info("server", "process_id").try_into().expect("a process id")
}

pub fn all(ratelimit: Option<&str>) -> Vec<Candidate> {
    let window = |limit: u64| format!("fixed_window: {{ limit: {limit}, window: 1h }}");
    let four = [("a", "[tenant, subject]"), ("b", "[tenant, subject]"), ("c", "[tenant]"), ("d", "[]")];
    let four = four.map(|(name, per)| format!("{{ name: {name}, per: {per}, {} }}", window(MUCH))).join(", ");
    let one = |rule: &str| format!("{{ name: only, per: [tenant, subject], {rule} }}");
    let bucket = format!("token_bucket: {{ rate: {MUCH}, per: 1s, burst: {MUCH} }}");
    let smooth = format!("sliding_window: {{ limit: {MUCH}, window: 1h }}");
    let log = format!("sliding_log: {{ limit: {LOG_LIMIT}, window: 1h }}");
    let mut candidates = vec![
        floor(),
        tallygate("embedded store, allowed", false, &one(&window(MUCH)), true),
        tallygate("fixed window, allowed", true, &one(&window(MUCH)), true),
        tallygate("fixed window, refused", true, &one(&window(LITTLE)), false),
        tallygate("sliding window, allowed", true, &one(&smooth), true),
        tallygate("token bucket, allowed", true, &one(&bucket), true),
        tallygate("sliding log of 10, refused", true, &one(&log), false),
        tallygate("four fixed windows, allowed", true, &four, true),
    ];
    if let Some(binary) = ratelimit {
        candidates.push(rate_limit("envoyproxy/ratelimit, allowed", binary, MUCH, true));
        candidates.push(rate_limit("envoyproxy/ratelimit, refused", binary, LITTLE, false));
    }
    candidates
}

fn floor() -> Candidate {
    let dir = TempDir::with_prefix("tallygate-floor-").expect("a temporary folder");
    let file = dir.path().join("port");
    let program = std::env::current_exe().expect("this program");
    let process = Process::spawn(Command::new(program).arg("--floor").arg(&file));
    let port = poll(Duration::from_secs(20), || fs::read_to_string(&file).ok()?.parse().ok());
    let peer = Peer::ext_authz(port.expect("the floor says where it listens"));
    Candidate {
        name: "floor: gRPC alone",
        server: Server::Floor { process, _folder: dir },
        peer,
        questions: checks(),
        allowed: true,
    }
}

fn tallygate(name: &'static str, shared: bool, limits: &str, allowed: bool) -> Candidate {
    let redis = shared.then(RedisServer::start);
    let setup = redis.as_ref().map_or_else(Setup::memory, |redis| Setup::patient(redis.port()));
    let policy = format!(
        "
  - name: orders
    version: 1
    match: {{ path: {{ prefix: /orders }} }}
    limits: [{limits}]
    on_failure: closed"
    );
    let sidecar = setup.policies(&policy).start();
    let peer = Peer::ext_authz(sidecar.port());
    let server = Server::Tallygate { sidecar: Box::new(sidecar), redis };
    Candidate { name, server, peer, questions: checks(), allowed }.use_up()
}

fn rate_limit(name: &'static str, binary: &str, limit: u64, allowed: bool) -> Candidate {
    let redis = RedisServer::start();
    let dir = TempDir::with_prefix("tallygate-ratelimit-").expect("a temporary folder");
    let folder = dir.path().join("ratelimit/config");
    fs::create_dir_all(&folder).expect("a temporary folder");
    let config = format!(
        "domain: bench\ndescriptors:\n  - key: tenant\n    descriptors:\n      - key: subject\n        rate_limit: {{ unit: hour, \
         requests_per_unit: {limit} }}\n"
    );
    fs::write(folder.join("bench.yaml"), config).expect("a temporary file can be written");
    let ports = [(); 3].map(|()| ports::free());
    let mut command = Command::new(binary);
    let redis_url = format!("127.0.0.1:{}", redis.port());
    let (http, grpc, debug) = (ports[0].to_string(), ports[1].to_string(), ports[2].to_string());
    let settings = [
        ("RUNTIME_ROOT", dir.path().to_str().expect("a path in UTF-8")),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", &redis_url),
        ("USE_STATSD", "false"),
        ("LOG_LEVEL", "error"),
        ("HOST", "127.0.0.1"),
        ("PORT", &http),
        ("GRPC_HOST", "127.0.0.1"),
        ("GRPC_PORT", &grpc),
        ("DEBUG_HOST", "127.0.0.1"),
        ("DEBUG_PORT", &debug),
    ];
    let process = Process::spawn(command.envs(settings));
    wait_for("envoyproxy/ratelimit to listen", Duration::from_secs(20), || {
        std::net::TcpStream::connect(("127.0.0.1", ports[1])).is_ok()
    });
    let questions = (0..SUBJECTS).map(|n| Question::RateLimit(descriptor(n))).collect();
    let server = Server::RateLimit { process, redis, _folder: dir };
    Candidate { name, server, peer: Peer::rate_limit(ports[1]), questions, allowed }.use_up()
}

fn checks() -> Vec<Question> {
    (0..SUBJECTS).map(|n| Question::Check(Box::new(Check::of(&format!("subject-{n}")).build()))).collect()
}

fn descriptor(n: usize) -> RateLimitRequest {
    let entry = |key: &str, value: String| Entry { key: key.into(), value };
    let entries = vec![entry("tenant", "acme".into()), entry("subject", format!("subject-{n}"))];
    RateLimitRequest {
        domain: "bench".into(),
        descriptors: vec![RateLimitDescriptor { entries, ..Default::default() }],
        hits_addend: 1,
    }
}
