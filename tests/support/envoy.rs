//! A real Envoy, with the shipped configuration or with a test's own.

use std::fs;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::http;
use super::metrics::Metrics;
use super::process::{Finished, Process, part, root};
use super::tls::pem;
use super::wait::poll;

/// Starting takes a fraction of a second on an idle machine.
const START: Duration = Duration::from_secs(20);

pub struct Envoy {
    process: Process,
    admin: String,
    listener: String,
    // Holds the configuration as long as the process runs.
    _dir: TempDir,
}

impl Envoy {
    /// The shipped `envoy/tallygate.yaml`, with this sidecar and this application, on any free ports.
    #[track_caller]
    pub fn shipped(tallygate: u16, application: u16) -> Self {
        Self::shipped_with(tallygate, application, &[])
    }

    /// The same with these texts replaced, as an operator edits the file.
    #[track_caller]
    pub fn shipped_with(tallygate: u16, application: u16, edits: &[(&str, &str)]) -> Self {
        Self::file("tallygate.yaml", tallygate, application, edits)
    }

    /// Any file of `envoy/`, likewise.
    #[track_caller]
    pub fn file(name: &str, tallygate: u16, application: u16, edits: &[(&str, &str)]) -> Self {
        Self::start(&substitute(&placed(name, tallygate, application), edits))
    }

    /// Any configuration with one listener. Admin and listener should be on port 0.
    #[track_caller]
    pub fn start(config: &str) -> Self {
        let dir = TempDir::with_prefix("tallygate-envoy-").expect("a temporary folder");
        fs::write(dir.path().join("envoy.yaml"), config).expect("a temporary file can be written");
        let mut command = Command::new(part("envoy", "TALLYGATE_ENVOY"));
        command.args(["-c", "envoy.yaml", "--admin-address-path", "admin", "--use-dynamic-base-id"]);
        // The access log is flushed each 10 s by default.
        command.args(["--concurrency", "1", "--log-level", "warn", "--file-flush-interval-msec", "50"]);
        let mut process = Process::spawn(command.current_dir(dir.path()));
        let addresses = poll(START, || {
            let admin = fs::read_to_string(dir.path().join("admin")).ok().filter(|text| !text.is_empty());
            let found = admin.and_then(|admin| Some((listener(&admin)?, admin)));
            found.map(Some).or_else(|| process.exit().map(|_| None))
        });
        match addresses.flatten() {
            Some((listener, admin)) => Self { process, admin, listener, _dir: dir },
            None => panic!("envoy did not start; it wrote:\n{}", process.stderr()),
        }
    }

    /// `127.0.0.1:PORT` of its listener.
    pub fn address(&self) -> &str {
        &self.listener
    }

    /// A GET through its listener.
    #[track_caller]
    pub fn get(&self, path: &str, headers: &[(&str, &str)]) -> http::Response {
        http::request(self.address(), path, headers)
    }

    /// What it has written to its access log so far.
    pub fn access_log(&self) -> String {
        self.process.stdout()
    }

    /// Its statistics as Prometheus reads them.
    #[track_caller]
    pub fn prometheus(&self) -> Metrics {
        Metrics::parse(&http::get(&self.admin, "/stats/prometheus").text())
    }

    /// One of its counters.
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        let text = http::get(&self.admin, &format!("/stats?filter=^{name}$")).text();
        let value = text.trim().rsplit(": ").next().and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("no counter {name}: {text:?}"))
    }
}

/// The address of the only listener, once Envoy serves.
fn listener(admin: &str) -> Option<String> {
    if http::try_get(admin, "/ready").ok()?.status() != 200 {
        return None;
    }
    // `edge::127.0.0.1:34567`
    let listeners = http::try_get(admin, "/listeners").ok()?.text();
    listeners.trim().split_once("::").map(|(_, address)| address.to_owned())
}

/// A file of `envoy/` with these ports in place of its own, and with the certificates of the tests. Not every file reaches
/// Tallygate by a port.
#[track_caller]
pub fn placed(name: &str, tallygate: u16, application: u16) -> String {
    let text = fs::read_to_string(root().join("envoy").join(name)).expect("a shipped configuration");
    assert!(text.contains("port_value: 50051 ") || text.contains("pipe: "), "{name} does not reach Tallygate");
    let text = text.replace("port_value: 50051 ", &format!("port_value: {tallygate} "));
    let ports = [(9901, 0), (10000, 0), (8080, application)];
    let ports = ports.map(|(from, to)| (format!("port_value: {from} "), format!("port_value: {to} ")));
    let ports: Vec<_> = ports.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    let listeners = [("server", "loopback"), ("server-key", "loopback-key"), ("clients-ca", "workloads")];
    let clusters = [("envoy", "envoy"), ("envoy-key", "envoy-key"), ("tallygate-ca", "mesh")];
    listeners.iter().chain(&clusters).fold(substitute(&text, &ports), |text, (from, to)| {
        text.replace(&format!("/etc/envoy/tls/{from}.pem"), &pem(to).display().to_string())
    })
}

/// Replaces each text, which must occur: an edit of the file cannot leave a test talking to nobody.
#[track_caller]
pub fn substitute(text: &str, edits: &[(&str, &str)]) -> String {
    edits.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "the shipped configuration has no `{from}`");
        text.replace(from, to)
    })
}

/// `envoy --mode validate` on a configuration.
pub fn validate(config: &str) -> Finished {
    let dir = TempDir::with_prefix("tallygate-envoy-").expect("a temporary folder");
    fs::write(dir.path().join("envoy.yaml"), config).expect("a temporary file can be written");
    let mut command = Command::new(part("envoy", "TALLYGATE_ENVOY"));
    command.args(["--mode", "validate", "--use-dynamic-base-id", "--log-level", "warn", "-c", "envoy.yaml"]);
    Process::spawn(command.current_dir(dir.path())).finish(Duration::from_secs(60))
}
