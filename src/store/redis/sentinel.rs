//! Sentinel: who the master is, asked of all of them at once.
//!
//! The first answer is taken to connect, and the node's own ROLE then confirms it. To leave a node that works, most of
//! those that answer must name another.

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

impl Sentinels {
    pub fn new(name: &str, addresses: Vec<Address>, dialer: Arc<Dialer>) -> Self {
        let watcher = |address| Arc::new(Sentinel { address, dialer: Arc::clone(&dialer), wire: Mutex::default() });
        Self { name: name.to_owned(), watchers: addresses.into_iter().map(watcher).collect() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The master by the first Sentinel that answers. Slow and dead ones cost nothing while one lives.
    pub async fn master(&self) -> Result<Address, StoreError> {
        let mut asked = self.ask_all();
        let mut last = StoreError::new(FailureClass::Disconnected, "no Sentinel is configured");
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(address)) => return Ok(address),
                Ok(Err(error)) => last = error,
                Err(_) => {}
            }
        }
        let detail = format!("no Sentinel names the master {}: {}", self.name, last.detail);
        Err(StoreError::new(last.class, detail))
    }

    /// Another master than `current`, if most of those that answer in time name one and the same.
    pub async fn moved_from(&self, current: &Address) -> Option<Address> {
        let answers: Vec<Address> = self.ask_all().join_all().await.into_iter().filter_map(Result::ok).collect();
        let other = answers.iter().find(|address| *address != current)?;
        let votes = answers.iter().filter(|address| *address == other).count();
        (2 * votes > answers.len()).then(|| other.clone())
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
