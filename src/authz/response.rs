//! Verdict → CheckResponse: the only place where a status code is chosen.
//!
//! Envoy takes a reply without a status, or with status 0 beside a denial, as *allowed*. So one function makes every
//! reply, and sets status and body together. Every header overwrites, has one entry, and is checked.

mod headers;
mod metadata;

use envoy_types::pb::envoy::config::core::v3::HeaderValueOption;
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use envoy_types::pb::envoy::service::auth::v3::{CheckResponse, DeniedHttpResponse, OkHttpResponse};
use envoy_types::pb::envoy::r#type::v3::HttpStatus;
use envoy_types::pb::google::rpc::Status;

use self::headers::HeaderList;
use crate::decision::limit::Mode;
use crate::decision::policy::{Answer, DenyStatus, OnFailure, OnUnidentified};
use crate::decision::verdict::{Decision, FailureClass, RetryAfter, Verdict};

/// gRPC status codes (google.rpc.Code), as ext_authz reads them: 0 allows, anything else does not.
mod code {
    pub const OK: i32 = 0;
    pub const PERMISSION_DENIED: i32 = 7;
    pub const RESOURCE_EXHAUSTED: i32 = 8;
    pub const UNAVAILABLE: i32 = 14;
    pub const UNAUTHENTICATED: i32 = 16;
}

/// What the operator may choose about answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answers {
    pub ratelimit_fields: RateLimitFields,
    /// Whether a 503 carries `x-envoy-ratelimited`, which keeps an Envoy in front from repeating the check.
    pub stop_retries_on_failure: bool,
}

impl Default for Answers {
    fn default() -> Self {
        Self { ratelimit_fields: RateLimitFields::OnDenied, stop_retries_on_failure: true }
    }
}

/// When a response carries the RateLimit fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateLimitFields {
    Never,
    OnDenied,
    Always,
}

/// Who gets the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    Http,
    /// Envoy makes a gRPC reply of ours; without a status of our own it would say UNAVAILABLE, which clients repeat.
    Grpc,
}

/// The one function that makes a reply.
pub fn answer(decision: &Decision<'_>, caller: Caller, answers: &Answers) -> CheckResponse {
    let (code, http) = match &decision.verdict {
        // A policy that only watches answers everything as allowed; metadata and metrics tell what would have been.
        _ if decision.mode() != Mode::Enforce => allowed(HeaderList::default()),
        Verdict::Allowed(quota) => {
            let mut headers = HeaderList::default();
            if answers.ratelimit_fields == RateLimitFields::Always {
                headers.ratelimit_fields(quota.as_ref());
            }
            allowed(headers)
        }
        Verdict::Unmatched(Answer::Allow) => allowed(HeaderList::default()),
        Verdict::Denied(quota) => {
            let mut headers = HeaderList::default();
            let wait = quota.retry_after();
            if let Some(wait) = wait {
                headers.set("retry-after", wait.seconds().to_string());
            }
            headers.set("x-envoy-ratelimited", "true");
            if answers.ratelimit_fields != RateLimitFields::Never {
                headers.ratelimit_fields(Some(quota));
            }
            if caller == Caller::Grpc {
                headers.set("grpc-status", code::RESOURCE_EXHAUSTED.to_string());
            }
            let body = match wait {
                Some(wait) => format!("rate limit exceeded: retry after {} s\n", wait.seconds()),
                None => "rate limit exceeded: this request can never pass\n".to_owned(),
            };
            denied(code::RESOURCE_EXHAUSTED, 429, headers, body)
        }
        Verdict::Unidentified(_) => match decision.policy.map(|policy| &policy.on_unidentified) {
            Some(OnUnidentified::Deny(DenyStatus::Forbidden)) => forbidden("no verified identity\n"),
            _ => denied(code::UNAUTHENTICATED, 401, HeaderList::default(), "no verified identity\n".to_owned()),
        },
        Verdict::Unmatched(Answer::Deny) => forbidden("no policy allows this request\n"),
        Verdict::AmbiguousPath => forbidden("the path can be read in two ways\n"),
        Verdict::Failed(_) => {
            let to_envoy = decision.policy.is_some_and(|policy| matches!(policy.on_failure, OnFailure::Envoy));
            failed(to_envoy, answers)
        }
    };
    CheckResponse {
        status: Some(Status { code, ..Default::default() }),
        dynamic_metadata: Some(metadata::of(decision)),
        http_response: Some(http),
    }
}

/// The reply where there is no decision to speak of: an undecodable or oversize request, a panic.
pub fn failed_without_decision(class: FailureClass) -> CheckResponse {
    answer(&Decision::without_policy(Verdict::Failed(class)), Caller::Http, &Answers::default())
}

fn allowed(headers: HeaderList) -> (i32, HttpResponse) {
    let response_headers_to_add = headers.into_options();
    (code::OK, HttpResponse::OkResponse(OkHttpResponse { response_headers_to_add, ..Default::default() }))
}

fn forbidden(body: &str) -> (i32, HttpResponse) {
    denied(code::PERMISSION_DENIED, 403, HeaderList::default(), body.to_owned())
}

fn denied(code: i32, status: i32, headers: HeaderList, body: String) -> (i32, HttpResponse) {
    (code, HttpResponse::DeniedResponse(response(status, headers.into_options(), body)))
}

/// 503. As a denial it is final; as an error Envoy's own `failure_mode_allow` decides (Envoy 1.37).
fn failed(to_envoy: bool, answers: &Answers) -> (i32, HttpResponse) {
    let mut headers = HeaderList::default();
    headers.set("retry-after", RetryAfter::SOON.seconds().to_string());
    if answers.stop_retries_on_failure {
        headers.set("x-envoy-ratelimited", "true");
    }
    let response = response(503, headers.into_options(), "the rate limiter cannot decide at the moment\n".to_owned());
    let http = if to_envoy { HttpResponse::ErrorResponse(response) } else { HttpResponse::DeniedResponse(response) };
    (code::UNAVAILABLE, http)
}

fn response(status: i32, headers: Vec<HeaderValueOption>, body: String) -> DeniedHttpResponse {
    DeniedHttpResponse { status: Some(HttpStatus { code: status }), headers, body }
}

#[cfg(test)]
mod tests;
