//! A real master with two replicas, and three real Sentinels that watch it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::ports;
use super::process::{Process, part};
use super::redis::RedisServer;
use super::resp::{self, Value};
use super::wait::{poll, wait_for};

/// What the Sentinels call the master.
pub const NAME: &str = "mymaster";
const NODES_FILE: &str = "nodes.pw";
const SENTINELS_FILE: &str = "sentinels.pw";
/// Sentinels greet each other every two seconds.
const READY: Duration = Duration::from_secs(30);

/// Passwords of the nodes and of the Sentinels, where they want one.
#[derive(Clone, Copy, Default)]
pub struct Passwords {
    pub nodes: Option<&'static str>,
    pub sentinels: Option<&'static str>,
}

pub struct Watched {
    passwords: Passwords,
    /// The master at the start, and its replicas.
    pub nodes: Vec<RedisServer>,
    pub sentinels: Vec<Sentinel>,
    dir: TempDir,
}

pub struct Sentinel {
    port: u16,
    password: Option<&'static str>,
    process: Process,
}

impl Watched {
    pub fn start() -> Self {
        Self::start_with(Passwords::default())
    }

    pub fn start_with(passwords: Passwords) -> Self {
        let master = RedisServer::start_with(|| settings(passwords, None));
        let replica = || RedisServer::start_with(|| settings(passwords, Some(master.port())));
        let (first, second) = (replica(), replica());
        let nodes = vec![master, first, second];
        wait_for("the replicas to follow", READY, || {
            nodes[0].run(&["INFO", "replication"]).text().matches("state=online").count() == 2
        });
        let dir = TempDir::with_prefix("tallygate-sentinel-").expect("a temporary folder");
        let sentinels =
            (0..3).map(|n| Sentinel::start(&dir.path().join(n.to_string()), nodes[0].port(), passwords, ""));
        let watched = Self { passwords, sentinels: sentinels.collect(), nodes, dir };
        let known = [("flags", "master"), ("num-slaves", "2"), ("num-other-sentinels", "2")];
        wait_for("the Sentinels to know everybody", READY, || {
            watched.sentinels.iter().all(|sentinel| {
                known.iter().all(|(field, wanted)| sentinel.master_field(field).as_deref() == Some(wanted))
            })
        });
        watched
    }

    /// One more Sentinel, which does not hear the others and so goes on naming the first master.
    pub fn start_deaf_sentinel(&self) -> Sentinel {
        for node in &self.nodes {
            node.run(&["ACL", "SETUSER", "deaf", "on", ">deaf", "~*", "resetchannels", "+@all"]);
        }
        let more = format!("sentinel auth-user {NAME} deaf\nsentinel auth-pass {NAME} deaf\n");
        Sentinel::start(&self.dir.path().join("deaf"), self.nodes[0].port(), self.passwords, &more)
    }

    /// The `store` section that knows these Sentinels by their ports, with passwords from files.
    pub fn store_by(&self, ports: &[u16]) -> String {
        self.write_passwords(self.passwords);
        let nodes: Vec<_> = ports.iter().map(|port| format!("'127.0.0.1:{port}'")).collect();
        let file = |name: &str, password: Option<&str>| {
            let path = self.dir.path().join(name);
            password.map_or(String::new(), |_| format!(", password_file: '{}'", path.display()))
        };
        let theirs = file(SENTINELS_FILE, self.passwords.sentinels);
        let own = file(NODES_FILE, self.passwords.nodes);
        format!("{{ redis: {{ sentinel: {{ master: {NAME}, nodes: [{}]{theirs} }}{own} }} }}", nodes.join(", "))
    }

    /// The `store` section that knows all of them.
    pub fn store(&self) -> String {
        self.store_by(&self.sentinels.iter().map(Sentinel::port).collect::<Vec<_>>())
    }

