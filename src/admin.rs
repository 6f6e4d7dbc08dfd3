//! HTTP for operators: `/metrics`, `/livez`, `/readyz`, `/config`. It changes nothing and shows no identity.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::limiter::Limiter;
use crate::telemetry::metrics::Metrics;

/// What prometheus-client writes.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const NO_PAGE: &str = "no such page: there are /metrics, /livez, /readyz, /config\n";

/// `ready` names each condition of readiness and tells whether it holds; `config` tells what is in use.
pub fn pages<R, C>(metrics: Arc<Metrics>, limiter: Arc<Limiter>, ready: R, config: C) -> Router
where
    R: Fn() -> Vec<(&'static str, bool)> + Clone + Send + Sync + 'static,
    C: Fn() -> String + Clone + Send + Sync + 'static,
{
    Router::new()
        .fallback(|| async { (StatusCode::NOT_FOUND, NO_PAGE) })
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(move || std::future::ready(readiness(&ready()))))
        .route("/config", get(move || std::future::ready(config())))
        .route(
            "/metrics",
            get(move || {
                limiter.observe();
                std::future::ready(([(CONTENT_TYPE, METRICS_TYPE)], metrics.render()))
            }),
        )
}

/// One line a condition, so that a failing probe says why.
fn readiness(conditions: &[(&'static str, bool)]) -> impl IntoResponse + use<> {
    let line = |(name, holds): &(&str, bool)| format!("{name} {}\n", if *holds { "ok" } else { "failed" });
    let ready = conditions.iter().all(|(_, holds)| *holds);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, conditions.iter().map(line).collect::<String>())
}

pub async fn serve(listener: TcpListener, pages: Router) {
    if let Err(error) = axum::serve(listener, pages).await {
        tracing::error!(%error, "the admin listener ended");
    }
}
