//! One Redis node under supervision: whoever asks gets a connection that works, or hears at once that there is none.
//!
//! A task of its own connects, checks that the node can count, and only then offers the connection. It asks the server's time
//! every second, which keeps the clock's bounds fresh, keeps a NAT from forgetting us, and finds a dead peer without
//! traffic. A connection that broke or timed out twice in a row is dropped, so the supervisor is the breaker too: in a
//! known outage a check waits for nothing.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connection::Connection;
use super::dial::{Address, Dialer};
use super::sentinel::Sentinels;
use crate::decision::verdict::FailureClass;
use crate::store::{StoreError, clock};

/// How often an offered connection is asked for the time.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// The longest pause between two attempts to connect: an attempt that hangs takes up to a second, and together they must
/// stay below the two seconds in which a Redis that is back is used.
const LONGEST_BACKOFF: Duration = Duration::from_millis(250);
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
/// Calls in flight at once on one node; beyond it a check fails by its policy, so that a slow Redis cannot fill this process.
const MAX_IN_FLIGHT: usize = 4096;

/// Where a node is found.
pub enum Place {
    Fixed(Address),
    /// Wherever Sentinel says that the master is, asked anew for each connection.
    MasterOf(Sentinels),
}

/// A node, connected or not. Dropping it ends its supervisor.
pub struct Node {
    shared: Arc<Shared>,
    _supervisor: DropGuard,
}

struct Shared {
    dialer: Arc<Dialer>,
    place: Place,
    prefix: String,
    slot: ArcSwapOption<Connection>,
    in_flight: Semaphore,
    /// Wakes the supervisor when the offered connection was dropped.
    dropped: Notify,
    /// Told whenever a connection is lost: a Cluster then looks who serves its slots.
    on_loss: Arc<Notify>,
}

impl Node {
    /// Starts the supervisor.
    pub fn start(dialer: Arc<Dialer>, place: Place, prefix: &str, on_loss: Arc<Notify>) -> Self {
        let shared = Arc::new(Shared {
            dialer,
            place,
            prefix: prefix.to_owned(),
            slot: ArcSwapOption::empty(),
            in_flight: Semaphore::new(MAX_IN_FLIGHT),
            dropped: Notify::new(),
            on_loss,
        });
        let stop = CancellationToken::new();
        let supervised = Arc::clone(&shared);
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move { supervised.supervise().await }));
        Self { shared, _supervisor: stop.drop_guard() }
    }

    /// The connection in use, if there is one at this moment.
    pub fn connection(&self) -> Result<Arc<Connection>, StoreError> {
        let none = || StoreError::new(FailureClass::Disconnected, "there is no connection to Redis");
        self.shared.slot.load_full().ok_or_else(none)
    }

    pub fn is_up(&self) -> bool {
        self.shared.slot.load().is_some()
    }

    /// Leave to have one more call in flight, held until the call ends.
    pub fn enter(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        self.shared.in_flight.try_acquire().map_err(|_| {
            StoreError::new(FailureClass::Overload, format!("{MAX_IN_FLIGHT} checks are already in flight"))
        })
    }

    /// Takes `connection` out of use, unless it was replaced already. Calls in flight on it run to their own end.
    pub fn drop_connection(&self, connection: &Arc<Connection>, why: &StoreError) {
        self.shared.drop_connection(connection, why);
    }
}

impl Shared {
    fn drop_connection(&self, connection: &Arc<Connection>, why: &StoreError) {
        let before = self.slot.compare_and_swap(connection, None);
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, connection)) {
            tracing::warn!(place = %connection.address, class = why.class.as_str(), reason = %why.detail,
                "Redis is out of use: checks fail by their policy until it answers again");
            self.dropped.notify_one();
            self.on_loss.notify_one();
        }
    }

    async fn supervise(&self) {
        let mut backoff = Backoff::default();
        let mut reported = None;
        let mut lost: Option<Instant> = None;
        loop {
            match self.connect().await {
                Ok(connection) => {
                    let out_of_use_ms = lost.map(|lost| as_ms(clock::now() - lost));
                    tracing::info!(place = %connection.address, out_of_use_ms, "Redis is in use");
                    reported = None;
                    let (connection, since) = (Arc::new(connection), clock::now());
                    self.slot.store(Some(Arc::clone(&connection)));
                    self.watch(&connection).await;
                    lost = Some(clock::now());
                    // A node that works for moments only must not be hammered with connections.
                    if clock::now() - since > HEARTBEAT {
                        backoff = Backoff::default();
                    }
                }
                Err((place, error)) => {
                    // One line a change of place or class, not one an attempt.
                    let told = (place, error.class);
                    if reported.as_ref() != Some(&told) {
                        tracing::warn!(place = %told.0, class = error.class.as_str(), reason = %error.detail,
                            "Redis cannot be used yet: trying on; tallygate doctor looks closer");
                        reported = Some(told);
                    }
                    self.on_loss.notify_one();
                }
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// The error comes with what could not be used: the node, or the Sentinels before a node is known.
    async fn connect(&self) -> Result<Connection, (String, StoreError)> {
        let (address, place) = match &self.place {
            Place::Fixed(address) => (address.clone(), address.to_string()),
            Place::MasterOf(sentinels) => {
                let name = format!("sentinel master {}", sentinels.name());
                match sentinels.master().await {
                    Ok(address) => (address.clone(), format!("{address}, {name}")),
                    Err(error) => return Err((name, error)),
                }
            }
        };
        Connection::open(&self.dialer, &address, &self.prefix).await.map_err(|error| (place, error))
    }

    /// Returns when `connection` is out of use.
    async fn watch(&self, connection: &Arc<Connection>) {
        loop {
            tokio::select! {
                () = self.dropped.notified() => {}
                () = connection.closed() => {
                    let error = StoreError::new(FailureClass::Disconnected, "the connection was closed");
                    self.drop_connection(connection, &error);
                }
                () = tokio::time::sleep(HEARTBEAT) => self.look_after(connection).await,
            }
            if !self.slot.load().as_ref().is_some_and(|offered| Arc::ptr_eq(offered, connection)) {
                return;
            }
        }
    }

    async fn look_after(&self, connection: &Arc<Connection>) {
        match connection.beat(self.dialer.command_timeout).await {
            Ok(()) => {}
            Err(error) if error.class == FailureClass::Timeout && !connection.timed_out() => {}
            Err(error) => return self.drop_connection(connection, &error),
        }
        // A master that was switched over may live on and still take our connection for its own.
        if let Place::MasterOf(sentinels) = &self.place
            && let Some(other) = sentinels.moved_from(&connection.address).await
        {
            let error = StoreError::new(FailureClass::Readonly, format!("the Sentinels name {other} as the master"));
            self.drop_connection(connection, &error);
        }
    }
}

fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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
