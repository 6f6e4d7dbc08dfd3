//! Counters in Redis, shared by every sidecar: one script call decides.
//!
//! ```text
//!  RedisStore::take ──► topology ──► Node::connection ──► EVALSHA ──► reply
//!   script, reply       one node,      node (supervised)     │ NOSCRIPT  ► EVAL, once
//!                       Sentinel,                            │ late      ► once more with the corrected clock
//!                       Cluster                              └ MOVED, ASK ► once, to the named node
//! ```
//!
//! Nothing here waits for a connection: `node` owns connecting, and while it has none a check fails at once. No command
//! is sent twice unless the first answer proves that nothing ran. `not_after` keeps a command that timed out from being
//! counted later.

mod cluster;
mod connection;
mod dial;
pub mod doctor;
mod error;
mod node;
mod not_after;
pub mod operator;
pub mod reply;
pub mod script;
mod self_test;
mod sentinel;
pub mod settings;
mod slot;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ::redis::{Cmd, Pipeline, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use self::cluster::Cluster;
use self::connection::Connection;
use self::dial::Dialer;
use self::error::{CallError, Redirect};
use self::node::{Node, Place};
use self::reply::Reply;
use self::script::{ShapeScript, Slot};
use self::sentinel::Sentinels;
use self::settings::{RedisSettings, Topology};
use super::{Store, StoreError, Taking, clock};
use crate::decision::limit::Charge;
use crate::decision::verdict::{FailureClass, Taken};

/// The store over Redis, however it is laid out.
pub struct RedisStore {
    nodes: Nodes,
    command_timeout: Duration,
    scripts: RwLock<HashMap<Vec<Slot>, Arc<ShapeScript>>>,
}

enum Nodes {
    One(Arc<Node>),
    Cluster(Cluster),
}

/// One call: what is asked, and by when.
struct Call<'c> {
    script: &'c ShapeScript,
    charges: &'c [Charge<'c>],
    n: u64,
    deadline: Instant,
}

impl RedisStore {
    /// Starts connecting in the background; start-up does not wait for Redis. Dropping the store ends it.
    pub fn start(settings: &RedisSettings, prefix: &str) -> Self {
        let dialer = Arc::new(settings.dialer.clone());
        let command_timeout = dialer.command_timeout;
        let one = |place, dialer| Nodes::One(Arc::new(Node::start(dialer, place, prefix, Arc::new(Notify::new()))));
        let nodes = match &settings.topology {
            Topology::One(address) => one(Place::Fixed(address.clone()), dialer),
            Topology::Sentinel { master, sentinels, dialer: theirs } => {
                let theirs = Arc::new(Dialer::clone(theirs));
                one(Place::MasterOf(Sentinels::new(master, sentinels.clone(), theirs)), dialer)
            }
            Topology::Cluster { seeds } => Nodes::Cluster(Cluster::start(dialer, seeds.clone(), prefix)),
        };
        Self { nodes, command_timeout, scripts: RwLock::default() }
    }

