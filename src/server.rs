//! Wiring: store, limiter, services; and the life of the process from bound listeners to the last answer.
//!
//! The listeners and the shutdown signal are arguments, so that a test picks port 0. Order at the end: not ready, no new
//! checks, in-flight checks answered, all within the drain time.

mod accept;
mod handshake;
pub mod health;
pub mod listen;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic_health::ServingStatus;

use self::accept::paced;
use self::health::Readiness;
use self::listen::{Bound, Incoming};
use crate::admin;
use crate::authz;
use crate::authz::guard::{GuardLayer, InFlight};
use crate::config::reload::{ReloadState, Reloader};
use crate::config::{Config, Fixed, StoreSettings, line};
use crate::limiter::Limiter;
use crate::store::Store;
use crate::store::clock::MonotonicClock;
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::telemetry::metrics::Metrics;

/// Envoy cancels many checks at once when it times out; h2's own bound of 20 would close the connection.
const MAX_PENDING_RESETS: usize = 4096;
/// h2 takes a connection with many small unread frames for an attack, by a measure of half its window: with the default of
/// 1 MiB a crowd of some thousand checks at once would break the connection, and all of them with it.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// With no check in flight for so long after the end of accepting, every answer is on its way.
const QUIET: Duration = Duration::from_millis(200);
/// How long the first checks may wait for the store to be reached, so that a sidecar that replaces another does not begin
/// with failures. They wait in the listener's queue, for less than the shipped Envoy time-out.
const FIRST_REACH: Duration = Duration::from_millis(200);
const SWEEP: Duration = Duration::from_secs(1);

/// What ends or changes a running server.
#[derive(Clone, Default)]
pub struct Control {
    pub shutdown: CancellationToken,
    pub reload: Arc<Notify>,
}

/// Why a server could not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the configuration cannot be watched: {0}")]
    Watch(std::io::Error),
    #[error("serving checks failed: {0}")]
    Serve(#[from] tonic::transport::Error),
    #[error("checks were still in flight when the drain time was over")]
    Drain,
}

