//! One Redis node under supervision: whoever asks gets a connection that works, or hears at once that there is none.
//!
//! A task of its own connects, checks that the server answers, and only then offers the connection. It asks the
//! server's time every second, which keeps the clock's bounds fresh, keeps a NAT from forgetting us, and finds a dead
//! peer without traffic. A connection that broke or timed out twice in a row is dropped, so the supervisor is the
//! breaker too: in a known outage a check waits for nothing.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisResult};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::error::classify;
use super::not_after::ClockBounds;
use crate::decision::verdict::FailureClass;
use crate::store::{StoreError, clock};

/// Time-outs in a row after which a connection counts as dead. A dead peer never says so.
const TIMEOUTS_UNTIL_DEAD: u32 = 2;
/// How often an offered connection is asked for the time.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// The longest pause between two attempts to connect.
const LONGEST_BACKOFF: Duration = Duration::from_millis(500);
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
/// Commands that may wait for the socket's writer; more only add memory, not speed.
const PIPELINE_BUFFER: usize = 1024;

/// How a node is reached.
#[derive(Clone)]
pub struct NodeSettings {
    pub client: Client,
    /// For logs: host and port, never credentials.
    pub address: String,
    pub connect_timeout: Duration,
    pub command_timeout: Duration,
}

/// Why a URL is not one that this store can use. The message never repeats it: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error(
        "a Redis URL is redis://HOST:PORT, perhaps with USER:PASSWORD@ before the host (percent-encoded) and /DB behind"
    )]
    Malformed,
    #[error("TLS (rediss://) is not part of this build")]
    Tls,
}

impl NodeSettings {
    /// From `redis://[user[:password]@]host[:port][/db]` or `redis+unix:///path`.
    pub fn parse(url: &str, connect_timeout: Duration, command_timeout: Duration) -> Result<Self, BadUrl> {
        if url.starts_with("rediss://") || url.starts_with("valkeys://") {
            return Err(BadUrl::Tls);
        }
        let info = url.into_connection_info().map_err(|_| BadUrl::Malformed)?;
        // RESP3 tells at once when the socket has closed.
        let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let tcp = TcpSettings::default().set_nodelay(true);
        let info = info.set_redis_settings(redis).set_tcp_settings(tcp);
        let address = info.addr().to_string();
        let client = Client::open(info).map_err(|_| BadUrl::Malformed)?;
        Ok(Self { client, address, connect_timeout, command_timeout })
    }
}

/// A node, connected or not.
pub struct Node {
    settings: NodeSettings,
    slot: ArcSwapOption<Connection>,
    /// Wakes the supervisor when the offered connection was dropped.
    dropped: Notify,
}

/// One connection that was seen to work.
pub struct Connection {
    wire: MultiplexedConnection,
    timeouts_in_a_row: AtomicU32,
    bounds: Mutex<ClockBounds>,
    epoch: Instant,
    /// One SCRIPT LOAD at a time.
    loading: AtomicBool,
    /// Told when the socket has closed, so that the first check after it need not find out.
    closed: Arc<Notify>,
}

