//! With no file descriptor left, no connection can be accepted: the process goes on with those that it has, at its ease, and takes
//! new ones as soon as it can.

use std::fs;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::grpc::Client;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::tls::pem;
use crate::support::wait::wait_for;
use crate::timing::load::hold;
use crate::timing::memory::descriptors;

/// Enough for the process itself and some connections.
const MOST: usize = 64;

/// The same command, of which the system allows `MOST` files to be open.
fn bounded(command: &mut Command) {
    let mut bounded = Command::new("sh");
    bounded.args(["-c", &format!("ulimit -n {MOST}; exec \"$0\" \"$@\"")]).arg(command.get_program());
    bounded.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bounded.env(name, value),
            None => bounded.env_remove(name),
        };
    }
    *command = bounded;
}

/// Processor time used so far, in hundredths of a second.
fn used(sidecar: &Sidecar) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/stat", sidecar.pid())).expect("it is running");
    let fields: Vec<_> = text.rsplit(')').next().expect("the name's end").split_whitespace().collect();
    // utime and stime: fields 14 and 15, of which two stand before the name's end.
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("a number of ticks")).sum()
}

/// `connect` is how a silent connection is opened, and `client` how one that asks is.
#[track_caller]
fn goes_on_at_its_ease<C>(setup: Setup, connect: impl Fn(&str) -> C, client: impl Fn(&str) -> Option<Client>) {
    let sidecar = Sidecar::start_with(&setup, bounded);
    sidecar.wait_for_store();
    let connected = client(sidecar.grpc()).expect("there is room at first");
    let is_answered =
        |client: &Client| client.try_check(&Check::of("ada")).is_ok_and(|a| a.outcome() == Outcome::Allowed);
    assert!(is_answered(&connected));
    let silent: Vec<_> = (0..2 * MOST).map(|_| connect(sidecar.grpc())).collect();
    wait_for("every descriptor to be in use", Duration::from_secs(5), || descriptors(&sidecar) >= MOST);
    let (before, lines) = (used(&sidecar), sidecar.log().lines().count());
    hold(Duration::from_secs(1));
    let (spent, said) = (used(&sidecar) - before, sidecar.log().lines().count() - lines);
    assert!(spent < 30, "{spent} hundredths of a second of a processor, in a second");
    // The watch says once that it cannot read the files either.
    assert!(said <= 8, "{said} lines in a second:\n{}", sidecar.log());
    assert!(is_answered(&connected), "who is connected is answered");
    drop(silent);
    wait_for("a newcomer to be answered", Duration::from_secs(15), || {
        client(sidecar.grpc()).is_some_and(|c| is_answered(&c))
    });
    wait_for("the files to be readable again", Duration::from_secs(10), || {
        sidecar.metrics().count("tallygate_config_last_reload_failed", &[]) == 0
    });
    let told = sidecar.log().lines().filter(|line| line.contains("connections cannot be accepted")).count();
    assert_eq!(told, 1, "{}", sidecar.log());
}

fn orders() -> Setup {
    Setup::memory().policy("orders", 1_000_000, "60s", "closed")
}

#[test]
fn a_plain_listener_without_descriptors_goes_on_at_its_ease() {
    let connect = |address: &str| TcpStream::connect(address).expect("room in the queue");
    goes_on_at_its_ease(orders(), connect, |address| Some(Client::connect(address)));
}

#[test]
fn a_tls_listener_without_descriptors_goes_on_at_its_ease() {
    let [chain, key, ca] = ["sidecar", "sidecar-key", "mesh"].map(|name| pem(name).display().to_string());
    let tls = format!("certificate_file: '{chain}', private_key_file: '{key}', client_ca_file: '{ca}'");
    let connect = |address: &str| TcpStream::connect(address).expect("room in the queue");
    let client = |address: &str| Client::over_tls(address, "mesh", Some("envoy")).ok();
    goes_on_at_its_ease(orders().tls(&tls), connect, client);
}

#[test]
fn a_unix_socket_without_descriptors_goes_on_at_its_ease() {
    let dir = TempDir::new().unwrap();
    let setup = orders().listen(&format!("unix:{}/authz.sock", dir.path().display()));
    let connect = |address: &str| UnixStream::connect(address.trim_start_matches("unix:")).expect("room in the queue");
    goes_on_at_its_ease(setup, connect, |address| Some(Client::connect(address)));
}
