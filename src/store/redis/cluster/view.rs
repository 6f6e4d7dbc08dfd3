//! One node's view of the cluster: who serves which slots, and how new that view is.

use std::sync::Arc;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;

use crate::decision::verdict::FailureClass;
use crate::store::StoreError;
use crate::store::redis::connection::ask as ask_wire;
use crate::store::redis::dial::{Address, Dialer};
use crate::store::redis::slot::SLOTS;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The cluster's configuration epoch as this node knows it: it grows with each fail-over.
    epoch: u64,
    /// First slot, last slot and master, in order.
    pub ranges: Vec<(u16, u16, Address)>,
}

impl View {
    /// The view with the highest epoch; among several the one that most nodes share.
    pub fn newest(views: Vec<Self>) -> Option<Self> {
        let votes = |view: &Self| views.iter().filter(|other| *other == view).count();
        views.iter().max_by_key(|view| (view.epoch, votes(view))).cloned()
    }
}

/// Asks the node at `address` on a connection of its own: what serves checks is not held up.
pub async fn ask(dialer: &Dialer, address: &Address) -> Result<View, StoreError> {
    let wire = dialer.dial(address, Arc::new(Notify::new())).await?;
    let epoch = epoch(&wire, dialer).await?;
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let reply = ask_wire(&wire, &slots, dialer.command_timeout).await?;
    let ranges = ranges(&reply, address).ok_or_else(|| malformed("CLUSTER SLOTS"))?;
    Ok(View { epoch, ranges })
}

async fn epoch(wire: &MultiplexedConnection, dialer: &Dialer) -> Result<u64, StoreError> {
    let mut info = redis::cmd("CLUSTER");
    info.arg("INFO");
    let text = match ask_wire(wire, &info, dialer.command_timeout).await? {
        Value::BulkString(bytes) => String::from_utf8(bytes).unwrap_or_default(),
        Value::VerbatimString { text, .. } => text,
        _ => return Err(malformed("CLUSTER INFO")),
    };
    let line = text.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
    line.and_then(|epoch| epoch.trim().parse().ok()).ok_or_else(|| malformed("CLUSTER INFO"))
}

fn malformed(command: &'static str) -> StoreError {
    StoreError::new(FailureClass::Malformed, format!("{command} does not answer as documented"))
}

/// Reads CLUSTER SLOTS. A node that does not know its own name is the one that was asked.
fn ranges(reply: &Value, asked: &Address) -> Option<Vec<(u16, u16, Address)>> {
    let Value::Array(entries) = reply else { return None };
    let mut ranges = entries.iter().map(|entry| range(entry, asked)).collect::<Option<Vec<_>>>()?;
    ranges.sort();
    // A node that has just joined knows of no slots; its view is worth nothing.
    (!ranges.is_empty()).then_some(ranges)
}

fn range(entry: &Value, asked: &Address) -> Option<(u16, u16, Address)> {
    let Value::Array(fields) = entry else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = fields.as_slice() else { return None };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let [name, Value::Int(port), ..] = master.as_slice() else { return None };
    let port = u16::try_from(*port).ok()?;
    let named = match name {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok()?,
        _ => String::new(),
    };
    let host = match (named.as_str(), asked) {
        ("" | "?", Address::Tcp { host, .. }) => host.clone(),
        ("" | "?", Address::Unix(_)) => return None,
        _ => named,
    };
    (first <= last && last < SLOTS).then_some((first, last, Address::Tcp { host, port }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.into(), port }
    }

    fn entry(first: i64, last: i64, host: Value, port: i64) -> Value {
        Value::Array(vec![
            Value::Int(first),
            Value::Int(last),
            Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())]),
        ])
    }

    #[test]
    fn slots_are_read_in_order_and_a_nameless_node_is_the_one_asked() {
        let reply = Value::Array(vec![
            entry(100, 16383, Value::BulkString(b"10.0.0.2".to_vec()), 7001),
            entry(0, 99, Value::Nil, 7000),
        ]);
        let wanted = vec![(0, 99, tcp("seed", 7000)), (100, 16383, tcp("10.0.0.2", 7001))];
        assert_eq!(ranges(&reply, &tcp("seed", 1)), Some(wanted));
        assert_eq!(ranges(&Value::Array(vec![]), &tcp("seed", 1)), None);
        assert_eq!(ranges(&Value::Array(vec![entry(0, 16384, Value::Nil, 1)]), &tcp("seed", 1)), None);
    }

    #[test]
    fn the_highest_epoch_rules_and_then_the_most_votes() {
        let view = |epoch, port| View { epoch, ranges: vec![(0, 1, tcp("h", port))] };
        assert_eq!(View::newest(vec![view(3, 1), view(5, 2), view(3, 1)]), Some(view(5, 2)));
        assert_eq!(View::newest(vec![view(5, 1), view(5, 2), view(5, 2)]), Some(view(5, 2)));
        assert_eq!(View::newest(vec![]), None);
    }
}
