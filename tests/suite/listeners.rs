//! Where the sidecar listens: TCP, or a Unix socket that a crash may have left behind.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use tempfile::TempDir;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::cli;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::write_files;

fn orders() -> Setup {
    Setup::memory().policy("orders", 3, "60s", "closed")
}

#[test]
fn a_unix_socket_serves_as_a_port_does() {
    let redis = RedisServer::start();
    let dir = TempDir::new().unwrap();
    let address = format!("unix:{}/authz.sock", dir.path().display());
    let sidecar = Setup::redis(redis.port()).listen(&address).policy("orders", 3, "60s", "closed").start();
    assert_eq!(sidecar.grpc(), address);
    let client = sidecar.client();
    assert_eq!(count(&client.check_times(&Check::of("ada"), 10), Outcome::Allowed), 3);
    assert_eq!(client.health("").unwrap(), ServingStatus::Serving);
}

#[test]
fn a_socket_that_a_crash_left_behind_is_replaced() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("authz.sock");
    // The file outlives its listener, as after a kill.
    drop(UnixListener::bind(&socket).unwrap());
    let sidecar = orders().listen(&format!("unix:{}", socket.display())).start();
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed);
}

#[test]
fn a_socket_that_somebody_serves_is_not_taken_away() {
    let dir = TempDir::new().unwrap();
    let address = format!("unix:{}/authz.sock", dir.path().display());
    let first = orders().listen(&address).start();
    let other = TempDir::new().unwrap();
    let config = write_files(&other, &orders().listen(&address));
    let second = cli::run(&["serve".as_ref(), "--config".as_ref(), config.as_os_str()]);
    assert!(second.code.is_some_and(|code| code != 0), "{second:?}");
    assert!(second.stderr.contains("authz.sock"), "{}", second.stderr);
    assert_eq!(first.client().check(&Check::of("ada")).outcome(), Outcome::Allowed, "the first still serves");
}

#[test]
fn a_file_that_is_no_socket_is_not_removed() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("authz.sock");
    fs::write(&file, "precious").unwrap();
    let config = write_files(&dir, &orders().listen(&format!("unix:{}", file.display())));
    let done = cli::run(&["serve".as_ref(), "--config".as_ref(), config.as_os_str()]);
    assert!(done.code.is_some_and(|code| code != 0), "{done:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn a_socket_goes_with_the_process_that_made_it() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("authz.sock");
    let mut sidecar = orders().listen(&format!("unix:{}", socket.display())).start();
    assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
    sidecar.sigterm();
    assert!(sidecar.wait_exit(Duration::from_secs(15)).success());
    assert!(!socket.exists());
}

#[test]
fn an_address_that_cannot_be_had_is_told_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (listen, remedy) in [
        (taken.as_str(), "end who listens there, or choose another"),
        ("203.0.113.9:50051", "no interface of this machine has the address"),
        ("unix:/nowhere/authz.sock", "create the socket's folder"),
    ] {
        let dir = TempDir::new().unwrap();
        let config = write_files(&dir, &orders().listen(listen));
        let done = cli::run(&["serve".as_ref(), "--config".as_ref(), config.as_os_str()]);
        let wanted = format!("cannot listen: server.listen {listen}: ");
        assert!(done.code == Some(69) && done.stderr.contains(&wanted) && done.stderr.contains(remedy), "{done:?}");
    }
}
