//! One node's view of the cluster: who serves which slots, and how new that view is.

use std::sync::Arc;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;
use tokio::time::timeout;

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
    /// The view with the highest epoch; among several the one that most nodes share. If there is none, why not.
    pub fn newest(answers: Vec<(Address, Result<Self, StoreError>)>) -> Result<Self, StoreError> {
        let mut why_not = StoreError::new(FailureClass::Cluster, "no node was asked");
        let mut views = Vec::with_capacity(answers.len());
        for (address, answer) in answers {
            match answer {
                Ok(view) => views.push(view),
                Err(error) => why_not = StoreError::new(error.class, format!("{address}: {}", error.detail)),
            }
        }
        let votes = |view: &Self| views.iter().filter(|other| *other == view).count();
        views.iter().max_by_key(|view| (view.epoch, votes(view))).cloned().ok_or(why_not)
    }

    /// The master that serves `slot`.
    pub fn master_of(&self, slot: u16) -> Option<&Address> {
        let serving = self.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
        serving.map(|(_, _, address)| address)
    }

    /// Every master that serves slots, once.
    pub fn masters(&self) -> Vec<Address> {
        let mut masters: Vec<_> = self.ranges.iter().map(|(_, _, address)| address.clone()).collect();
        masters.sort();
        masters.dedup();
        masters
    }

    /// How many slots are served.
    pub fn slots(&self) -> usize {
        self.ranges.iter().map(|(first, last, _)| usize::from(last - first) + 1).sum()
    }
}

/// What each of `addresses` says, all asked at once. One that hangs delays the answer by its own time-outs, and nothing else.
pub async fn ask_all(dialer: &Arc<Dialer>, addresses: Vec<Address>) -> Vec<(Address, Result<View, StoreError>)> {
    let limit = dialer.connect_timeout + 2 * dialer.command_timeout;
    let ask = |address: Address| {
        let dialer = Arc::clone(dialer);
        tokio::spawn(async move {
            let late = |_| Err(StoreError::new(FailureClass::Timeout, "the server does not answer in time"));
            let answer = timeout(limit, ask(&dialer, &address)).await.unwrap_or_else(late);
            (address, answer)
        })
    };
    let asked: Vec<_> = addresses.into_iter().map(ask).collect();
    let mut answers = Vec::with_capacity(asked.len());
    for answer in asked {
        answers.extend(answer.await.ok()); // it only fails with the runtime
    }
    answers
}

/// Asks the node at `address` on a connection of its own: what serves checks is not held up.
async fn ask(dialer: &Dialer, address: &Address) -> Result<View, StoreError> {
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
        let newest = |views: [View; 3]| View::newest(views.map(|view| (tcp("h", 1), Ok(view))).into());
        assert_eq!(newest([view(3, 1), view(5, 2), view(3, 1)]), Ok(view(5, 2)));
        assert_eq!(newest([view(5, 1), view(5, 2), view(5, 2)]), Ok(view(5, 2)));
    }

    #[test]
    fn without_a_view_it_is_told_why() {
        let refused = StoreError::new(FailureClass::Permission, "no");
        let why_not = View::newest(vec![(tcp("h", 7000), Err(refused))]).unwrap_err();
        assert_eq!((why_not.class, &*why_not.detail), (FailureClass::Permission, "h:7000: no"));
    }

    #[test]
    fn a_view_tells_masters_and_slots() {
        let view = View { epoch: 1, ranges: vec![(0, 9, tcp("a", 1)), (10, 10, tcp("b", 1)), (12, 13, tcp("a", 1))] };
        assert_eq!(view.masters(), [tcp("a", 1), tcp("b", 1)]);
        assert_eq!((view.slots(), view.master_of(10), view.master_of(11)), (13, Some(&tcp("b", 1)), None));
    }
}
