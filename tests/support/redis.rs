//! A real redis-server on a loopback port, without persistence, in a folder of its own.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::ports;
use super::process::{self, Process};
use super::resp::{self, Value};
use super::wait::{poll, wait_for};

const START: Duration = Duration::from_secs(10);

pub struct RedisServer {
    part: &'static str,
    settings: Vec<String>,
    port: u16,
    process: Option<Process>,
    dir: TempDir,
}

/// Everything about a key that a refusal must leave alone: its serialised value and its instant of expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub dump: Value,
    pub expires_at_ms: i64,
}

impl RedisServer {
    pub fn start() -> Self {
        Self::start_part("redis-server")
    }

    /// One of the server versions that `make parts` knows, by the name of its binary.
    pub fn start_part(part: &'static str) -> Self {
        Self::launch_any(part, Vec::new)
    }

    /// With settings as on the command line, made anew for each port that is tried. Commands are sent with the password among
    /// them.
    pub fn start_with(settings: impl Fn() -> Vec<String>) -> Self {
        Self::launch_any("redis-server", settings)
    }

    fn launch_any(part: &'static str, settings: impl Fn() -> Vec<String>) -> Self {
        let dir = TempDir::with_prefix("tallygate-redis-").expect("a temporary folder");
        let mut why = String::new();
        for _ in 0..20 {
            let (port, settings) = (ports::free(), settings());
            match launch(part, port, &dir, &settings) {
                Ok(process) => return Self { part, settings, port, process: Some(process), dir },
                Err(output) => why = output,
            }
        }
        panic!("{part} did not start on any of 20 ports; it wrote:\n{why}");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends one command; panics if no reply came. An error reply is a reply.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> Value {
        match resp::call(self.port, password(&self.settings), arguments) {
            Ok(reply) => reply,
            Err(error) => panic!("redis-server did not reply: {error}"),
        }
    }

    /// Sends one command that must succeed.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Value {
        match self.command(arguments) {
            Value::Error(error) => panic!("redis-server refused {arguments:?}: {error}"),
            reply => reply,
        }
    }

    /// Puts a value with an expiry in milliseconds.
    #[track_caller]
    pub fn seed(&self, key: &str, value: impl AsRef<[u8]>, px: u64) {
        let px = px.to_string();
        let reply = self.command(&[b"SET", key.as_bytes(), value.as_ref(), b"PX", px.as_bytes()]);
        assert_eq!(reply, Value::Text("OK".into()));
    }

    /// The text at `key`, if there is one.
    #[track_caller]
    pub fn get(&self, key: &str) -> Option<String> {
        match self.run(&["GET", key]) {
            Value::Nil => None,
            value => Some(value.text()),
        }
    }

    /// Milliseconds to live; -1 without expiry, -2 without key.
    #[track_caller]
    pub fn pttl(&self, key: &str) -> i64 {
        self.run(&["PTTL", key]).integer()
    }

    #[track_caller]
    pub fn snapshot(&self, key: &str) -> Snapshot {
        Snapshot { dump: self.run(&["DUMP", key]), expires_at_ms: self.run(&["PEXPIRETIME", key]).integer() }
    }

    /// Every key, sorted.
    #[track_caller]
    pub fn keys(&self) -> Vec<String> {
        let Value::Array(keys) = self.run(&["KEYS", "*"]) else { panic!("KEYS answers a list") };
        let mut keys: Vec<_> = keys.iter().map(Value::text).collect();
        keys.sort();
        keys
    }

    /// Every counter by its key.
    #[track_caller]
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let count = |key: String| {
            let count = self.get(&key)?.parse().unwrap_or_else(|_| panic!("{key} is no counter"));
            Some((key, count))
        };
        self.keys().into_iter().filter_map(count).collect()
    }

    /// The value of a setting that it was started with.
    #[track_caller]
    pub fn setting(&self, name: &str) -> &str {
        setting(&self.settings, name).unwrap_or_else(|| panic!("started without {name}"))
    }

    /// One number of `INFO section`; 0 where the line is missing, as for a command that never ran.
    #[track_caller]
    pub fn info(&self, section: &str, field: &str) -> u64 {
        let text = self.run(&["INFO", section]).text();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let number = line.map_or("0", |value| value.trim_start_matches("calls=").trim_start_matches("count="));
        let digits = number.find(|c: char| !c.is_ascii_digit()).map_or(number, |end| &number[..end]);
        digits.parse().unwrap_or_else(|_| panic!("{field} is not a number: {number}"))
    }

    /// This server's clock, in microseconds.
    #[track_caller]
    pub fn now_us(&self) -> u64 {
        let Value::Array(time) = self.run(&["TIME"]) else { panic!("TIME answers a list") };
        let number = |place: usize| time[place].text().parse::<u64>().expect("TIME answers numbers");
        number(0) * 1_000_000 + number(1)
    }

    /// Returns when at least `needed_ms` are left of the running window: windows that are aligned to this server's clock
    /// would end in the midst of a test now and then.
    #[track_caller]
    pub fn away_from_edge(&self, window_ms: u64, needed_ms: u64) {
        let is_away = || self.now_us() / 1000 % window_ms + needed_ms <= window_ms;
        wait_for("the next window", Duration::from_millis(needed_ms + 1000), is_away);
    }

    /// How many changes this server has made to its data: every write of a script counts, a refused one does not.
    #[track_caller]
    pub fn changes(&self) -> u64 {
        self.info("persistence", "rdb_changes_since_last_save")
    }

    /// Ends it as an operator would.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal("TERM");
            process.wait_exit(START);
        }
    }

    /// Ends it as a crash would.
    pub fn kill9(&mut self) {
        self.process = None;
    }

    /// Stops it in its tracks: connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.process().signal("STOP");
    }

    pub fn resume(&self) {
        self.process().signal("CONT");
    }

    /// Starts it again on the same port, empty.
    #[track_caller]
    pub fn restart(&mut self) {
        self.process = None;
        // The port is ours by use: somebody who took it in between will let go of it.
        self.process = poll(START, || launch(self.part, self.port, &self.dir, &self.settings).ok());
        assert!(self.process.is_some(), "redis-server did not come back on port {}", self.port);
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("this server is running")
    }
}

/// Starts redis-server and waits until it, and not somebody else on that port, answers. The error is its output.
fn launch(part: &str, port: u16, dir: &TempDir, settings: &[String]) -> Result<Process, String> {
    let mut command = Command::new(process::part(part, &process::variable(part)));
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.arg("--dir").arg(dir.path()).args(settings);
    let mut process = Process::spawn(&mut command);
    let identity = format!("process_id:{}\r", process.pid());
    let ready = poll(START, || {
        let ours = matches!(resp::call(port, password(settings), &["INFO", "server"]), Ok(Value::Bytes(text))
            if String::from_utf8_lossy(&text).contains(&identity));
        if ours { Some(true) } else { process.exit().map(|_| false) }
    });
    if ready == Some(true) { Ok(process) } else { Err(process.stdout()) }
}

fn password(settings: &[String]) -> Option<&str> {
    setting(settings, "--requirepass")
}

fn setting<'s>(settings: &'s [String], name: &str) -> Option<&'s str> {
    let at = settings.iter().position(|setting| setting == name)?;
    settings.get(at + 1).map(String::as_str)
}
