//! One connection that was seen to work, and what is known about its far end.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::dial::{Address, Dialer};
use super::error::classify;
use super::not_after::ClockBounds;
use super::reply::MAX_STORE_US;
use super::self_test;
use crate::decision::verdict::FailureClass;
use crate::store::{StoreError, clock};

/// Time-outs in a row after which a connection counts as dead. A dead peer never says so.
const TIMEOUTS_UNTIL_DEAD: u32 = 2;

pub struct Connection {
    pub address: Address,
    wire: MultiplexedConnection,
    timeouts_in_a_row: AtomicU32,
    bounds: Mutex<ClockBounds>,
    epoch: Instant,
    /// One SCRIPT LOAD at a time.
    loading: AtomicBool,
    closed: Arc<Notify>,
}

impl Connection {
    /// Opens a connection and asks whether the node can count: its time, its role, and what this user may do there.
    pub async fn open(dialer: &Dialer, address: &Address, prefix: &str) -> Result<Self, StoreError> {
        let closed = Arc::new(Notify::new());
        let wire = dialer.dial(address, Arc::clone(&closed)).await?;
        let (sent, epoch) = (clock::now(), clock::now());
        let store_us = time(&wire, dialer.command_timeout).await?;
        let bounds = ClockBounds::new(micros(sent, epoch), micros(clock::now(), epoch), store_us);
        refuse_replica(&wire, dialer.command_timeout).await?;
        self_test::run(&wire, prefix, dialer.command_timeout).await?;
        Ok(Self {
            address: address.clone(),
            wire,
            timeouts_in_a_row: AtomicU32::new(0),
            bounds: Mutex::new(bounds),
            epoch,
            loading: AtomicBool::new(false),
            closed,
        })
    }

    /// Sends once. An error reply of the server is an error here.
    pub async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        send(&self.wire, command).await
    }

    /// Sends several commands in one write; the last one's reply. An error reply to an earlier one counts for all.
    pub async fn send_all(&self, commands: &Pipeline) -> RedisResult<Value> {
        let count = commands.len();
        let replies = self.wire.clone().send_packed_commands(commands, 0, count).await?;
        let replies: Vec<Value> = replies.into_iter().map(Value::extract_error).collect::<RedisResult<_>>()?;
        Ok(replies.into_iter().next_back().unwrap_or(Value::Nil))
    }

    pub fn answered(&self) {
        self.timeouts_in_a_row.store(0, Ordering::Relaxed);
    }

    /// Notes a time-out and tells whether the connection now counts as dead.
    pub fn timed_out(&self) -> bool {
        self.timeouts_in_a_row.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_UNTIL_DEAD
    }

    /// Waits until the socket has closed.
    pub async fn closed(&self) {
        self.closed.notified().await;
    }

    /// Asks the server's time, which shows that it lives and keeps the clock's bounds fresh.
    pub async fn beat(&self, limit: Duration) -> Result<(), StoreError> {
        let sent = clock::now();
        let store_us = time(&self.wire, limit).await?;
        self.answered();
        self.learn_clock(sent, clock::now(), store_us);
        Ok(())
    }

    /// The last millisecond of the store's clock at which a command may still count.
    pub fn not_after_ms(&self, deadline: Instant) -> i64 {
        self.bounds().not_after_ms(micros(deadline, self.epoch))
    }

    pub fn learn_clock(&self, sent: Instant, received: Instant, store_us: i64) {
        self.bounds().learn(micros(sent, self.epoch), micros(received, self.epoch), store_us);
    }

    /// Puts a script into the server's cache, in the background and once at a time. Its failure changes nothing: the next
    /// check sends the text again.
    pub fn load_script(self: &Arc<Self>, text: &str, limit: Duration) {
        if self.loading.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut load = Cmd::new();
        load.arg("SCRIPT").arg("LOAD").arg(text);
        let connection = Arc::clone(self);
        tokio::spawn(async move {
            let _unimportant = timeout(limit, connection.send(&load)).await;
            connection.loading.store(false, Ordering::Release);
        });
    }

    fn bounds(&self) -> std::sync::MutexGuard<'_, ClockBounds> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A replica answers reads and refuses writes: it cannot count. A user who may not ask is taken at its word; the first
/// check finds out.
async fn refuse_replica(wire: &MultiplexedConnection, limit: Duration) -> Result<(), StoreError> {
    let role = match ask(wire, &redis::cmd("ROLE"), limit).await {
        Ok(Value::Array(role)) => role,
        Ok(_) => return Ok(()),
        Err(error) if error.class == FailureClass::Permission => return Ok(()),
        Err(error) => return Err(error),
    };
    match role.first() {
        Some(Value::BulkString(role)) if role != b"master" => {
            Err(StoreError::new(FailureClass::Readonly, "the node is a replica"))
        }
        _ => Ok(()),
    }
}

/// The server's clock in microseconds.
async fn time(wire: &MultiplexedConnection, limit: Duration) -> Result<i64, StoreError> {
    let reply = ask(wire, &redis::cmd("TIME"), limit).await?;
    let (seconds, micros): (i64, i64) = redis::from_redis_value(reply)
        .map_err(|_| StoreError::new(FailureClass::Malformed, "TIME does not answer two numbers"))?;
    let time = seconds.checked_mul(1_000_000).and_then(|us| us.checked_add(micros));
    let time = time.filter(|us| (1..=MAX_STORE_US).contains(us));
    time.ok_or_else(|| StoreError::new(FailureClass::Malformed, "TIME answers no time of this or the next century"))
}

/// Sends one command of our own housekeeping within `limit`.
pub async fn ask(wire: &MultiplexedConnection, command: &Cmd, limit: Duration) -> Result<Value, StoreError> {
    let late = |_| StoreError::new(FailureClass::Timeout, "the server does not answer in time");
    timeout(limit, send(wire, command)).await.map_err(late)?.map_err(|error| classify(&error).inner)
}

async fn send(wire: &MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    wire.clone().send_packed_command(command).await?.extract_error()
}

fn micros(at: Instant, epoch: Instant) -> i64 {
    i64::try_from((at - epoch).as_micros()).unwrap_or(i64::MAX)
}
