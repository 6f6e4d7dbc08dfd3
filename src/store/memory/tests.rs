use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::decision::identity::{IdentitySources, Part, Source};
use crate::decision::policy::fixtures;
use crate::store::clock::ManualClock;

/// Takes once for `tenant` under a policy of one limit, 2 a second: admitted and the number of counters held.
fn take(store: &MemoryStore, tenant: &str) -> Result<u64, FailureClass> {
    let policy = fixtures::policy(&[("a", 2, &[Part::Tenant])]);
    let sources = IdentitySources { tenant: vec![Source::route("tenant")], ..Default::default() };
    let route = fixtures::route(&[("tenant", tenant)]);
    let plan = policy.plan(&sources, &fixtures::request(&route)).unwrap_or_else(|_| panic!("identified"));
    store.take_now(&plan.charges, 1).map(|taken| taken.admitted).map_err(|error| error.class)
}

fn store(capacity: usize) -> (MemoryStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    (MemoryStore::new(capacity, Arc::clone(&clock)), clock)
}

#[test]
fn a_window_fills_refuses_and_starts_anew() {
    let (store, clock) = store(10);
    let answers: Vec<_> = (0..3).map(|_| take(&store, "acme").unwrap()).collect();
    assert_eq!(answers, [1, 1, 0]);
    assert_eq!(take(&store, "other"), Ok(1));
    clock.advance(Duration::from_millis(1000));
    assert_eq!(take(&store, "acme"), Ok(1));
}

#[test]
fn a_full_table_refuses_newcomers_and_evicts_nobody_who_counts() {
    let (store, clock) = store(2);
    assert_eq!((take(&store, "a"), take(&store, "b")), (Ok(1), Ok(1)));
    assert_eq!(take(&store, "c"), Err(FailureClass::Oom));
    assert_eq!(take(&store, "a"), Ok(1), "those who count go on");
    assert_eq!(take(&store, "a"), Ok(0));
    clock.advance(Duration::from_millis(1000));
    assert_eq!(take(&store, "c"), Ok(1), "a counter whose time is over makes room");
}

#[test]
fn a_sweep_leaves_only_what_still_counts() {
    let (store, clock) = store(1000);
    for i in 0..500 {
        take(&store, &i.to_string()).unwrap();
    }
    clock.advance(Duration::from_millis(500));
    take(&store, "late").unwrap();
    clock.advance(Duration::from_millis(500));
    store.sweep();
    assert_eq!(store.len(), 1);
}

#[test]
fn n_equal_requests_pass_as_far_as_they_fit() {
    let (store, _) = store(10);
    let policy = fixtures::policy(&[("a", 2, &[])]);
    let sources = IdentitySources::default();
    let plan = fixtures::plan(&policy, &sources);
    assert_eq!(store.take_now(&plan.charges, 5).map(|taken| taken.admitted), Ok(2));
    assert_eq!(store.take_now(&plan.charges, 5).map(|taken| taken.admitted), Ok(0));
}
