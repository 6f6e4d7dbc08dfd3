//! `envoy/minimal.yaml` and `envoy/unix-socket.yaml`: nothing but the check, by TCP and by a socket.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use crate::support::keys;
use crate::support::pair::{LIMIT, Pair};

const LOOPBACK: keys::Part<'_> = ("address", "", &[4, 32, 127, 0, 0, 1]);

#[test]
fn the_smallest_file_limits_by_the_clients_address() {
    let pair = Pair::start("minimal.yaml");
    pair.exhaust("/", &[]);
    // Without use_remote_address a header that the client wrote is no address either.
    assert_eq!(pair.envoy.get("/other", &[("x-forwarded-for", "192.0.2.1")]).status(), 429);
    let count = pair.redis.get(&keys::key("everything", 60_000, &[LOOPBACK]));
    assert_eq!(count, Some(LIMIT.to_string()));
}

#[test]
fn envoy_reaches_tallygate_through_a_unix_socket() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("authz.sock").display().to_string();
    let edit = [("/run/tallygate/authz.sock", &*socket)];
    let pair = Pair::edited("unix-socket.yaml", &edit, &edit);
    pair.exhaust("/", &[]);
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660, "as the file says");
}
