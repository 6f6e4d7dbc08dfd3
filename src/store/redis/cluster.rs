//! A Redis Cluster: our own map of slots over supervised nodes, so that one hung shard never slows another.
//!
//! The map is looked at, never waited for. It is refreshed in the background when a node redirects us, when a node is lost,
//! and on a slow timer; several nodes are asked at once, and the newest view of the cluster rules, so a hung or cut-off
//! master does not decide what is true.

pub mod view;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::view::View;
use super::dial::{Address, Dialer};
use super::error::Redirect;
use super::node::{Node, Place};
use super::slot::slot_of;
use crate::decision::verdict::FailureClass;
use crate::store::{StoreError, clock};

/// Without any sign of change, the map is still looked at so often.
const SLOW_TIMER: Duration = Duration::from_secs(5);
/// And so often while nobody says who serves which slots: nothing else may tell when that is over.
const VAIN_TIMER: Duration = Duration::from_millis(500);
/// The least pause between two looks.
const LEAST_PAUSE: Duration = Duration::from_millis(200);
/// For so long a node is kept that serves no slot and was last sent a call for one on its way there.
const RECEIVING_LASTS: Duration = Duration::from_secs(60);
/// How many nodes are asked at once.
const ASKED: usize = 8;

pub struct Cluster {
    shared: Arc<Shared>,
    _refresher: DropGuard,
}

struct Shared {
    dialer: Arc<Dialer>,
    prefix: String,
    seeds: Vec<Address>,
    map: ArcSwap<SlotMap>,
    /// Every node that serves slots or was named by a redirect, by address.
    nodes: Mutex<HashMap<Address, Known>>,
    refresh: Arc<Notify>,
}

struct Known {
    node: Arc<Node>,
    /// When a call was last sent on to it for a slot that is on its way there: it may serve none yet.
    receiving: Option<Instant>,
}

/// Who serves which slots.
#[derive(Default)]
struct SlotMap {
    /// Ranges in order: first slot, last slot, node.
    ranges: Vec<(u16, u16, Arc<Node>)>,
}

impl Cluster {
    pub fn start(dialer: Arc<Dialer>, seeds: Vec<Address>, prefix: &str) -> Self {
        let shared = Arc::new(Shared {
            dialer,
            prefix: prefix.to_owned(),
            seeds,
            map: ArcSwap::default(),
            nodes: Mutex::default(),
            refresh: Arc::new(Notify::new()),
        });
        let stop = CancellationToken::new();
        let refreshing = Arc::clone(&shared);
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move { refreshing.keep_fresh().await }));
        Self { shared, _refresher: stop.drop_guard() }
    }

    /// The node that serves `key`.
    pub fn node_for(&self, key: &str) -> Result<Arc<Node>, StoreError> {
        let (slot, map) = (slot_of(key), self.shared.map.load());
        let after = map.ranges.partition_point(|(first, _, _)| *first <= slot);
        match after.checked_sub(1).and_then(|place| map.ranges.get(place)) {
            Some((_, last, node)) if slot <= *last => Ok(Arc::clone(node)),
            _ => {
                self.refresh();
                Err(StoreError::new(FailureClass::Cluster, format!("no node is known to serve slot {slot}")))
            }
        }
    }

    /// The node that a redirect named.
    pub fn node_named(&self, redirect: &Redirect) -> Arc<Node> {
        match redirect {
            Redirect::Moved(address) => self.shared.node(address, None),
            Redirect::Ask(address) => self.shared.node(address, Some(clock::now())),
        }
    }

    /// Asks for a look at the map soon.
    pub fn refresh(&self) {
        self.shared.refresh.notify_one();
    }

    pub fn is_up(&self) -> bool {
        self.shared.map.load().ranges.iter().any(|(_, _, node)| node.is_up())
    }
}

impl Shared {
    fn node(&self, address: &Address, receiving: Option<Instant>) -> Arc<Node> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || {
            let place = Place::Fixed(address.clone());
            let node = Node::start(Arc::clone(&self.dialer), place, &self.prefix, Arc::clone(&self.refresh));
            Known { node: Arc::new(node), receiving: None }
        };
        let known = nodes.entry(address.clone()).or_insert_with(start);
        known.receiving = receiving.or(known.receiving);
        Arc::clone(&known.node)
    }

    async fn keep_fresh(&self) {
        let mut reported = None;
        loop {
            let next = match self.look().await {
                Ok(view) => {
                    self.adopt(&view);
                    reported = None;
                    SLOW_TIMER
                }
                Err(error) => {
                    if reported != Some(error.class) {
                        tracing::warn!(class = error.class.as_str(), reason = %error.detail,
                            "no node of the Redis Cluster says who serves which slots: trying on");
                        reported = Some(error.class);
                    }
                    VAIN_TIMER
                }
            };
            sleep(LEAST_PAUSE).await;
            // While a node is lost its supervisor tells us with each vain attempt, so a fail-over is seen soon.
            let _either_way = timeout(next, self.refresh.notified()).await;
        }
    }

    /// The newest view among those of several nodes. Those with a connection come first: they surely answer.
    async fn look(&self) -> Result<View, StoreError> {
        let mut known: Vec<(bool, Address)> = {
            let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.iter().map(|(address, known)| (!known.node.is_up(), address.clone())).collect()
        };
        known.sort();
        let known = known.into_iter().map(|(_, address)| address).take(ASKED);
        let mut asked: Vec<Address> = known.chain(self.seeds.iter().take(ASKED).cloned()).collect();
        asked.sort();
        asked.dedup();
        View::newest(view::ask_all(&self.dialer, asked).await)
    }

    fn adopt(&self, view: &View) {
        let ranges: Vec<_> =
            view.ranges.iter().map(|(first, last, address)| (*first, *last, self.node(address, None))).collect();
        self.map.store(Arc::new(SlotMap { ranges }));
        // Nodes that neither serve nor receive a slot end with their last call in flight.
        let now = clock::now();
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.retain(|address, known| {
            known.receiving.is_some_and(|last| now - last < RECEIVING_LASTS)
                || view.ranges.iter().any(|(_, _, serving)| serving == address)
        });
    }
}

/// The newest view that `seeds` lead to.
pub async fn view_of(dialer: &Dialer, seeds: &[Address]) -> Result<View, StoreError> {
    View::newest(view::ask_all(&Arc::new(dialer.clone()), seeds.to_vec()).await)
}
