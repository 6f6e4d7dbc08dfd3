//! Single keys for an operator's eyes and hands: what one holds, and its removal.
//!
//! Called by `tallygate peek`, `reset` and `explain --store`, never by a check.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::Notify;

use super::cluster::view_of;
use super::connection::ask;
use super::dial::{Address, Dialer};
use super::sentinel::Sentinels;
use super::settings::{RedisSettings, Topology};
use super::slot::slot_of;
use crate::decision::verdict::FailureClass;
use crate::store::StoreError;

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    Nothing,
    /// A string, cut if it is long: none of ours is.
    Text {
        value: String,
        expires_in: Option<Duration>,
    },
    /// A sorted set: a sliding log with so many units.
    Units {
        count: i64,
        expires_in: Option<Duration>,
    },
    /// A type that Tallygate never writes.
    Foreign {
        kind: String,
        expires_in: Option<Duration>,
    },
}

/// Why nothing is known of a key, or done to it, and at which place.
#[derive(Debug, thiserror::Error)]
#[error("{place} cannot be asked: {} ({})", source.detail, source.class.as_str())]
pub struct Unasked {
    place: String,
    source: StoreError,
    /// What to do.
    pub remedy: &'static str,
}

const PEEK_NEEDS: &str = "beside what checks need, this takes a Redis user with +type, +pttl, +get and +zcard";
const RESET_NEEDS: &str = "beside what checks need, this takes a Redis user with +del";

/// Reads `key` without changing it.
pub async fn peek(settings: &RedisSettings, key: &str) -> Result<Held, Unasked> {
    let (wire, address) = connect(settings, key).await?;
    held(&wire, key, settings.dialer.command_timeout).await.map_err(|error| refused(&address, error, PEEK_NEEDS))
}

async fn held(wire: &MultiplexedConnection, key: &str, limit: Duration) -> Result<Held, StoreError> {
    let kind = text(ask(wire, &command("TYPE", key), limit).await?);
    let expires_in = match ask(wire, &command("PTTL", key), limit).await? {
        Value::Int(ms) => u64::try_from(ms).ok().map(Duration::from_millis),
        _ => None,
    };
    Ok(match kind.as_str() {
        "none" => Held::Nothing,
        "string" => {
            let value = text(ask(wire, &command("GET", key), limit).await?);
            Held::Text { value: value.chars().take(64).collect(), expires_in }
        }
        "zset" => match ask(wire, &command("ZCARD", key), limit).await? {
            Value::Int(count) => Held::Units { count, expires_in },
            _ => return Err(StoreError::new(FailureClass::Malformed, "ZCARD does not answer a number")),
        },
        _ => Held::Foreign { kind, expires_in },
    })
}

/// Removes `key`; whether there was one.
pub async fn reset(settings: &RedisSettings, key: &str) -> Result<bool, Unasked> {
    let (wire, address) = connect(settings, key).await?;
    let removed = ask(&wire, &command("DEL", key), settings.dialer.command_timeout).await;
    removed.map(|removed| removed == Value::Int(1)).map_err(|error| refused(&address, error, RESET_NEEDS))
}

/// A connection to the master of `key`, and where that is.
async fn connect(settings: &RedisSettings, key: &str) -> Result<(MultiplexedConnection, Address), Unasked> {
    let unusable = |place: String, source| Unasked { place, source, remedy: "tallygate doctor looks closer" };
    let address = match &settings.topology {
        Topology::One(address) => address.clone(),
        Topology::Sentinel { master, sentinels, dialer } => {
            let sentinels = Sentinels::new(master, sentinels.clone(), Arc::new(Dialer::clone(dialer)));
            let place = format!("sentinel master {master}");
            sentinels.master().await.map_err(|error| unusable(place, error))?
        }
        Topology::Cluster { seeds } => {
            let unknown = || StoreError::new(FailureClass::Cluster, "no node is known to serve this key's slot");
            let master = match view_of(&settings.dialer, seeds).await {
                Ok(view) => view.master_of(slot_of(key)).cloned().ok_or_else(unknown),
                Err(error) => Err(error),
            };
            master.map_err(|error| unusable("the Cluster".to_owned(), error))?
        }
    };
    match settings.dialer.dial(&address, Arc::new(Notify::new())).await {
        Ok(wire) => Ok((wire, address)),
        Err(error) => Err(unusable(address.to_string(), error)),
    }
}

fn refused(address: &Address, source: StoreError, needs: &'static str) -> Unasked {
    let remedy = if source.class == FailureClass::Permission { needs } else { "tallygate doctor looks closer" };
    Unasked { place: address.to_string(), source, remedy }
}

fn command(name: &str, key: &str) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key);
    command
}

fn text(value: Value) -> String {
    match value {
        Value::SimpleString(text) => text,
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => String::new(),
    }
}
