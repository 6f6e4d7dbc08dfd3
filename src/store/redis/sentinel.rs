//! Sentinel: who the master is, asked of all of them at once.
//!
//! What more than half of them name is taken at once; else what most of those name that answer in time. One that lost touch
//! with the others may be the nearest, and its master may live on: the first answer would lead back to it for ever. The
//! node's own ROLE then confirms the choice. To leave a node that works, most of those that answer must name another.

use std::sync::Arc;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;

use super::connection::ask;
use super::dial::{Address, Dialer};
use crate::decision::verdict::FailureClass;
use crate::store::StoreError;

/// A master's name and those who watch it.
pub struct Sentinels {
    name: String,
    watchers: Vec<Arc<Sentinel>>,
}

struct Sentinel {
    address: Address,
    /// Sentinels have credentials and TLS of their own.
    dialer: Arc<Dialer>,
    /// Kept while it answers: the master is asked for every second.
    wire: Mutex<Option<MultiplexedConnection>>,
}

/// Who was named how often, and why the last one that named nobody did not.
struct Votes {
    named: Vec<(Address, usize)>,
    why_not: StoreError,
}

impl Votes {
    /// How many have named `address` now.
    fn add(&mut self, address: Address) -> usize {
        if let Some((_, count)) = self.named.iter_mut().find(|(named, _)| *named == address) {
            *count += 1;
            return *count;
        }
        self.named.push((address, 1));
        1
    }
}

impl Sentinels {
    pub fn new(name: &str, addresses: Vec<Address>, dialer: Arc<Dialer>) -> Self {
        let watcher = |address| Arc::new(Sentinel { address, dialer: Arc::clone(&dialer), wire: Mutex::default() });
        Self { name: name.to_owned(), watchers: addresses.into_iter().map(watcher).collect() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The master that most of them name. Slow and dead ones cost nothing while more than half agree.
    pub async fn master(&self) -> Result<Address, StoreError> {
        let mut votes = self.votes().await;
        votes.named.sort_by_key(|(_, count)| *count);
        let named = votes.named.pop().map(|(address, _)| address);
        named.ok_or_else(|| {
            let detail = format!("no Sentinel names the master {}: {}", self.name, votes.why_not.detail);
            StoreError::new(votes.why_not.class, detail)
        })
    }

    /// Another master than `current`, if most of those that answer in time name one and the same.
    pub async fn moved_from(&self, current: &Address) -> Option<Address> {
        let votes = self.votes().await;
        let answers: usize = votes.named.iter().map(|(_, count)| count).sum();
        let most = votes.named.into_iter().find(|(_, count)| 2 * count > answers);
        most.map(|(address, _)| address).filter(|address| address != current)
    }

    /// Whom each of them names, in order.
    pub async fn each(&self) -> Vec<(Address, Result<Address, StoreError>)> {
        let ask = |watcher: &Arc<Sentinel>| {
            let (watcher, name) = (Arc::clone(watcher), self.name.clone());
            tokio::spawn(async move { (watcher.address.clone(), watcher.master_of(&name).await) })
        };
        let asked: Vec<_> = self.watchers.iter().map(ask).collect();
        let mut answers = Vec::with_capacity(asked.len());
        for answer in asked {
            answers.extend(answer.await.ok()); // it only fails with the runtime
        }
        answers
    }

    /// Counts answers until more than half of all Sentinels agree, or all have answered or had their time.
    async fn votes(&self) -> Votes {
        let none = StoreError::new(FailureClass::Disconnected, "no Sentinel is configured");
        let mut votes = Votes { named: Vec::new(), why_not: none };
        let mut asked = self.ask_all();
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(address)) => {
                    let count = votes.add(address);
                    if 2 * count > self.watchers.len() {
                        break;
                    }
                }
                Ok(Err(error)) => votes.why_not = error,
                Err(_) => {}
            }
        }
        votes
    }

    fn ask_all(&self) -> JoinSet<Result<Address, StoreError>> {
        let mut asked = JoinSet::new();
        for watcher in &self.watchers {
            let (watcher, name) = (Arc::clone(watcher), self.name.clone());
            asked.spawn(async move { watcher.master_of(&name).await });
        }
        asked
    }
}

impl Sentinel {
    async fn master_of(&self, name: &str) -> Result<Address, StoreError> {
        let mut kept = self.wire.lock().await;
        let wire = match kept.take() {
            Some(wire) => wire,
            None => self.dialer.dial(&self.address, Arc::new(Notify::new())).await?,
        };
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
        let reply = ask(&wire, &command, self.dialer.command_timeout).await?;
        *kept = Some(wire); // only one that has just answered
        let unknown = || StoreError::new(FailureClass::Other, format!("{} knows no master named {name}", self.address));
        let Value::Array(parts) = reply else { return Err(unknown()) };
        let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return Err(unknown()) };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let host = text(host).ok_or_else(unknown)?;
        let port = text(port).and_then(|port| port.parse().ok()).ok_or_else(unknown)?;
        Ok(Address::Tcp { host, port })
    }
}
