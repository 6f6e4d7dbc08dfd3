//! TLS with those who ask: from accepted connections to completed handshakes, bounded in number and in time.
//!
//! A handshake that comes to nothing ends its connection alone. Each goes by the newest certificates, so that a renewal takes
//! effect at the next connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::ready;
use futures_util::stream::{Stream, StreamExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::store::clock;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::once::OncePerMinute;
use crate::tls::server::{Refusal, ServerConfig};

/// At once. Envoy opens a connection a worker, so this is for a fleet that starts; more wait in the listener's queue.
const MOST: usize = 256;
/// A connection that sends nothing holds one of these places for so long.
const LONGEST: Duration = Duration::from_secs(5);

/// Why a connection came to nothing.
enum Ended {
    Refused(Refusal),
    /// It was not even accepted; the server knows which errors to go on after.
    Failed(io::Error),
}

/// The connections with a completed handshake, in the order of completion.
pub fn completed<I>(
    incoming: I,
    newest: Arc<ArcSwap<ServerConfig>>,
    metrics: Arc<Metrics>,
) -> impl Stream<Item = io::Result<TlsStream<TcpStream>>> + Send
where
    I: Stream<Item = io::Result<TcpStream>> + Send,
{
    let lines = OncePerMinute::new(Refusal::ALL.len());
    incoming
        // A task each: the work of one handshake must not hold up the others.
        .map(move |accepted| tokio::spawn(handshake(accepted, newest.load_full())))
        .buffer_unordered(MOST)
        .filter_map(move |done| {
            ready(match done {
                Ok(Ok(stream)) => Some(Ok(stream)),
                Ok(Err(Ended::Failed(error))) => Some(Err(error)),
                Ok(Err(Ended::Refused(refusal))) => {
                    metrics.handshake_refused(refusal);
                    // Whether a probe looked at the port is nobody's concern.
                    if refusal != Refusal::Closed && lines.is_due(refusal, clock::now()) {
                        tracing::warn!(
                            reason = refusal.as_str(),
                            remedy = refusal.remedy(),
                            "a connection came to no TLS"
                        );
                    }
                    None
                }
                // The task panicked, or the runtime ends.
                Err(_) => None,
            })
        })
}

async fn handshake(accepted: io::Result<TcpStream>, config: Arc<ServerConfig>) -> Result<TlsStream<TcpStream>, Ended> {
    let connection = accepted.map_err(Ended::Failed)?;
    let shaken = timeout(LONGEST, TlsAcceptor::from(config).accept(connection)).await;
    let shaken = shaken.map_err(|_| Ended::Refused(Refusal::Timeout))?;
    shaken.map_err(|error| Ended::Refused(Refusal::of(&error)))
}
