//! The outermost layer around Check: every gRPC error and every panic becomes the *Failed* answer, with status OK.
//!
//! Envoy treats a gRPC error as its own failure, and lets the request pass under `failure_mode_allow: true`. A denial is
//! final. So that a fail-closed policy holds, nothing but an answer may leave this process while it lives.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use envoy_types::pb::envoy::service::auth::v3::CheckResponse;
use futures_util::FutureExt;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use prost::Message;
use tonic::body::Body;
use tonic::codec::{EncodeBody, EncodeBuf, Encoder, SingleMessageCompressionOverride};
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::response;
use crate::decision::verdict::FailureClass;
use crate::store::clock;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::once::OncePerMinute;

/// The one method that is guarded; health and everything else answer for themselves.
const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

/// How many checks are being answered: what a drain waits for.
#[derive(Clone, Default)]
pub struct InFlight(Arc<AtomicUsize>);

/// One check being answered, until it is dropped.
struct Answering(InFlight);

impl InFlight {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    fn enter(&self) -> Answering {
        self.0.fetch_add(1, Ordering::AcqRel);
        Answering(self.clone())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Clone)]
pub struct GuardLayer {
    metrics: Arc<Metrics>,
    in_flight: InFlight,
    lines: Arc<OncePerMinute<FailureClass>>,
}

impl GuardLayer {
    pub fn new(metrics: Arc<Metrics>, in_flight: InFlight) -> Self {
        Self { metrics, in_flight, lines: Arc::new(OncePerMinute::new(FailureClass::ALL.len())) }
    }
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard { inner, around: self.clone() }
    }
}

#[derive(Clone)]
pub struct Guard<S> {
    inner: S,
    around: GuardLayer,
}

impl<S> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_check = request.uri().path() == CHECK;
        let answering = self.inner.call(request);
        if !is_check {
            return Box::pin(answering);
        }
        let GuardLayer { metrics, in_flight, lines } = self.around.clone();
        let answering_this = in_flight.enter();
        Box::pin(async move {
            let _until_answered = answering_this;
            let class = match AssertUnwindSafe(answering).catch_unwind().await {
                Ok(Ok(response)) => match Status::from_header_map(response.headers()) {
                    Some(status) if status.code() != Code::Ok => class_of(&status),
                    _ => return Ok(response),
                },
                Err(_) => FailureClass::Panic,
            };
            metrics.guarded(class);
            if lines.is_due(class, clock::now()) {
                tracing::error!(
                    class = class.as_str(),
                    remedy = remedy(class),
                    "checks cannot be decided and are answered as failed"
                );
            }
            Ok(encoded(response::failed_without_decision(class)))
        })
    }
}

/// Which of our ends a gRPC error came from. tonic answers these before the service is reached.
fn class_of(status: &Status) -> FailureClass {
    match status.code() {
        Code::OutOfRange => FailureClass::RequestTooLarge,
        Code::Internal | Code::InvalidArgument | Code::Unimplemented => FailureClass::Undecodable,
        _ => FailureClass::Other,
    }
}

/// What an operator does about it, for the log.
fn remedy(class: FailureClass) -> &'static str {
    match class {
        FailureClass::RequestTooLarge => "a check has more than 1 MiB: leave with_request_body out of Envoy's filter",
        FailureClass::Undecodable => "these bytes are no check of ext_authz v3: look at who calls this port",
        FailureClass::Panic => "a mistake of Tallygate's: report it, with the line that names its place",
        _ => "no check of ext_authz v3: look at who calls this port, or report it as a mistake of Tallygate's",
    }
}

/// A unary gRPC response with status OK.
fn encoded(reply: CheckResponse) -> Response<Body> {
    let message = tokio_stream::once(Ok::<_, Status>(reply));
    let body = EncodeBody::new_server(ReplyEncoder, message, None, SingleMessageCompressionOverride::Disable, None);
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

struct ReplyEncoder;

impl Encoder for ReplyEncoder {
    type Item = CheckResponse;
    type Error = Status;

    fn encode(&mut self, reply: CheckResponse, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        reply.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn guarded<F>(path: &str, inner: impl Fn() -> F) -> (Response<Body>, Arc<Metrics>)
    where
        F: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
    {
        let metrics = Arc::new(Metrics::new());
        let service = tower::service_fn(move |_: Request<Body>| inner());
        let mut guard = GuardLayer::new(Arc::clone(&metrics), InFlight::default()).layer(service);
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let Ok(response) = guard.call(request).await;
        (response, metrics)
    }

    fn is_ok(response: &Response<Body>) -> bool {
        Status::from_header_map(response.headers()).is_none_or(|status| status.code() == Code::Ok)
    }

    #[tokio::test]
    async fn a_panic_of_check_is_an_answer_and_is_counted() {
        let (response, metrics) = guarded(CHECK, || async { panic!("a fault of ours") }).await;
        assert!(is_ok(&response));
        assert!(metrics.render().contains("tallygate_guard_total{cause=\"panic\"} 1"));
    }

    #[tokio::test]
    async fn every_grpc_error_of_check_is_an_answer() {
        for code in 1..=16 {
            let status = Status::new(Code::from_i32(code), "inner");
            let (response, _) = guarded(CHECK, move || std::future::ready(Ok(status.clone().into_http()))).await;
            assert!(is_ok(&response), "{code}");
        }
    }

    #[tokio::test]
    async fn other_methods_answer_for_themselves() {
        let status = || std::future::ready(Ok(Status::unimplemented("no such method").into_http()));
        assert!(!is_ok(&guarded("/grpc.health.v1.Health/Watch", status).await.0));
    }
}
