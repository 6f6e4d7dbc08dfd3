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
use super::dial::Dialer;
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

/// Reads `key` without changing it.
pub async fn peek(settings: &RedisSettings, key: &str) -> Result<Held, StoreError> {
    let wire = connect(settings, key).await?;
    let limit = settings.dialer.command_timeout;
    let kind = text(ask(&wire, &command("TYPE", key), limit).await?);
    let expires_in = match ask(&wire, &command("PTTL", key), limit).await? {
        Value::Int(ms) => u64::try_from(ms).ok().map(Duration::from_millis),
        _ => None,
    };
    Ok(match kind.as_str() {
        "none" => Held::Nothing,
        "string" => {
            let value = text(ask(&wire, &command("GET", key), limit).await?);
            Held::Text { value: value.chars().take(64).collect(), expires_in }
        }
        "zset" => match ask(&wire, &command("ZCARD", key), limit).await? {
            Value::Int(count) => Held::Units { count, expires_in },
            _ => return Err(StoreError::new(FailureClass::Malformed, "ZCARD does not answer a number")),
        },
        _ => Held::Foreign { kind, expires_in },
    })
}

/// Removes `key`; whether there was one.
pub async fn reset(settings: &RedisSettings, key: &str) -> Result<bool, StoreError> {
    let wire = connect(settings, key).await?;
    let removed = ask(&wire, &command("DEL", key), settings.dialer.command_timeout).await?;
    Ok(removed == Value::Int(1))
}

async fn connect(settings: &RedisSettings, key: &str) -> Result<MultiplexedConnection, StoreError> {
    let address = match &settings.topology {
        Topology::One(address) => address.clone(),
        Topology::Sentinel { master, sentinels, dialer } => {
            Sentinels::new(master, sentinels.clone(), Arc::new(Dialer::clone(dialer))).master().await?
        }
        Topology::Cluster { seeds } => {
            let unknown = || StoreError::new(FailureClass::Cluster, "no node is known to serve this key's slot");
            view_of(&settings.dialer, seeds).await?.master_of(slot_of(key)).cloned().ok_or_else(unknown)?
        }
    };
    settings.dialer.dial(&address, Arc::new(Notify::new())).await
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
