//! `tallygate probe`: an operator's question to a running sidecar.

use tempfile::TempDir;

use crate::support::cli;
use crate::support::ports;
use crate::support::process::Finished;
use crate::support::setup::Setup;

fn probe(address: &str, more: &[&str]) -> Finished {
    let orders = ["probe", "--address", address];
    cli::run(&[&orders[..], more].concat())
}

const ADA: [&str; 6] = ["--path", "/orders", "--route", "tenant=acme", "--route", "subject=ada"];

#[test]
fn a_probe_prints_the_verdict() {
    let sidecar = Setup::memory().policy("orders", 1, "60s", "closed").start();
    let first = probe(sidecar.grpc(), &ADA);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.stdout.contains("allowed"), "{first:?}");
    let second = probe(sidecar.grpc(), &ADA);
    assert!(second.stdout.contains("denied") && second.stdout.contains("429"), "{second:?}");
    let nobody = probe(sidecar.grpc(), &["--path", "/orders", "--header", "x-user=ada", "--method", "POST"]);
    assert!(nobody.stdout.contains("unidentified"), "{nobody:?}");
}

#[test]
fn a_probe_reaches_a_unix_socket() {
    let dir = TempDir::new().unwrap();
    let address = format!("unix:{}/authz.sock", dir.path().display());
    let sidecar = Setup::memory().listen(&address).policy("orders", 1, "60s", "closed").start();
    assert!(probe(sidecar.grpc(), &ADA).stdout.contains("allowed"));
    assert_eq!(probe(sidecar.grpc(), &["--health"]).code, Some(0));
}

#[test]
fn a_health_probe_tells_by_its_exit_code() {
    let sidecar = Setup::memory().policy("orders", 1, "60s", "closed").start();
    let healthy = probe(sidecar.grpc(), &["--health"]);
    assert_eq!(healthy.code, Some(0), "{healthy:?}");
    let gone = probe(&format!("127.0.0.1:{}", ports::free()), &["--health"]);
    assert!(gone.code.is_some_and(|code| code != 0), "{gone:?}");
    assert!(!gone.stderr.contains("panicked"), "{gone:?}");
}
