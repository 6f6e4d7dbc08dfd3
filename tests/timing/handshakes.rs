//! TLS with those who ask, under pressure: silent connections, renewals, the end of the process, and many handshakes.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::greeting::{Greeter, VERSIONS};
use crate::support::grpc::Client;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::tls::pem;
use crate::support::wait::{poll, wait_for};
use crate::timing::load::{Load, Stream, hold};
use crate::timing::memory::{descriptors, resident};
use crate::timing::soak::{lasts, times};
use crate::timing::stall::StallProbe;

/// Handshakes at once, and how long one may take.
const MOST: usize = 256;
/// Descriptors that come and go with whoever looks at the metrics.
const OTHERS: usize = 4;
const LONGEST: Duration = Duration::from_secs(5);

fn start(chain: &Path, key: &Path) -> Sidecar {
    let (chain, key, mesh) = (chain.display(), key.display(), pem("mesh"));
    let tls = format!("certificate_file: '{chain}', private_key_file: '{key}', client_ca_file: '{}'", mesh.display());
    Setup::memory().policy("orders", 1_000_000, "60s", "closed").tls(&tls).start()
}

fn for_the_mesh() -> Sidecar {
    start(&pem("sidecar"), &pem("sidecar-key"))
}

fn envoy() -> Greeter {
    Greeter::usual("mesh", "envoy", VERSIONS[1])
}

#[track_caller]
fn silent(sidecar: &Sidecar, connections: usize) -> Vec<TcpStream> {
    (0..connections).map(|_| TcpStream::connect(sidecar.grpc()).expect("room in the listener's queue")).collect()
}

#[test]
fn silent_connections_take_256_places_and_a_newcomer_behind_them_waits_5_s_at_most() {
    let stall = StallProbe::start();
    let sidecar = for_the_mesh();
    let client = Client::over_tls(sidecar.grpc(), "mesh", Some("envoy")).unwrap();
    assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
    let before = descriptors(&sidecar);
    let silent = silent(&sidecar, MOST + 100);
    let taken = || descriptors(&sidecar).saturating_sub(before);
    wait_for("every place to be taken", LONGEST, || taken() + OTHERS >= MOST);
    let (full, mut newcomer) = (Instant::now(), None);
    let load = Load::run(&client, Stream::of(100, 10), &stall, || {
        hold(Duration::from_millis(300));
        assert!(taken() <= MOST + OTHERS, "{} connections were taken", taken());
        newcomer = Some(envoy().greet(sidecar.grpc()).map(|_| full.elapsed()));
    });
    let (waited, bound) = (newcomer.unwrap().expect("it gets in"), stall.bound(LONGEST + Duration::from_secs(1)));
    assert!(waited <= bound, "{waited:?}, more than {bound:?}");
    // Whoever was in before notices nothing.
    load.is_answered_in_time();
    assert!(load.sent.iter().all(|sent| sent.outcome() == Outcome::Allowed));
    drop(silent);
}

#[test]
fn handshakes_under_way_do_not_hold_up_the_end() {
    let stall = StallProbe::start();
    let mut sidecar = for_the_mesh();
    let before = descriptors(&sidecar);
    let silent = silent(&sidecar, 20);
    wait_for("the handshakes to be under way", LONGEST, || descriptors(&sidecar) + OTHERS >= before + silent.len());
    let told = Instant::now();
    sidecar.sigterm();
    assert_eq!(sidecar.wait_exit(Duration::from_secs(20)).code(), Some(0), "{}", sidecar.log());
    let (took, bound) = (told.elapsed(), stall.bound(Duration::from_secs(2)));
    assert!(took <= bound, "{took:?}, more than {bound:?}");
}

/// Puts the two files of a certificate there, each whole.
fn put(folder: &Path, certificate: &str) {
    for (from, to) in [(certificate.to_owned(), "tls.crt"), (format!("{certificate}-key"), "tls.key")] {
        fs::copy(pem(&from), folder.join("new")).unwrap();
        fs::rename(folder.join("new"), folder.join(to)).unwrap();
    }
}

// A renewal of all files at once is rare; one that is seen half done is refused, and the next look mends it.
#[test]
fn renewals_under_load_lose_no_check_no_newcomer_and_no_look_at_the_metrics() {
    let stall = StallProbe::start();
    let dir = TempDir::with_prefix("tallygate-tls-").unwrap();
    put(dir.path(), "sidecar");
    let sidecar = start(&dir.path().join("tls.crt"), &dir.path().join("tls.key"));
    let client = Client::over_tls(sidecar.grpc(), "mesh", Some("envoy")).unwrap();
    let (mut renewals, mut newcomers, mut looks) = (0, 0, 0);
    let load = Load::run(&client, Stream::of(200, 10), &stall, || {
        let end = Instant::now() + lasts(4, 60);
        while Instant::now() < end {
            put(dir.path(), ["sidecar-renewed", "sidecar"][renewals % 2]);
            sidecar.sighup();
            renewals += 1;
            let next = Instant::now() + Duration::from_millis(500);
            while Instant::now() < next {
                let newcomer = envoy().greet(sidecar.grpc());
                assert!(newcomer.is_ok(), "{newcomer:?} in renewal {renewals}\n{}", sidecar.log());
                let metrics = sidecar.metrics();
                let setting = [("setting", "server.tls.certificate_file")];
                assert!(metrics.value("tallygate_certificate_days_left", &setting) > 30_000.0);
                assert_eq!(metrics.count("tallygate_config_info", &[]), 1);
                (newcomers, looks) = (newcomers + 1, looks + 1);
            }
        }
    });
    load.is_answered_in_time();
    let lost = load.sent.iter().find(|sent| sent.outcome() != Outcome::Allowed);
    assert!(lost.is_none(), "{:?}", lost.map(|sent| &sent.answer));
    assert!(renewals >= 5 && newcomers >= 10 && looks >= 10, "{renewals}, {newcomers}, {looks}");
    let taken = sidecar.log().matches("is in use").count();
    assert!(taken > renewals / 2, "{taken} of {renewals} renewals were taken");
}

#[test]
fn memory_and_descriptors_stay_where_they_are_over_thousands_of_handshakes() {
    let sidecar = for_the_mesh();
    let stranger = Greeter::usual("mesh", "client", VERSIONS[0]);
    let shake = |times: usize| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..times / 4 {
                        match round % 4 {
                            0 => assert!(stranger.greet(sidecar.grpc()).is_err()),
                            1 => drop(TcpStream::connect(sidecar.grpc()).unwrap()),
                            _ => assert!(envoy().greet(sidecar.grpc()).is_ok()),
                        }
                    }
                });
            }
        });
    };
    shake(500);
    let (before, open) = (resident(&sidecar), descriptors(&sidecar));
    let times = times(2_000, 10_000);
    shake(times);
    let grown = resident(&sidecar).saturating_sub(before);
    assert!(grown < 8 * 1024 * 1024, "grew by {} KiB over {times} handshakes", grown / 1024);
    let back = poll(Duration::from_secs(10), || (descriptors(&sidecar) <= open + OTHERS).then_some(()));
    assert!(back.is_some(), "{open} descriptors became {}", descriptors(&sidecar));
}
