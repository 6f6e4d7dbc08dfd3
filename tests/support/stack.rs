//! Everything at once, as shipped: client, Envoy, Tallygate, Redis, application.

use super::envoy::Envoy;
use super::http::Response;
use super::redis::RedisServer;
use super::setup::Setup;
use super::sidecar::Sidecar;
use super::upstream::Upstream;

/// The header that names the subject. In these tests the client plays the filter that would set it.
pub const USER: &str = "x-user";

pub const IDENTITY: &str = "
  tenant: [{ route: tenant }]
  subject: [{ header: { name: x-user, trusted_because: 'the test stands for the filter that sets it' } }]";

pub struct Stack {
    pub redis: RedisServer,
    pub upstream: Upstream,
    pub envoy: Envoy,
    sidecar: Option<Sidecar>,
}

impl Stack {
    /// Policy `orders` is closed, policy `catalog` fails as `catalog` says; both allow `limit` a minute to each
    /// subject.
    #[track_caller]
    pub fn start(limit: u64, catalog: &str) -> Self {
        Self::start_with(limit, catalog, Upstream::start())
    }

    /// The same in front of an application of the test's own.
    #[track_caller]
    pub fn start_with(limit: u64, catalog: &str, application: Upstream) -> Self {
        let setup = |port| {
            let setup = Setup::redis(port).identity(IDENTITY).policy("orders", limit, "60s", "closed");
            setup.policy("catalog", limit, "60s", catalog)
        };
        Self::assemble(setup, application)
    }

    /// One policy, `orders`, that counts by the tenant alone, which the route names.
    #[track_caller]
    pub fn start_per_tenant(limit: u64) -> Self {
        let setup = |port| Setup::redis(port).policy_per("orders", "[tenant]", limit, "60s", "closed");
        Self::assemble(setup, Upstream::start())
    }

    #[track_caller]
    fn assemble(setup: impl Fn(u16) -> Setup, upstream: Upstream) -> Self {
        let redis = RedisServer::start();
        let sidecar = setup(redis.port()).start();
        let envoy = Envoy::shipped(sidecar.port(), upstream.port());
        Self { redis, upstream, envoy, sidecar: Some(sidecar) }
    }

    /// A request of `subject` under the closed policy.
    #[track_caller]
    pub fn orders(&self, subject: &str) -> Response {
        self.envoy.get("/orders", &[(USER, subject)])
    }

    /// A request of `subject` under the other policy.
    #[track_caller]
    pub fn catalog(&self, subject: &str) -> Response {
        self.envoy.get("/catalog", &[(USER, subject)])
    }

    /// Ends Tallygate without a word.
    pub fn kill_sidecar(&mut self) {
        self.sidecar = None;
    }
}
