//! The ext_authz service: translate, decide, translate back.
//!
//! `request` is the only reader of Envoy's request types, [`response`] the only place where a status code is chosen, and
//! [`guard`] stands around both, so that whatever goes wrong in here is an explicit answer with gRPC status OK.

pub mod guard;
pub mod request;
pub mod response;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use envoy_types::pb::envoy::service::auth::v3::authorization_server::{Authorization, AuthorizationServer};
use envoy_types::pb::envoy::service::auth::v3::{CheckRequest, CheckResponse};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use self::response::Answers;
use crate::limiter::Limiter;
use crate::store::clock;
use crate::telemetry::metrics::Metrics;

/// What Envoy's `grpc-timeout` keeps for the way back: our answer must be there before Envoy gives up.
const WAY_BACK: Duration = Duration::from_millis(15);

/// The settings of this room; a reload swaps them whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthzSettings {
    /// The longest that a decision may take.
    pub decision_budget: Duration,
    pub answers: Answers,
}

/// The service behind `envoy.service.auth.v3.Authorization`.
pub struct Authz {
    limiter: Arc<Limiter>,
    settings: Arc<ArcSwap<AuthzSettings>>,
    metrics: Arc<Metrics>,
}

/// The largest CheckRequest that is read. Envoy's headers are far below it; only forwarded bodies, which we never ask
/// for, come near.
const MAX_MESSAGE: usize = 1024 * 1024;

/// The service, ready to be served; `guard` belongs around it.
pub fn service(
    limiter: Arc<Limiter>,
    settings: Arc<ArcSwap<AuthzSettings>>,
    metrics: Arc<Metrics>,
) -> AuthorizationServer<Authz> {
    let authz = Authz { limiter, settings, metrics };
    AuthorizationServer::new(authz).max_decoding_message_size(MAX_MESSAGE)
}

#[tonic::async_trait]
impl Authorization for Authz {
    async fn check(&self, call: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        let arrived = clock::now();
        let settings = self.settings.load_full();
        let budget = budget(settings.decision_budget, call.metadata());
        let (metadata, _, message) = call.into_parts();
        let view = request::View::of(&message, &metadata);
        let attributes = view.attributes();
        let rules = self.limiter.rules();
        let decision = self.limiter.check(&rules, &attributes, arrived + budget).await;
        self.metrics.decided(&decision, clock::now() - arrived);
        Ok(Response::new(response::answer(&decision, view.caller(), &settings.answers)))
    }
}

/// The smaller of the configured budget and what the caller's deadline leaves.
fn budget(configured: Duration, metadata: &MetadataMap) -> Duration {
    let timeout = metadata.get("grpc-timeout").and_then(|value| grpc_timeout(value.to_str().ok()?));
    timeout.map_or(configured, |timeout| configured.min(timeout.saturating_sub(WAY_BACK)))
}

/// The header's value (gRPC over HTTP/2): at most eight digits and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_the_smaller_of_ours_and_envoys() {
        let ours = Duration::from_millis(250);
        let with = |timeout: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", timeout.parse().unwrap());
            budget(ours, &metadata)
        };
        assert_eq!(budget(ours, &MetadataMap::new()), ours);
        assert_eq!(with("400m"), ours);
        assert_eq!(with("200m"), Duration::from_millis(185));
        assert_eq!(with("50000u"), Duration::from_millis(35));
        assert_eq!(with("10m"), Duration::ZERO);
        assert_eq!(with("1S"), ours);
        for odd in ["", "m", "123456789m", "-1m", "1x", "1.5S"] {
            assert_eq!(with(odd), ours, "{odd:?}");
        }
    }
}