impl Node {
    /// Starts the supervisor, which ends with `shutdown`.
    pub fn start(settings: NodeSettings, shutdown: CancellationToken) -> Arc<Self> {
        let node = Arc::new(Self { settings, slot: ArcSwapOption::empty(), dropped: Notify::new() });
        let supervised = Arc::clone(&node);
        tokio::spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => supervised.slot.store(None),
                () = supervised.supervise() => {}
            }
        });
        node
    }

    /// The connection in use, if there is one at this moment.
    pub fn connection(&self) -> Result<Arc<Connection>, StoreError> {
        let none = || StoreError::new(FailureClass::Disconnected, "there is no connection to Redis");
        self.slot.load_full().ok_or_else(none)
    }

    /// Takes `connection` out of use, unless it was replaced already. Calls in flight on it run to their own end.
    pub fn drop_connection(&self, connection: &Arc<Connection>, why: &StoreError) {
        let before = self.slot.compare_and_swap(connection, None);
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, connection)) {
            tracing::warn!(address = %self.settings.address, class = why.class.as_str(), reason = %why.detail,
                "Redis is out of use: checks fail by their policy until it answers again");
            self.dropped.notify_one();
        }
    }

    /// Puts a script into the server's cache, in the background and once at a time. Its failure changes nothing:
    /// the next check sends the text again.
    pub fn load_script(&self, connection: &Arc<Connection>, text: &str) {
        if connection.loading.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut load = Cmd::new();
        load.arg("SCRIPT").arg("LOAD").arg(text);
        let (connection, limit) = (Arc::clone(connection), self.settings.command_timeout);
        tokio::spawn(async move {
            let _unimportant = timeout(limit, connection.send(&load)).await;
            connection.loading.store(false, Ordering::Release);
        });
    }

    async fn supervise(&self) {
        let mut backoff = Backoff::default();
        let mut reported = None;
        loop {
            match self.connect().await {
                Ok(connection) => {
                    tracing::info!(address = %self.settings.address, "Redis is in use");
                    reported = None;
                    let (connection, since) = (Arc::new(connection), clock::now());
                    self.slot.store(Some(Arc::clone(&connection)));
                    self.watch(&connection).await;
                    // A node that works for moments only must not be hammered with connections.
                    if clock::now() - since > HEARTBEAT {
                        backoff = Backoff::default();
                    }
                }
                // One line a change of reason, not one an attempt.
                Err(error) if reported != Some(error.class) => {
                    tracing::warn!(address = %self.settings.address, class = error.class.as_str(),
                        reason = %error.detail, "Redis cannot be used yet: trying on");
                    reported = Some(error.class);
                }
                Err(_) => {}
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// A connection that answered TIME, within the two time-outs.
    async fn connect(&self) -> Result<Connection, StoreError> {
        let closed = Arc::new(Notify::new());
        let on_push = {
            let closed = Arc::clone(&closed);
            move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    closed.notify_one();
                }
                Ok::<(), Infallible>(())
            }
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.settings.connect_timeout))
            .set_response_timeout(None) // each call brings its own
            .set_push_sender(on_push)
            .set_pipeline_buffer_size(PIPELINE_BUFFER);
        let opening = self.settings.client.get_multiplexed_async_connection_with_config(&config);
        let limit = self.settings.connect_timeout + self.settings.command_timeout;
        let wire = timeout(limit, opening).await.map_err(|_| late())?.map_err(|error| classify(&error).inner)?;
        self.refuse_replica(wire.clone()).await?;
        let (sent, epoch) = (clock::now(), clock::now());
        let store_us = time(wire.clone(), self.settings.command_timeout).await?;
        let bounds = ClockBounds::new(micros(sent, epoch), micros(clock::now(), epoch), store_us);
        Ok(Connection {
            wire,
            timeouts_in_a_row: AtomicU32::new(0),
            bounds: Mutex::new(bounds),
            epoch,
            loading: AtomicBool::new(false),
            closed,
        })
    }

    /// A replica answers reads and refuses writes: it cannot count. A user who may not ask is taken at its word; the
    /// first check finds out.
    async fn refuse_replica(&self, wire: MultiplexedConnection) -> Result<(), StoreError> {
        let asked = timeout(self.settings.command_timeout, send(wire, &redis::cmd("ROLE"))).await;
        let role = match asked.map_err(|_| late())? {
            Ok(redis::Value::Array(role)) => role,
            Ok(_) => return Ok(()),
            Err(error) if error.code().is_some_and(|code| code == "NOPERM") => return Ok(()),
            Err(error) => return Err(classify(&error).inner),
        };
        match role.first() {
            Some(redis::Value::BulkString(role)) if role != b"master" => {
                Err(StoreError::new(FailureClass::Readonly, "the node is a replica"))
            }
            _ => Ok(()),
        }
    }

    /// Returns when `connection` is out of use.
    async fn watch(&self, connection: &Arc<Connection>) {
        loop {
            tokio::select! {
                () = self.dropped.notified() => {}
                () = connection.closed.notified() => {
                    let error = StoreError::new(FailureClass::Disconnected, "the connection was closed");
                    self.drop_connection(connection, &error);
                }
                () = tokio::time::sleep(HEARTBEAT) => self.beat(connection).await,
            }
            if !self.slot.load().as_ref().is_some_and(|offered| Arc::ptr_eq(offered, connection)) {
                return;
            }
        }
    }

    async fn beat(&self, connection: &Arc<Connection>) {
        let sent = clock::now();
        match time(connection.wire.clone(), self.settings.command_timeout).await {
            Ok(store_us) => {
                connection.answered();
                connection.learn_clock(sent, clock::now(), store_us);
            }
            Err(error) if error.class == FailureClass::Timeout && !connection.timed_out() => {}
            Err(error) => self.drop_connection(connection, &error),
        }
    }
}

