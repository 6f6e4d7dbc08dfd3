//! Tallygate itself, as a process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use tempfile::TempDir;

use super::cli;
use super::grpc::Client;
use super::http;
use super::metrics::Metrics;
use super::process::Process;
use super::setup::{SECRET, Setup};
use super::wait::{poll, wait_for};

pub struct Sidecar {
    process: Process,
    dir: TempDir,
    grpc: String,
    admin: String,
}

impl Sidecar {
    /// Starts it and waits until it says where it listens.
    #[track_caller]
    pub fn start(setup: &Setup) -> Self {
        Self::start_with(setup, |_| {})
    }

    /// The same with more arguments, or another environment.
    #[track_caller]
    pub fn start_with(setup: &Setup, adjust: impl FnOnce(&mut Command)) -> Self {
        Self::launch(|secret| setup.text(secret), adjust)
    }

    /// With a file of the test's own, which is told where the secret lies.
    #[track_caller]
    pub fn start_text(text: impl FnOnce(&Path) -> String) -> Self {
        Self::launch(text, |_| {})
    }

    /// The same with a shipped file, in which `SECRET_FILE` stands for where the secret lies; it has reached its store.
    #[track_caller]
    pub fn start_placed(text: &str) -> Self {
        let sidecar = Self::start_text(|secret| text.replace("SECRET_FILE", &secret.display().to_string()));
        sidecar.wait_for_store();
        sidecar
    }

    #[track_caller]
    fn launch(text: impl FnOnce(&Path) -> String, adjust: impl FnOnce(&mut Command)) -> Self {
        let dir = TempDir::with_prefix("tallygate-").expect("a temporary folder");
        let secret = put(&dir, "hmac.key", SECRET);
        let config = put(&dir, "tallygate.yaml", &text(&secret));
        let mut command = cli::command(&["serve", "--config", config.to_str().unwrap()]);
        command.env("TALLYGATE_LOG_FORMAT", "json");
        adjust(&mut command);
        let mut process = Process::spawn(&mut command);
        let line = poll(Duration::from_secs(10), || {
            let line = process.stderr().lines().find(|l| l.contains("listening")).map(str::to_owned);
            line.or_else(|| process.exit().map(|_| String::new()))
        });
        let addresses = line.as_deref().and_then(|line| Some((field(line, "grpc")?, field(line, "admin")?)));
        match addresses {
            Some((grpc, admin)) => Self { process, dir, grpc, admin },
            None => panic!("the sidecar does not say where it listens; it wrote:\n{}", process.stderr()),
        }
    }

    /// `127.0.0.1:PORT`, or `unix:/path`.
    pub fn grpc(&self) -> &str {
        &self.grpc
    }

    /// The port of a TCP listener, for an Envoy's configuration.
    pub fn port(&self) -> u16 {
        self.grpc.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a TCP listener")
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.grpc)
    }

    /// Asks the admin port.
    #[track_caller]
    pub fn get(&self, path: &str) -> http::Response {
        http::get(&self.admin, path)
    }

    /// Asks the admin port by another method than GET.
    #[track_caller]
    pub fn admin(&self, method: &str, path: &str) -> http::Response {
        http::request_as(method, &self.admin, path, &[])
    }

    /// The status of `/readyz`, or `None` when the admin port no longer answers.
    pub fn readiness(&self) -> Option<u16> {
        http::try_get(&self.admin, "/readyz").ok().map(|response| response.status())
    }

    #[track_caller]
    pub fn metrics(&self) -> Metrics {
        Metrics::parse(&self.get("/metrics").text())
    }

    #[track_caller]
    pub fn wait_for_store(&self) {
        wait_for("the sidecar to reach its store", Duration::from_secs(10), || {
            self.metrics().count("tallygate_store_up", &[]) == 1
        });
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// What it has written to standard output so far, which should be nothing.
    pub fn stdout(&self) -> String {
        self.process.stdout()
    }

    /// Puts another configuration in the place of its file, whole, as a deployment tool does.
    pub fn rewrite(&self, setup: &Setup) {
        write_files(&self.dir, setup);
    }

    /// Where its files are: `tallygate.yaml` and `hmac.key`.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Puts a broken configuration there.
    pub fn rewrite_with(&self, text: &str) {
        put(&self.dir, "tallygate.yaml", text);
    }

    /// Puts another configuration in force.
    #[track_caller]
    pub fn reload(&self, setup: &Setup) {
        let before = self.generation();
        self.rewrite(setup);
        self.sighup();
        wait_for("the new configuration", Duration::from_secs(5), || self.generation() > before);
    }

    /// How many configurations it has taken into use.
    #[track_caller]
    pub fn generation(&self) -> u64 {
        self.metrics().count("tallygate_config_generation", &[])
    }

    pub fn sighup(&self) {
        self.process.signal("HUP");
    }

    pub fn sigterm(&self) {
        self.process.signal("TERM");
    }

    #[track_caller]
    pub fn wait_exit(&mut self, within: Duration) -> ExitStatus {
        self.process.wait_exit(within)
    }
}

/// Writes the secret and the configuration into `dir`.
pub fn write_files(dir: &TempDir, setup: &Setup) -> PathBuf {
    let secret = put(dir, "hmac.key", SECRET);
    put(dir, "tallygate.yaml", &setup.text(&secret))
}

fn put(dir: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    let fresh = dir.path().join(format!("{name}.new"));
    fs::write(&fresh, text).expect("a temporary file can be written");
    fs::rename(&fresh, &path).expect("and renamed");
    path
}

/// The text of a field of a line, in JSON or as text, where it needs no unescaping.
fn field(line: &str, name: &str) -> Option<String> {
    let starts = [format!("\"{name}\":\""), format!(" {name}=")];
    let start = starts.iter().find_map(|start| Some(line.find(start)? + start.len()))?;
    let length = line[start..].find(['"', ' '])?;
    Some(line[start..start + length].to_owned())
}
