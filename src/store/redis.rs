//! Counters in Redis, shared by every sidecar: one script call decides.
//!
//! ```text
//!  RedisStore::take ──► Node::connection ──► EVALSHA ──► reply
//!     script, reply        node (supervised)    │ NOSCRIPT ► EVAL, once
//!                                               └ late     ► once more with the corrected clock
//! ```
//!
//! Nothing here waits for a connection: `node` owns connecting, and while it has none a check fails at once. No command
//! is sent twice unless the first answer proves that nothing ran. `not_after` keeps a command that timed out from being
//! counted later.

mod error;
mod node;
mod not_after;
pub mod reply;
pub mod script;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use self::node::Connection;
pub use self::node::{BadUrl, Node, NodeSettings};
use self::reply::Reply;
use self::script::{ShapeScript, Slot};
use super::{Store, StoreError, Taking, clock};
use crate::decision::limit::Charge;
use crate::decision::verdict::{FailureClass, Taken};

/// Calls in flight at once; beyond it a check fails by its policy, so that a slow Redis cannot fill this process.
const MAX_IN_FLIGHT: usize = 4096;

/// The store over one Redis node.
pub struct RedisStore {
    node: Arc<Node>,
    command_timeout: Duration,
    in_flight: Semaphore,
    scripts: RwLock<HashMap<Vec<Slot>, Arc<ShapeScript>>>,
}

impl RedisStore {
    /// Starts connecting in the background; start-up does not wait for Redis.
    pub fn new(node: Arc<Node>, command_timeout: Duration) -> Self {
        Self { node, command_timeout, in_flight: Semaphore::new(MAX_IN_FLIGHT), scripts: RwLock::default() }
    }

    async fn call(&self, charges: &[Charge<'_>], n: u64, deadline: Instant) -> Result<Taken, StoreError> {
        let _permit = self.in_flight.try_acquire().map_err(|_| {
            StoreError::new(FailureClass::Overload, format!("{MAX_IN_FLIGHT} checks are already in flight"))
        })?;
        let connection = self.node.connection()?;
        let script = self.script(charges);
        match self.ask(&connection, &script, charges, n, deadline).await? {
            Reply::Taken(taken) => Ok(taken),
            Reply::Foreign { charge, foreign } => Err(StoreError {
                class: FailureClass::Foreign(foreign),
                charge: Some(charge),
                detail: "a key holds what the limiter did not write".into(),
            }),
            Reply::BadArguments => Err(StoreError::new(FailureClass::Other, "the script refused its arguments")),
            // Nothing ran, and `ask` has corrected the clock by this very reply.
            Reply::Late => match self.ask(&connection, &script, charges, n, deadline).await? {
                Reply::Taken(taken) => Ok(taken),
                _ => Err(StoreError::new(FailureClass::Late, "Redis read the command after its deadline")),
            },
        }
    }

    /// Sends the script once, by its hash; by its text only after NOSCRIPT.
    async fn ask(
        &self,
        connection: &Arc<Connection>,
        script: &ShapeScript,
        charges: &[Charge<'_>],
        n: u64,
        deadline: Instant,
    ) -> Result<Reply, StoreError> {
        let sent = clock::now();
        let give_up = deadline.min(sent + self.command_timeout);
        let not_after = connection.not_after_ms(give_up);
        let by_hash = script.by_hash(charges, not_after, n);
        let answer = match self.send(connection, &by_hash, give_up).await {
            Err(error) if error.is_no_script => {
                self.node.load_script(connection, script.text());
                self.send(connection, &script.by_text(charges, not_after, n), give_up).await
            }
            answer => answer,
        };
        let value = answer.map_err(|error| error.inner)?;
        let (reply, store_us) = reply::decode(&value, charges.iter().map(|charge| charge.role))?;
        connection.learn_clock(sent, clock::now(), store_us);
        Ok(reply)
    }

    async fn send(
        &self,
        connection: &Arc<Connection>,
        command: &::redis::Cmd,
        give_up: Instant,
    ) -> Result<::redis::Value, error::CallError> {
        match timeout_at(give_up, connection.send(command)).await {
            Ok(Ok(value)) => {
                connection.answered();
                Ok(value)
            }
            Ok(Err(error)) => {
                let error = error::classify(&error);
                if error.breaks_connection {
                    self.node.drop_connection(connection, &error.inner);
                } else {
                    connection.answered();
                }
                Err(error)
            }
            Err(_) => {
                let error = StoreError::new(FailureClass::Timeout, "Redis did not answer in time");
                if connection.timed_out() {
                    self.node.drop_connection(connection, &error);
                }
                Err(error.into())
            }
        }
    }

    /// The script for the shape of these charges, put together when a policy of that shape is first used. There are as
    /// many as the configuration has shapes.
    fn script(&self, charges: &[Charge<'_>]) -> Arc<ShapeScript> {
        let shape: Vec<Slot> = charges.iter().map(Slot::of).collect();
        if let Some(script) = self.scripts.read().unwrap_or_else(PoisonError::into_inner).get(&shape) {
            return Arc::clone(script);
        }
        let mut scripts = self.scripts.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(scripts.entry(shape).or_insert_with_key(|shape| Arc::new(ShapeScript::assemble(shape))))
    }
}

impl Store for RedisStore {
    fn take<'a>(&'a self, charges: &'a [Charge<'a>], n: u64, deadline: Instant) -> Taking<'a> {
        Box::pin(self.call(charges, n, deadline))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn is_up(&self) -> bool {
        self.node.connection().is_ok()
    }
}