    /// Puts these into the files that the `store` section names.
    pub fn write_passwords(&self, passwords: Passwords) {
        for (name, password) in [(NODES_FILE, passwords.nodes), (SENTINELS_FILE, passwords.sentinels)] {
            let text = password.map_or(String::new(), |password| format!("{password}\n"));
            fs::write(self.dir.path().join(name), text).expect("a temporary file can be written");
        }
    }

    /// The place of the other master that these Sentinels name, once it is one.
    pub fn new_master(&self, sentinels: &[usize]) -> Option<usize> {
        let named: Vec<_> = sentinels.iter().map(|n| self.sentinels[*n].master()).collect();
        let is_named = |node: &RedisServer| named.iter().all(|port| *port == Some(node.port()));
        let place = (1..self.nodes.len()).find(|place| is_named(&self.nodes[*place]))?;
        is_master(&self.nodes[place]).then_some(place)
    }
}

/// Whether this node takes itself for a master.
pub fn is_master(node: &RedisServer) -> bool {
    let Value::Array(role) = node.run(&["ROLE"]) else { panic!("ROLE answers a list") };
    role[0].text() == "master"
}

impl Sentinel {
    /// With further lines of its configuration.
    fn start(dir: &Path, master: u16, passwords: Passwords, more: &str) -> Self {
        fs::create_dir(dir).expect("a temporary folder");
        for _ in 0..20 {
            let port = ports::free();
            let config = dir.join("sentinel.conf");
            fs::write(&config, config_text(port, master, passwords) + more).expect("a temporary file can be written");
            let mut command = Command::new(part("redis-server", "TALLYGATE_REDIS_SERVER"));
            let mut process = Process::spawn(command.arg(&config).arg("--sentinel").current_dir(dir));
            let answers = || resp::call(port, passwords.sentinels, &["PING"]).is_ok_and(|pong| pong.text() == "PONG");
            let ready = poll(READY, || process.exit().map(|_| false).or_else(|| answers().then_some(true)));
            if ready == Some(true) {
                return Self { port, password: passwords.sentinels, process };
            }
        }
        panic!("no Sentinel started on any of 20 ports");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port of the master that it names.
    pub fn master(&self) -> Option<u16> {
        let reply = resp::call(self.port, self.password, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
        let Value::Array(parts) = reply else { return None };
        parts[1].text().parse().ok()
    }

    /// Orders a switch-over.
    #[track_caller]
    pub fn switch_over(&self) {
        let reply = resp::call(self.port, self.password, &["SENTINEL", "FAILOVER", NAME]);
        assert_eq!(reply.ok(), Some(Value::Text("OK".into())));
    }

    pub fn kill9(&mut self) {
        self.process.kill();
    }

    fn master_field(&self, name: &str) -> Option<String> {
        let Ok(Value::Array(fields)) = resp::call(self.port, self.password, &["SENTINEL", "MASTER", NAME]) else {
            return None;
        };
        let at = fields.iter().position(|field| field.text() == name)?;
        Some(fields[at + 1].text())
    }
}

fn settings(passwords: Passwords, master: Option<u16>) -> Vec<String> {
    let mut settings = vec!["--repl-diskless-sync-delay", "0", "--appendonly", "yes", "--appendfsync", "no"];
    if let Some(password) = passwords.nodes {
        settings.extend(["--requirepass", password, "--masterauth", password]);
    }
    let master = master.map(|port| ["--replicaof".into(), "127.0.0.1".into(), port.to_string()]);
    settings.into_iter().map(str::to_owned).chain(master.into_iter().flatten()).collect()
}

fn config_text(port: u16, master: u16, passwords: Passwords) -> String {
    let mut text = format!(
        "port {port}
bind 127.0.0.1
sentinel monitor {NAME} 127.0.0.1 {master} 2
sentinel down-after-milliseconds {NAME} 500
sentinel failover-timeout {NAME} 5000
"
    );
    if let Some(password) = passwords.nodes {
        text += &format!("sentinel auth-pass {NAME} {password}\n");
    }
    if let Some(password) = passwords.sentinels {
        text += &format!("requirepass {password}\nsentinel sentinel-pass {password}\n");
    }
    text
}