impl Connection {
    /// Sends once. An error reply of the server is an error here.
    pub async fn send(&self, command: &Cmd) -> RedisResult<redis::Value> {
        send(self.wire.clone(), command).await
    }

    pub fn answered(&self) {
        self.timeouts_in_a_row.store(0, Ordering::Relaxed);
    }

    /// Notes a time-out and tells whether the connection now counts as dead.
    pub fn timed_out(&self) -> bool {
        self.timeouts_in_a_row.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_UNTIL_DEAD
    }

    /// The last millisecond of the store's clock at which a command may still count.
    pub fn not_after_ms(&self, deadline: Instant) -> i64 {
        self.bounds().not_after_ms(micros(deadline, self.epoch))
    }

    pub fn learn_clock(&self, sent: Instant, received: Instant, store_us: i64) {
        self.bounds().learn(micros(sent, self.epoch), micros(received, self.epoch), store_us);
    }

    fn bounds(&self) -> std::sync::MutexGuard<'_, ClockBounds> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn send(mut wire: MultiplexedConnection, command: &Cmd) -> RedisResult<redis::Value> {
    wire.send_packed_command(command).await?.extract_error()
}

fn micros(at: Instant, epoch: Instant) -> i64 {
    i64::try_from((at - epoch).as_micros()).unwrap_or(i64::MAX)
}

/// The server's clock in microseconds.
async fn time(mut wire: MultiplexedConnection, limit: Duration) -> Result<i64, StoreError> {
    let command = redis::cmd("TIME");
    let asked = timeout(limit, command.query_async::<(i64, i64)>(&mut wire));
    let (seconds, micros) = asked.await.map_err(|_| late())?.map_err(|error| classify(&error).inner)?;
    Ok(seconds * 1_000_000 + micros)
}

fn late() -> StoreError {
    StoreError::new(FailureClass::Timeout, "the server does not answer in time")
}

/// Pauses that double up to the longest, each shortened at random by up to half, so that sidecars do not return in step.
struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST_BACKOFF)
    }
}

impl Backoff {
    fn next(&mut self) -> Duration {
        let full = self.0;
        self.0 = (full * 2).min(LONGEST_BACKOFF);
        full.mul_f64(0.5 + 0.5 * jitter())
    }
}

/// A number from 0 to 1. Each `RandomState` is keyed anew, which is random enough to spread reconnects.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    f64::from(u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_are_never_longer() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..20).map(|_| backoff.next()).collect();
        assert!(pauses[0] >= FIRST_BACKOFF / 2 && pauses[0] <= FIRST_BACKOFF);
        assert!(pauses[19] >= LONGEST_BACKOFF / 2 && pauses.iter().all(|pause| *pause <= LONGEST_BACKOFF));
    }
}
