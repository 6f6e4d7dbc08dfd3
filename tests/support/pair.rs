//! A file of `envoy/` with the one of `envoy/tallygate/` that belongs to it, run together as their heads say.

use std::fs;

use super::envoy::{Envoy, substitute};
use super::http::Response;
use super::process::root;
use super::redis::RedisServer;
use super::sidecar::Sidecar;
use super::upstream::Upstream;

/// What the files allow in a minute, in place of their 100: a test gets there sooner.
pub const LIMIT: usize = 3;

/// A text and what an operator writes in its place.
pub type Edit<'a> = (&'a str, &'a str);

pub struct Pair {
    pub redis: RedisServer,
    pub application: Upstream,
    pub sidecar: Sidecar,
    pub envoy: Envoy,
}

impl Pair {
    #[track_caller]
    pub fn start(name: &str) -> Self {
        Self::edited(name, &[], &[])
    }

    /// With these edits of Envoy's file and of Tallygate's.
    #[track_caller]
    pub fn edited(name: &str, envoy: &[Edit<'_>], tallygate: &[Edit<'_>]) -> Self {
        let redis = RedisServer::start();
        let application = Upstream::start();
        let sidecar = sidecar(name, redis.port(), tallygate);
        let port = if sidecar.grpc().starts_with("unix:") { 0 } else { sidecar.port() };
        let envoy = Envoy::file(name, port, application.port(), envoy);
        Self { redis, application, sidecar, envoy }
    }

    /// The statuses of `n` requests, one after another.
    #[track_caller]
    pub fn statuses(&self, n: usize, path: &str, headers: &[(&str, &str)]) -> Vec<u16> {
        (0..n).map(|_| self.envoy.get(path, headers).status()).collect()
    }

    /// Uses up what is allowed, and a request more: its refusal.
    #[track_caller]
    pub fn exhaust(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        assert_eq!(self.statuses(LIMIT, path, headers), [200; LIMIT], "{path} {headers:?}");
        let refused = self.envoy.get(path, headers);
        assert_eq!(refused.status(), 429, "{path} {headers:?}");
        refused
    }
}

/// Tallygate with its file of this name, on this Redis.
#[track_caller]
pub fn sidecar(name: &str, redis: u16, edits: &[Edit<'_>]) -> Sidecar {
    let text = fs::read_to_string(root().join("envoy/tallygate").join(name)).expect("Tallygate's side");
    let sidecar = Sidecar::start_text(|secret| {
        let (secret, limit) = (secret.display().to_string(), format!("limit: {LIMIT},"));
        let url = format!("redis://127.0.0.1:{redis}");
        let places = [("/etc/tallygate/hmac.key", &*secret), ("redis://127.0.0.1:6379", &url), ("limit: 100,", &limit)];
        let server = if text.contains("\nserver:") { "" } else { "server: { listen: '127.0.0.1:0' }\n" };
        format!("{server}admin: {{ listen: '127.0.0.1:0' }}\n{}", substitute(&substitute(&text, &places), edits))
    });
    sidecar.wait_for_store();
    sidecar
}