    async fn call(&self, charges: &[Charge<'_>], n: u64, deadline: Instant) -> Result<Taken, StoreError> {
        let script = self.script(charges);
        let call = Call { script: &script, charges, n, deadline };
        let first = charges.first().ok_or_else(|| StoreError::new(FailureClass::Other, "nothing to charge"))?;
        let node = match &self.nodes {
            Nodes::One(node) => Arc::clone(node),
            Nodes::Cluster(cluster) => cluster.node_for(&first.key.text)?,
        };
        let (redirect, asking) = match self.ask(&node, &call, false).await {
            Err(CallError { redirect: Some(redirect), .. }) => {
                let asking = matches!(redirect, Redirect::Ask(_));
                (redirect, asking)
            }
            answer => return answer.map_err(|error| error.inner),
        };
        // The answer proves that nothing ran: once to the named node, whose clock is another.
        let Nodes::Cluster(cluster) = &self.nodes else {
            return Err(StoreError::new(
                FailureClass::Cluster,
                "the node is part of a Cluster: configure store.redis.cluster",
            ));
        };
        if !asking {
            cluster.refresh();
        }
        let named = cluster.node_named(&redirect);
        self.ask(&named, &call, asking).await.map_err(|error| error.inner)
    }

    /// Asks one node, once more if it read the command too late: nothing ran then, and the first answer has corrected the
    /// clock.
    async fn ask(&self, node: &Node, call: &Call<'_>, asking: bool) -> Result<Taken, CallError> {
        let _permit = node.enter()?;
        let connection = node.connection()?;
        for _ in 0..2 {
            match self.ask_once(node, &connection, call, asking).await? {
                Reply::Taken(taken) => return Ok(taken),
                Reply::Late => {}
                Reply::BadArguments => {
                    return Err(StoreError::new(FailureClass::Other, "the script refused its arguments").into());
                }
                Reply::Foreign { charge, foreign } => {
                    let detail = "a key holds what the limiter did not write".into();
                    let class = FailureClass::Foreign(foreign);
                    return Err(StoreError { class, charge: Some(charge), detail }.into());
                }
            }
        }
        Err(StoreError::new(FailureClass::Late, "Redis read the command after its deadline").into())
    }

    /// Sends the script once, by its hash; by its text only after NOSCRIPT.
    async fn ask_once(
        &self,
        node: &Node,
        connection: &Arc<Connection>,
        call: &Call<'_>,
        asking: bool,
    ) -> Result<Reply, CallError> {
        let sent = clock::now();
        let give_up = call.deadline.min(sent + self.command_timeout);
        let patience = Patience { until: give_up, is_whole: give_up - sent >= self.command_timeout * 3 / 4 };
        let not_after = connection.not_after_ms(give_up);
        let Call { script, charges, n, .. } = call;
        let by_hash = script.by_hash(charges, not_after, *n);
        let value = match send(node, connection, by_hash, asking, patience).await {
            Err(error) if error.is_no_script => {
                connection.load_script(script.text(), self.command_timeout);
                send(node, connection, script.by_text(charges, not_after, *n), asking, patience).await?
            }
            answer => answer?,
        };
        let (reply, store_us) = reply::decode(&value, charges.iter().map(|charge| charge.role))?;
        if matches!(&reply, Reply::Taken(taken) if taken.admitted > *n) {
            return Err(
                StoreError::new(FailureClass::Malformed, "more requests are admitted than were asked for").into()
            );
        }
        connection.learn_clock(sent, clock::now(), store_us);
        Ok(reply)
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

/// How long a reply is waited for.
#[derive(Clone, Copy)]
struct Patience {
    until: Instant,
    /// Whether that is about as long as a command may take, rather than what a caller's deadline has left.
    is_whole: bool,
}

/// Sends one command once, after ASKING in the same write where a redirect asked for it, and notes what the outcome says about
/// the connection.
async fn send(
    node: &Node,
    connection: &Arc<Connection>,
    command: Cmd,
    asking: bool,
    patience: Patience,
) -> Result<Value, CallError> {
    let answer = async {
        if asking {
            let mut both = Pipeline::with_capacity(2);
            both.cmd("ASKING").add_command(command);
            connection.send_all(&both).await
        } else {
            connection.send(&command).await
        }
    };
    match timeout_at(patience.until, answer).await {
        Ok(Ok(value)) => {
            connection.answered();
            Ok(value)
        }
        Ok(Err(error)) => {
            let error = error::classify(&error).said_by(&connection.address);
            if error.breaks_connection {
                node.drop_connection(connection, &error.inner);
            } else {
                connection.answered();
            }
            Err(error)
        }
        Err(_) => {
            let error = StoreError::new(FailureClass::Timeout, "Redis did not answer in time");
            // A caller in a hurry says nothing about the connection.
            if patience.is_whole && connection.timed_out() {
                node.drop_connection(connection, &error);
            }
            Err(error.into())
        }
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
        match &self.nodes {
            Nodes::One(node) => node.is_up(),
            Nodes::Cluster(cluster) => cluster.is_up(),
        }
    }
}
