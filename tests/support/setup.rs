//! The configuration that a test gives to a sidecar: short where the test does not care, its own text where it does.

use std::fmt::Write;
use std::path::Path;

use super::policy::Policy;
use super::sidecar::Sidecar;

/// The HMAC secret of every sidecar in the tests.
pub const SECRET: &str = "an HMAC secret for tests, 32+ bytes";

/// Identity from the route alone: what most tests use, since a check request can name it directly.
const ROUTE_IDENTITY: &str = "
  tenant: [{ route: tenant }]
  subject: [{ route: subject }]";

#[derive(Clone)]
pub struct Setup {
    listen: String,
    tls: String,
    store: String,
    identity: String,
    policies: String,
    more: String,
}

impl Setup {
    /// Counters in the Redis on this loopback port.
    pub fn redis(port: u16) -> Self {
        Self::store(&format!("{{ redis: {{ url: 'redis://127.0.0.1:{port}' }} }}"))
    }

    /// The same for tests that send crowds: exactness must not depend on how fast this machine serves them.
    pub fn patient(port: u16) -> Self {
        let redis = format!("url: 'redis://127.0.0.1:{port}', connect_timeout: 5s, command_timeout: 5s");
        Self::store(&format!("{{ redis: {{ {redis} }} }}\ndecision_budget: 10s"))
    }

    /// Counters in the sidecar's own memory.
    pub fn memory() -> Self {
        Self::store("{ memory: {} }")
    }

    /// Counters where this YAML says.
    pub fn store(yaml: &str) -> Self {
        Self {
            listen: "127.0.0.1:0".into(),
            tls: String::new(),
            store: yaml.into(),
            identity: ROUTE_IDENTITY.into(),
            policies: String::new(),
            more: String::new(),
        }
    }

    /// Where the gRPC service listens, in place of any free loopback port.
    pub fn listen(mut self, address: &str) -> Self {
        self.listen = address.into();
        self
    }

    /// TLS for the gRPC service, with these settings.
    pub fn tls(mut self, yaml: &str) -> Self {
        self.tls = format!(", tls: {{ {yaml} }}");
        self
    }

    /// The `identity` section, in place of tenant and subject from the route.
    pub fn identity(mut self, yaml: &str) -> Self {
        self.identity = yaml.into();
        self
    }

    /// One more policy: `limit` a `window` for each tenant and subject, below the path `/name`.
    pub fn policy(self, name: &str, limit: u64, window: &str, on_failure: &str) -> Self {
        self.policy_per(name, "[tenant, subject]", limit, window, on_failure)
    }

    /// The same, counted per the given parts.
    pub fn policy_per(mut self, name: &str, per: &str, limit: u64, window: &str, on_failure: &str) -> Self {
        let written = write!(
            self.policies,
            "
  - name: {name}
    version: 1
    match: {{ path: {{ prefix: /{name} }} }}
    limits:
      - name: only
        per: {per}
        fixed_window: {{ limit: {limit}, window: {window} }}
    on_failure: {on_failure}"
        );
        written.expect("a string takes any text");
        self
    }

    /// One more policy.
    pub fn with(self, policy: &Policy) -> Self {
        self.policies(&policy.text())
    }

    /// Policies as written, each an item of the list.
    pub fn policies(mut self, yaml: &str) -> Self {
        self.policies.push_str(yaml);
        self
    }

    /// Further top-level YAML.
    pub fn more(mut self, yaml: &str) -> Self {
        self.more = yaml.into();
        self
    }

    /// The whole file, with the secret at `secret`.
    pub fn text(&self, secret: &Path) -> String {
        let Self { listen, tls, store, identity, policies, more } = self;
        let secret = secret.display();
        format!(
            "server: {{ listen: '{listen}'{tls} }}
admin: {{ listen: '127.0.0.1:0' }}
hmac: {{ secret_file: '{secret}' }}
store: {store}
identity:{identity}
policies:{policies}
{more}
"
        )
    }

    /// A sidecar with this configuration that has reached its store.
    #[track_caller]
    pub fn start(&self) -> Sidecar {
        let sidecar = self.start_without_store();
        sidecar.wait_for_store();
        sidecar
    }

    /// A sidecar with this configuration, whatever its store does.
    #[track_caller]
    pub fn start_without_store(&self) -> Sidecar {
        Sidecar::start(self)
    }
}