/// Serves until `control.shutdown`. Returns when every check in flight was answered, or the drain time is over.
pub async fn run(config: Config, file: PathBuf, bound: Bound, control: Control) -> Result<(), ServeError> {
    let Config { fixed, rules, authz, handshakes, certificates, secret, source, warnings } = config;
    for warning in &warnings {
        tracing::warn!("{}", line(&file, warning));
    }
    let (policies, fingerprint) = (rules.policies.len(), secret.fingerprint());
    let store_name = fixed.store.name();
    let background = CancellationToken::new();
    let _stop_background = background.clone().drop_guard();

    let metrics = Arc::new(Metrics::new());
    let store = store(&fixed);
    metrics.store_shared.set(store.is_shared().into());
    metrics.set_secret_fingerprint(&fingerprint);
    metrics.set_config(1, &source.hash);
    metrics.set_certificates(&certificates);
    let limiter = Arc::new(Limiter::new(rules, Arc::clone(&store), Arc::clone(&metrics)));
    let settings = Arc::new(ArcSwap::from_pointee(authz));
    let handshakes = handshakes.map(|config| Arc::new(ArcSwap::new(config)));
    let readiness = Arc::new(Readiness::default());

    let drain = fixed.drain;
    let state = Arc::new(ReloadState::new(&source));
    let reloader = Reloader {
        file,
        secret,
        fixed,
        limiter: Arc::clone(&limiter),
        settings: Arc::clone(&settings),
        handshakes: handshakes.clone(),
        metrics: Arc::clone(&metrics),
        state: Arc::clone(&state),
    };
    let reload_now = reloader.watch(source.files).map_err(ServeError::Watch)?;
    tokio::spawn(background.clone().run_until_cancelled_owned(reload_on(control.reload, reload_now)));
    tokio::spawn(background.clone().run_until_cancelled_owned(sweep(Arc::clone(&limiter))));
    let (conditions, rules_in_use) = (Arc::clone(&readiness), Arc::clone(&limiter));
    let pages = admin::pages(
        Arc::clone(&metrics),
        Arc::clone(&limiter),
        move || conditions.conditions().to_vec(),
        move || state.page(&rules_in_use.rules()),
    );
    tokio::spawn(background.run_until_cancelled_owned(admin::serve(bound.admin, pages)));

    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_service_status("", ServingStatus::NotServing).await;
    let check = authz::service(limiter, settings, Arc::clone(&metrics));
    let in_flight = InFlight::default();
    let router = Server::builder()
        .http2_max_pending_accept_reset_streams(Some(MAX_PENDING_RESETS))
        .http2_max_local_error_reset_streams(Some(MAX_PENDING_RESETS))
        .layer(GuardLayer::new(Arc::clone(&metrics), in_flight.clone()))
        .initial_connection_window_size(CONNECTION_WINDOW)
        .add_service(check)
        .add_service(health_service);
    let stop_accepting = CancellationToken::new();
    let stopped = stop_accepting.clone().cancelled_owned();
    let _in_time = tokio::time::timeout(FIRST_REACH, reached(&*store)).await;
    let (incoming, _socket) = bound.incoming.split();
    let serving = match (incoming, handshakes) {
        (Incoming::Tcp(incoming), None) => tokio::spawn(router.serve_with_incoming_shutdown(paced(incoming), stopped)),
        (Incoming::Tcp(incoming), Some(newest)) => {
            let incoming = handshake::completed(paced(incoming), newest, metrics);
            tokio::spawn(router.serve_with_incoming_shutdown(incoming, stopped))
        }
        // The configuration refuses TLS here: the socket's mode says who may connect.
        (Incoming::Unix(incoming), _) => tokio::spawn(router.serve_with_incoming_shutdown(paced(incoming), stopped)),
    };

    readiness.set_listening(true);
    set_serving(&health, ServingStatus::Serving).await;
    tracing::info!(
        grpc = %bound.grpc_address,
        admin = %bound.admin_address,
        version = env!("CARGO_PKG_VERSION"),
        store = store_name,
        policies,
        secret_fingerprint = %fingerprint,
        "listening"
    );
    control.shutdown.cancelled().await;

    tracing::info!("draining: not ready any more, checks in flight are answered");
    readiness.set_draining();
    set_serving(&health, ServingStatus::NotServing).await;
    stop_accepting.cancel();
    tokio::select! {
        served = serving => served.map_err(|_| ServeError::Drain)?.map_err(ServeError::from),
        // Connections without a check may stay open for ever; nobody waits for them.
        () = quiet(&in_flight) => Ok(()),
        () = tokio::time::sleep(drain) => if in_flight.count() == 0 { Ok(()) } else { Err(ServeError::Drain) },
    }
}

async fn quiet(in_flight: &InFlight) {
    const LOOK: Duration = Duration::from_millis(20);
    let mut quiet_for = Duration::ZERO;
    while quiet_for < QUIET {
        tokio::time::sleep(LOOK).await;
        quiet_for = if in_flight.count() == 0 { quiet_for + LOOK } else { Duration::ZERO };
    }
}

/// gRPC health speaks of this process only: a fail-open sidecar whose Redis is gone still answers.
async fn set_serving(health: &tonic_health::server::HealthReporter, status: ServingStatus) {
    for service in ["", "envoy.service.auth.v3.Authorization"] {
        health.set_service_status(service, status).await;
    }
}

fn store(fixed: &Fixed) -> Arc<dyn Store> {
    match &fixed.store {
        StoreSettings::Redis(settings) => Arc::new(RedisStore::start(settings, fixed.key_prefix.as_str())),
        StoreSettings::Memory { max_counters } => Arc::new(MemoryStore::new(*max_counters, MonotonicClock::default())),
    }
}

async fn reached(store: &dyn Store) {
    const LOOK: Duration = Duration::from_millis(2);
    while !store.is_up() {
        tokio::time::sleep(LOOK).await;
    }
}

async fn reload_on(wanted: Arc<Notify>, reload_now: Sender<()>) {
    loop {
        wanted.notified().await;
        if reload_now.send(()).is_err() {
            return;
        }
    }
}

async fn sweep(limiter: Arc<Limiter>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        limiter.sweep();
    }
}
