//! No spelling of a path walks round a limit, whether Envoy normalises paths, as shipped, or leaves them as they came.

use crate::support::envoy::Envoy;
use crate::support::keys;
use crate::support::pair::Edit;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::stack::{IDENTITY, USER};
use crate::support::upstream::Upstream;

/// A path, and whose limit counted it, or the status that refused it: with the shipped Envoy, and with one that leaves paths
/// alone.
const TABLE: [(&str, &str, &str); 24] = [
    ("/orders", "orders", "orders"),
    ("/orders?x=1", "orders", "orders"),
    ("/orders/", "orders", "orders"),
    ("/orders/1", "orders", "orders"),
    ("//orders", "orders", "orders"),
    ("///orders//1", "orders", "orders"),
    ("/%6frders", "orders", "orders"),
    ("/%6Frders", "orders", "orders"),
    ("/./orders", "orders", "orders"),
    ("/orders/.", "orders", "orders"),
    ("/x/../orders", "orders", "orders"),
    ("/%2e/orders", "orders", "orders"),
    ("/x/%2e%2e/orders", "orders", "orders"),
    ("/x/..//orders", "orders", "orders"),
    // Other paths, whatever they look like.
    ("/orders2", "rest", "rest"),
    ("/orders/../x", "rest", "rest"),
    // Paths are case-sensitive (RFC 3986, 6.2.2.1), and `;x` is part of a segment. README.md of envoy/ says what to do for an
    // application that thinks otherwise.
    ("/ORDERS", "rest", "rest"),
    ("/orders;x", "rest", "rest"),
    ("/orders/;x", "orders", "orders"),
    // What servers read differently is nobody's.
    ("/orders%2f1", "400", "403"),
    ("/x%2f..%2forders", "400", "403"),
    ("/orders%5c1", "400", "403"),
    ("/orders%00", "400", "403"),
    ("/orders%", "403", "403"),
];

const AS_THEY_CAME: [Edit<'_>; 3] = [
    ("normalize_path: true", "normalize_path: false"),
    ("merge_slashes: true", "merge_slashes: false"),
    ("path_with_escaped_slashes_action: REJECT_REQUEST", "path_with_escaped_slashes_action: KEEP_UNCHANGED"),
];

const REST: &str = "
  - name: rest
    version: 1
    match: { path: { prefix: / } }
    limits: [{ name: only, per: [tenant, subject], fixed_window: { limit: 9, window: 60s } }]
    on_failure: closed";

/// What became of each path, in the order of the table. Each has a subject of its own.
fn outcomes(edits: &[Edit<'_>]) -> Vec<(&'static str, String)> {
    let redis = RedisServer::start();
    let application = Upstream::start();
    let setup = Setup::redis(redis.port()).identity(IDENTITY).policy("orders", 9, "60s", "closed").policies(REST);
    let sidecar = setup.start();
    let envoy = Envoy::shipped_with(sidecar.port(), application.port(), edits);
    let outcome = |(n, (path, ..)): (usize, &(&'static str, &str, &str))| {
        let subject = format!("subject-{n}");
        let status = envoy.get(path, &[(USER, &subject)]).status();
        let parts = [("route/tenant", "", &b"demo"[..]), ("header/x-user", "", subject.as_bytes())];
        let counted = ["orders", "rest"].map(|policy| redis.get(&keys::key(policy, 60_000, &parts)).is_some());
        let outcome = match (status, counted) {
            (200, [true, false]) => "orders".into(),
            (200, [false, true]) => "rest".into(),
            (refused, [false, false]) => refused.to_string(),
            odd => format!("{odd:?}"),
        };
        (*path, outcome)
    };
    TABLE.iter().enumerate().map(outcome).collect()
}

#[test]
fn with_the_shipped_envoy_every_spelling_is_counted_by_its_limit() {
    assert_eq!(outcomes(&[]), TABLE.map(|(path, shipped, _)| (path, shipped.to_owned())));
}

#[test]
fn with_an_envoy_that_leaves_paths_alone_every_spelling_is_counted_by_its_limit() {
    assert_eq!(outcomes(&AS_THEY_CAME), TABLE.map(|(path, _, alone)| (path, alone.to_owned())));
}
