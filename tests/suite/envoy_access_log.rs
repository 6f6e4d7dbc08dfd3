//! The access log of the shipped Envoy configuration: for each kind of outcome, which fields say what was decided.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::envoy::Envoy;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::stack::{IDENTITY, USER};
use crate::support::upstream::Upstream;
use crate::support::wait::wait_for;

const POLICIES: &str = "
  - name: watched
    version: 1
    match: { path: { prefix: /watched } }
    mode: shadow
    limits: [{ name: only, per: [tenant, subject], fixed_window: { limit: 1, window: 60s } }]
    on_failure: closed
  - name: mixed
    version: 1
    match: { path: { prefix: /mixed } }
    limits:
      - { name: enforced, per: [tenant, subject], fixed_window: { limit: 9, window: 60s } }
      - { name: new, per: [tenant, subject], mode: shadow, fixed_window: { limit: 1, window: 60s } }
    on_failure: closed
  - name: switched-off
    version: 1
    match: { path: { prefix: /switched-off } }
    mode: off
    limits: [{ name: only, per: [tenant, subject], fixed_window: { limit: 1, window: 60s } }]
    on_failure: closed";
const OPEN: &str = "{ open: { per: [tenant, subject], fixed_window: { limit: 1, window: 60s } } }";

struct Logged {
    envoy: Envoy,
    lines: usize,
}

impl Logged {
    fn get(&mut self, path: &str, user: Option<&str>) -> (Value, Value) {
        let headers: Vec<_> = user.map(|user| (USER, user)).into_iter().collect();
        self.request(path, &headers)
    }

    /// Sends a GET, and returns what its line of the log has from Envoy (code, flags, gRPC status) and from Tallygate.
    fn request(&mut self, path: &str, headers: &[(&str, &str)]) -> (Value, Value) {
        self.envoy.get(path, headers);
        self.lines += 1;
        let count = || self.envoy.access_log().matches('\n').count();
        wait_for("a line of the access log", Duration::from_secs(5), || count() == self.lines);
        let log = self.envoy.access_log();
        let line: Value = serde_json::from_str(log.lines().last().unwrap()).expect("JSON");
        let mut ours = line["tallygate"].clone();
        if let Some(fields) = ours.as_object_mut() {
            // Envoy's own, of what it let pass: how long the check took.
            fields.remove("ext_authz_duration");
            // A wait depends on the moment.
            if let Some(wait) = fields.get("retry_after").and_then(Value::as_f64) {
                assert!((1.0..=60.0).contains(&wait) && wait.fract() == 0.0, "{line}");
                fields.insert("retry_after".into(), json!("seconds"));
            }
        }
        (json!([line["code"], line["flags"], line["grpc_status"]]), ours)
    }
}

#[test]
fn every_outcome_is_told_with_all_that_belongs_to_it() {
    let mut redis = RedisServer::start();
    let application = Upstream::start();
    let setup = Setup::redis(redis.port()).identity(IDENTITY).policy("orders", 1, "60s", "closed");
    let setup = setup.policy("catalog", 1, "60s", OPEN).policies(POLICIES).more("unmatched: deny");
    let sidecar = setup.start();
    let mut logged = Logged { envoy: Envoy::shipped(sidecar.port(), application.port()), lines: 0 };

    let passed = json!([200, "-", null]);
    let refused = |code| json!([code, "UAEX", null]);
    let ada = Some("ada");
    let counted = |verdict: &str| json!({ "policy": "orders", "mode": "enforce", "verdict": verdict, "limit": "only", "remaining": 0 });
    let with = |mut object: Value, more: Value| {
        object.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        object
    };
    let wait = json!({ "retry_after": "seconds" });
    assert_eq!(logged.get("/orders", ada), (passed.clone(), counted("allowed")));
    assert_eq!(logged.get("/orders", ada), (refused(429), with(counted("denied"), wait.clone())));
    let grpc = logged.request("/orders", &[(USER, "ada"), ("content-type", "application/grpc")]);
    assert_eq!(grpc, (json!([200, "UAEX", "ResourceExhausted"]), with(counted("denied"), wait.clone())));
    let missing = json!({ "policy": "orders", "mode": "enforce", "verdict": "unidentified",
        "reason": "absent", "missing": "subject" });
    assert_eq!(logged.get("/orders", None), (refused(401), missing));
    assert_eq!(logged.get("/elsewhere", ada), (refused(403), json!({ "verdict": "unmatched" })));
    assert_eq!(logged.get("/orders%zz", ada), (refused(403), json!({ "verdict": "ambiguous_path" })));

    let watched = json!({ "policy": "watched", "mode": "shadow" });
    assert_eq!(logged.get("/watched", ada), (passed.clone(), with(counted("allowed"), watched.clone())));
    let would_be = with(with(counted("denied"), wait), watched);
    assert_eq!(logged.get("/watched", ada), (passed.clone(), would_be));
    assert_eq!(logged.get("/mixed", ada).1["shadow_denied"], Value::Null);
    let mixed = json!({ "policy": "mixed", "mode": "enforce", "verdict": "allowed", "limit": "enforced",
        "remaining": 7, "shadow_denied": "new" });
    assert_eq!(logged.get("/mixed", ada), (passed.clone(), mixed));
    let off = json!({ "policy": "switched-off", "mode": "off", "verdict": "allowed" });
    assert_eq!(logged.get("/switched-off", ada), (passed.clone(), off));

    redis.kill9();
    wait_for("the outage to be known", Duration::from_secs(5), || {
        sidecar.metrics().count("tallygate_store_up", &[]) == 0
    });
    let failed = json!({ "policy": "orders", "mode": "enforce", "verdict": "failed",
        "reason": "disconnected", "failure_mode": "closed" });
    assert_eq!(logged.get("/orders", ada), (refused(503), failed));
    let open = json!({ "policy": "catalog", "reason": "disconnected", "failure_mode": "open" });
    let local = with(counted("allowed"), open);
    let local = with(local, json!({ "limit": "local" }));
    assert_eq!(logged.get("/catalog", ada), (passed, local));

    drop(sidecar);
    assert_eq!(logged.get("/orders", ada), (refused(503), Value::Null), "nobody decided");
}
